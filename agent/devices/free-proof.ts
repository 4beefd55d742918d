/**
 * Proves that a device is free: no process of its last container is left, judged by the driver's process list and the
 * cgroups of those processes. Owned by gpus.ts. Must stay true: a device without proof is leased to nobody; a driver
 * that does not list a device says nothing about its users.
 */
import { readFile } from 'node:fs/promises';
import { sleep } from '#shared/backoff.ts';
import type { Log } from '#shared/log.ts';
import { hasCode } from '../durable.ts';
import type { DeviceTable } from './device-table.ts';
import { MAY_BE_USED } from './health.ts';
import type { NvidiaSmi, Processes } from './nvidia-smi.ts';

const PROOF_MS = 10_000;
const PROOF_PAUSE_MS = 500;

export interface FreeProofParts {
  readonly table: DeviceTable;
  readonly smi: Pick<NvidiaSmi, 'processes'>;
  readonly proofMs: number | undefined;
  /** Devices among these whose memory is in use, read now. */
  readonly crowded: (uuids: readonly string[]) => Promise<readonly string[]>;
  /** Whether a probe on the device does not end. */
  readonly isStuck: (uuid: string) => boolean;
  readonly log: Log;
  /** Ends every wait when the agent stops. */
  readonly signal: AbortSignal;
}

export class FreeProof {
  readonly #parts: FreeProofParts;

  constructor(parts: FreeProofParts) {
    this.#parts = parts;
  }

  /**
   * Waits, after the container's removal, until no process of it is left on its devices, and their memory is free.
   * Devices without proof of the first in time are quarantined; those whose memory is in use wait for a probe.
   * @returns whether devices are not free
   * @throws when the agent stops meanwhile
   */
  async release(gpuUuids: readonly string[], dockerId: string): Promise<boolean> {
    const { table, smi, proofMs, log, signal } = this.#parts;
    const until = performance.now() + (proofMs ?? PROOF_MS);
    const isLost = (uuid: string): boolean => table.get(uuid)?.health.state === 'lost';
    // The last look listed the device; otherwise an answer without processes on it proves nothing.
    const isTold = (uuid: string): boolean => (table.get(uuid)?.health.missed ?? 0) === 0;
    let left = gpuUuids.filter((uuid) => !isLost(uuid));
    while (left.length > 0) {
      const processes = await smi.processes(table.wholesOf(left));
      const busy = new Set<string>();
      for (const uuid of left) if (await this.#isUsed(uuid, processes, [dockerId])) busy.add(uuid);
      const isFree = (uuid: string): boolean => !busy.has(uuid) && isTold(uuid) && !isLost(uuid);
      for (const uuid of left.filter(isFree)) table.released(uuid, dockerId);
      left = left.filter((uuid) => !isFree(uuid) && !isLost(uuid));
      if (left.length === 0 || performance.now() >= until || !(await sleep(PROOF_PAUSE_MS, signal))) break;
    }
    if (signal.aborted) throw new Error('stopped before its GPUs were seen to be free');
    const kept = gpuUuids.filter((uuid) => left.includes(uuid) || isLost(uuid));
    const inUse = await this.#crowded(
      gpuUuids.filter((uuid) => !kept.includes(uuid)),
      until,
    );
    for (const uuid of kept) table.quarantine(uuid, [dockerId], MAY_BE_USED);
    if (kept.length > 0) log.error({ gpuUuids: kept, dockerId }, 'GPUs are not proved free: they are given to nobody');
    return kept.length + inUse.length > 0;
  }

  /** Waits until the memory of these devices is free. @returns those where it is not in time */
  async #crowded(uuids: readonly string[], until: number): Promise<readonly string[]> {
    let left = uuids;
    while (left.length > 0) {
      left = await this.#parts.crowded(left);
      if (left.length === 0 || performance.now() >= until) break;
      if (!(await sleep(PROOF_PAUSE_MS, this.#parts.signal))) break;
    }
    return left;
  }

  /**
   * Releases quarantined devices that no process uses any more.
   * @param held - devices of containers, which are skipped: their processes are legitimate
   */
  async check(held: ReadonlySet<string>): Promise<void> {
    const { table, smi, isStuck } = this.#parts;
    const kept = table
      .all()
      .filter(
        ({ uuid, health: { unproven, state, missed } }) =>
          unproven && state !== 'lost' && missed === 0 && !held.has(uuid) && !isStuck(uuid),
      );
    if (kept.length === 0) return;
    const processes = await smi.processes(table.wholesOf(kept.map(({ uuid }) => uuid)));
    for (const { uuid, lastDockerIds } of kept)
      if (!(await this.#isUsed(uuid, processes, lastDockerIds))) table.event(uuid, { kind: 'proved_free' });
  }

  /** Whether a process of those containers is on the device, or nobody can say: the device gave no list. */
  async #isUsed(uuid: string, processes: Processes, dockerIds: readonly string[]): Promise<boolean> {
    const parentUuid = this.#parts.table.get(uuid)?.parentUuid ?? '';
    const listed = processes.get(parentUuid || uuid);
    if (listed === undefined) return true;
    const names = [uuid, parentUuid];
    for (const { uuid: on, pid } of listed) if (names.includes(on) && (await mayBelongTo(pid, dockerIds))) return true;
    return false;
  }
}

/**
 * Whether a process belongs to those containers, by its cgroup. A process that has just ended counts: the driver holds
 * its resources until it is gone for good.
 */
async function mayBelongTo(pid: number, dockerIds: readonly string[]): Promise<boolean> {
  try {
    const cgroup = await readFile(`/proc/${pid}/cgroup`, 'utf8');
    return dockerIds.some((id) => cgroup.includes(id));
  } catch (error) {
    if (hasCode(error, 'ENOENT', 'ESRCH')) return true;
    throw error;
  }
}
