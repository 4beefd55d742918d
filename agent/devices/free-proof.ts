/**
 * Whether a device is free: no process of its last container is left there, as the driver and the cgroups of its processes say. Owned by gpus.ts. Must stay true: a device of which nobody can say that goes to nobody; a driver that does not
 * list a device says nothing of who uses it.
 */
import { readFile } from 'node:fs/promises';
import { sleep } from '#shared/backoff.ts';
import type { Log } from '#shared/log.ts';
import { hasCode } from '../durable.ts';
import type { DeviceTable } from './device-table.ts';
import type { NvidiaSmi } from './nvidia-smi.ts';

const PROOF_MS = 10_000;
const PROOF_PAUSE_MS = 500;

export interface FreeProofParts {
  readonly table: DeviceTable;
  readonly smi: Pick<NvidiaSmi, 'processes'>;
  readonly proofMs: number | undefined;
  /** A probe there does not end. */
  readonly isStuck: (uuid: string) => boolean;
  readonly log: Log;
  /** A stop of the agent ends every wait. */
  readonly signal: AbortSignal;
}

export class FreeProof {
  readonly #parts: FreeProofParts;

  constructor(parts: FreeProofParts) {
    this.#parts = parts;
  }

  /**
   * The container is removed: waits until no process of it is left on its devices; those where that cannot be seen in time are kept from everybody.
   * @returns whether some are kept
   * @throws when the agent stops meanwhile
   */
  async release(gpuUuids: readonly string[], dockerId: string): Promise<boolean> {
    const { table, proofMs, log, signal } = this.#parts;
    const until = performance.now() + (proofMs ?? PROOF_MS);
    const isLost = (uuid: string): boolean => table.get(uuid)?.health.state === 'lost';
    let left = gpuUuids.filter((uuid) => !isLost(uuid));
    const kept = gpuUuids.filter(isLost);
    while (left.length > 0) {
      const busy = await this.#busy(left, [dockerId]);
      if (busy !== undefined) left = left.filter((uuid) => busy.has(uuid));
      if (left.length === 0 || performance.now() >= until || !(await sleep(PROOF_PAUSE_MS, signal))) break;
    }
    if (signal.aborted) throw new Error('stopped before its GPUs were seen to be free');
    kept.push(...left);
    for (const uuid of kept) table.quarantine(uuid, [dockerId], 'its last container may still use it');
    if (kept.length > 0) log.error({ gpuUuids: kept, dockerId }, 'GPUs are not proved free: they are given to nobody');
    return kept.length > 0;
  }

  /** Devices that were kept from everybody, and that nobody uses any more. @param held - of containers: their processes are no reason */
  async look(held: ReadonlySet<string>): Promise<void> {
    const { table, isStuck } = this.#parts;
    for (const { uuid, health, lastDockerIds } of table.all()) {
      if (!health.unproven || health.state === 'lost' || held.has(uuid) || isStuck(uuid)) continue;
      const busy = await this.#busy([uuid], lastDockerIds);
      if (busy !== undefined && !busy.has(uuid)) table.event(uuid, { kind: 'proved_free' });
    }
  }

  /** Devices on which a process of those containers is; undefined: nobody can say. */
  async #busy(gpuUuids: readonly string[], dockerIds: readonly string[]): Promise<ReadonlySet<string> | undefined> {
    const processes = await this.#parts.smi.processes();
    if (processes === undefined) return undefined;
    const busy = new Set<string>();
    for (const uuid of gpuUuids) {
      const names = [uuid, this.#parts.table.get(uuid)?.parentUuid];
      for (const { uuid: on, pid } of processes)
        if (names.includes(on) && (await mayBelongTo(pid, dockerIds))) busy.add(uuid);
    }
    return busy;
  }
}

/** By the cgroup that the process is in; the driver keeps what a process has until it is gone for good, so one that is not there any more counts. */
async function mayBelongTo(pid: number, dockerIds: readonly string[]): Promise<boolean> {
  try {
    const cgroup = await readFile(`/proc/${pid}/cgroup`, 'utf8');
    return dockerIds.some((id) => cgroup.includes(id));
  } catch (error) {
    if (hasCode(error, 'ENOENT', 'ESRCH')) return true;
    throw error;
  }
}
