// Use of GPUs, as their agents last reported it after a look of the driver's tool (every 30 s). The numbers are for
// lists; no decision uses them. The replica with the link has them in memory; other replicas find them in Redis.
// Invariant: how long a GPU has been idle is counted by the replica with the link, and begins anew with another one.
import type { Redis } from 'ioredis';
import type { MachineId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { DeviceSample__Output, Samples__Output } from '#shared/protocol/generated/messages.ts';

export interface DeviceUse {
  /** From 0 to 100; null: the driver does not tell it, as of MIG slices. */
  readonly utilizationPct: number | null;
  readonly memoryUsedBytes: number | null;
  readonly powerWatts: number | null;
  readonly temperatureCelsius: number | null;
  /** Time of the sample by the scheduler's clock. */
  readonly sampledAtMs: number;
  /** Since when each sample was below the bound of idleness; null: the last one was not. */
  readonly idleSinceMs: number | null;
}

/** Below it a GPU counts as idle, in percent. */
export const IDLE_BELOW_PCT = 5;
/** Milliseconds for which a sample counts as current: three looks. */
const LIFE_MS = 90_000;
/** Most devices that are kept of one machine, as many as an agent has. */
const MOST = 256;

type Stored = readonly (readonly [string, DeviceUse])[];

export interface DeviceUseParts {
  /** Redis for other replicas; undefined: there are none. */
  readonly redis: Redis | undefined;
  readonly keyOf: (machineId: MachineId) => string;
  readonly clock: { nowMs(): number };
  readonly log: Log;
}

export class DeviceUses {
  readonly #byMachine = new Map<MachineId, ReadonlyMap<string, DeviceUse>>();
  readonly #parts: DeviceUseParts;

  constructor(parts: DeviceUseParts) {
    this.#parts = parts;
  }

  heard(machineId: MachineId, { devices }: Pick<Samples__Output, 'devices'>): void {
    if (devices.length === 0) return;
    const { redis, keyOf, clock, log } = this.#parts;
    const nowMs = clock.nowMs();
    const before = this.#byMachine.get(machineId);
    const stored: Stored = devices.slice(0, MOST).map((one) => [one.uuid, useOf(one, before?.get(one.uuid), nowMs)]);
    this.#byMachine.set(machineId, new Map(stored));
    redis
      ?.set(keyOf(machineId), JSON.stringify(stored), 'PX', LIFE_MS)
      .catch((error: unknown) => log.info({ err: error, machineId }, 'use of GPUs not shared'));
  }

  /** Forgets a machine that is no longer linked here. */
  forget(machineId: MachineId): void {
    this.#byMachine.delete(machineId);
  }

  /** Use of the GPUs of these machines, by machine and UUID; what is not current is left out. */
  async of(machineIds: Iterable<MachineId>): Promise<ReadonlyMap<MachineId, ReadonlyMap<string, DeviceUse>>> {
    const { redis, keyOf, clock } = this.#parts;
    const found = new Map<MachineId, ReadonlyMap<string, DeviceUse>>();
    const elsewhere: MachineId[] = [];
    for (const machineId of new Set(machineIds)) {
      const here = this.#byMachine.get(machineId);
      if (here === undefined) elsewhere.push(machineId);
      else found.set(machineId, here);
    }
    if (redis !== undefined && elsewhere.length > 0) {
      const texts = await redis.mget(elsewhere.map(keyOf)).catch(() => []);
      for (const [at, text] of texts.entries()) {
        const machineId = elsewhere[at];
        if (text !== null && machineId !== undefined) found.set(machineId, new Map(JSON.parse(text) as Stored));
      }
    }
    const from = clock.nowMs() - LIFE_MS;
    return new Map(
      [...found].map(([machineId, uses]) => [
        machineId,
        new Map([...uses].filter(([, { sampledAtMs }]) => sampledAtMs >= from)),
      ]),
    );
  }
}

function useOf(sample: DeviceSample__Output, before: DeviceUse | undefined, nowMs: number): DeviceUse {
  const { utilizationPermille, memoryUsedBytes, powerWatts, temperatureCelsius } = sample;
  const utilizationPct = utilizationPermille === undefined ? null : Math.min(1000, utilizationPermille) / 10;
  const isIdle = utilizationPct !== null && utilizationPct < IDLE_BELOW_PCT;
  // A gap in the samples says nothing about the time between.
  const isNext = before !== undefined && nowMs - before.sampledAtMs <= LIFE_MS;
  return {
    utilizationPct,
    memoryUsedBytes: memoryUsedBytes !== undefined && Number.isSafeInteger(memoryUsedBytes) ? memoryUsedBytes : null,
    powerWatts: powerWatts ?? null,
    temperatureCelsius: temperatureCelsius ?? null,
    sampledAtMs: nowMs,
    idleSinceMs: isIdle ? ((isNext ? before.idleSinceMs : null) ?? nowMs) : null,
  };
}
