// Resources that containers use, as their agents last reported. The numbers are shown in lists; no decision uses them.
// The replica with the link has them in memory; other replicas find them in Redis for a while.
import type { Redis } from 'ioredis';
import type { ContainerId, MachineId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { GpuUse__Output, Samples__Output } from '#shared/protocol/generated/messages.ts';

/**
 * Use of all GPUs of a container together, as the driver's tool last reported it.
 * A number is null when it is unknown for one of them, and always for MIG slices.
 */
export interface ContainerGpuUse {
  readonly devices: number;
  /** Mean of its GPUs, from 0 to 100. */
  readonly utilizationPct: number | null;
  readonly memoryUsedBytes: number | null;
  readonly memoryTotalBytes: number | null;
  readonly powerWatts: number | null;
}

export interface ContainerUsage {
  readonly cpuMillicores: number;
  readonly memoryBytes: number;
  readonly processes: number;
  readonly receivedBytes: number;
  readonly sentBytes: number;
  /** Bytes written to its root and its code, as last counted; 0: not counted yet. */
  readonly diskBytes: number;
  /** Limit on these bytes; 0: none. */
  readonly diskLimitBytes: number;
  /** Use of its GPUs; null: the container has no GPU, or its agent does not report it. */
  readonly gpu: ContainerGpuUse | null;
  /** Time of the sample by the scheduler's clock. */
  readonly sampledAtMs: number;
}

/** Milliseconds for which a sample counts as current. */
const LIFE_MS = 30_000;
/** Most containers that are kept of one machine. */
const MOST = 5_000;

type Stored = readonly (readonly [ContainerId, ContainerUsage])[];

export interface UsageParts {
  /** Redis for other replicas; absent: there are none. */
  readonly redis: Redis | undefined;
  readonly keyOf: (machineId: MachineId) => string;
  readonly clock: { nowMs(): number };
  readonly log: Log;
}

export class Usage {
  readonly #byMachine = new Map<MachineId, ReadonlyMap<ContainerId, ContainerUsage>>();
  readonly #parts: UsageParts;

  constructor(parts: UsageParts) {
    this.#parts = parts;
  }

  heard(machineId: MachineId, samples: Samples__Output): void {
    const { redis, keyOf, clock, log } = this.#parts;
    const sampledAtMs = clock.nowMs();
    const stored: Stored = samples.containers.slice(0, MOST).map((one) => [
      one.containerId as ContainerId,
      {
        cpuMillicores: one.cpuMillicores,
        memoryBytes: one.memoryBytes,
        processes: one.processes,
        receivedBytes: one.receivedBytes,
        sentBytes: one.sentBytes,
        diskBytes: one.diskBytes,
        diskLimitBytes: one.diskLimitBytes,
        gpu: gpuUseOf(one.gpu),
        sampledAtMs,
      },
    ]);
    // A machine without containers tells its own use all the time.
    if (stored.length === 0 && (this.#byMachine.get(machineId)?.size ?? 0) === 0) return;
    this.#byMachine.set(machineId, new Map(stored));
    redis
      ?.set(keyOf(machineId), JSON.stringify(stored), 'PX', LIFE_MS)
      .catch((error: unknown) => log.info({ err: error, machineId }, 'samples not shared'));
  }

  /** Forgets a machine that is no longer linked here. */
  forget(machineId: MachineId): void {
    this.#byMachine.delete(machineId);
  }

  /** Usage of the containers on these machines; unknown ones are left out. */
  async of(machineIds: Iterable<MachineId>): Promise<ReadonlyMap<ContainerId, ContainerUsage>> {
    const { redis, keyOf, clock } = this.#parts;
    const found = new Map<ContainerId, ContainerUsage>();
    const elsewhere: MachineId[] = [];
    for (const machineId of new Set(machineIds)) {
      const here = this.#byMachine.get(machineId);
      if (here === undefined) elsewhere.push(machineId);
      else for (const [id, usage] of here) found.set(id, usage);
    }
    if (redis !== undefined && elsewhere.length > 0) {
      const texts = await redis.mget(elsewhere.map(keyOf)).catch(() => []);
      for (const text of texts)
        if (text !== null) for (const [id, usage] of JSON.parse(text) as Stored) found.set(id, usage);
    }
    const from = clock.nowMs() - LIFE_MS;
    for (const [id, usage] of found) if (usage.sampledAtMs < from) found.delete(id);
    return found;
  }
}

function gpuUseOf(use: GpuUse__Output | null | undefined): ContainerGpuUse | null {
  if (use === null || use === undefined || use.devices === 0) return null;
  const { devices, utilizationPct, memoryUsedBytes, memoryTotalBytes, powerWatts } = use;
  return {
    devices,
    utilizationPct: tellable(utilizationPct),
    memoryUsedBytes: tellable(memoryUsedBytes),
    memoryTotalBytes: memoryTotalBytes > 0 ? memoryTotalBytes : null,
    powerWatts: tellable(powerWatts),
  };
}

/** The number if it is finite and not negative, else null: an agent may send any double. */
const tellable = (value: number | undefined): number | null =>
  value !== undefined && Number.isFinite(value) && value >= 0 ? value : null;
