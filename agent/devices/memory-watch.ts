/**
 * Keeps devices whose memory is in use by nobody known from being leased: judged at each look, after a release, and
 * before a lease where the last answer is old. Owned by gpus.ts. Must stay true: only a device that no container, build
 * or probe has is judged. A device that drives a display is not, because its desktop has memory there.
 */
import type { Log } from '#shared/log.ts';
import type { Device, DeviceTable } from './device-table.ts';
import type { StoredIdle } from './idle-memory.ts';
import { IdleMemory } from './idle-memory.ts';
import type { NvidiaSmi } from './nvidia-smi.ts';

/** An answer is current for this long: a lease then costs no question. */
const CURRENT_MS = 5000;
/** Bound on the wait of a lease. */
const LEASE_DEADLINE_MS = 5000;
const NONE: ReadonlySet<string> = new Set();
export const IN_USE = 'memory in use by nobody known';

export interface MemoryWatchParts {
  readonly table: DeviceTable;
  readonly smi: Pick<NvidiaSmi, 'memory' | 'hasDisplay'>;
  /** Devices of containers and builds, and those with a probe. */
  readonly inUse: () => ReadonlySet<string>;
  /** When a probe on the device ended last, on the clock of `performance`; undefined: none has. */
  readonly probedAtMs: (uuid: string) => number | undefined;
  /** Called when the idle use of a device has changed, which is to be stored. */
  readonly onIdle: () => void;
  readonly log: Log;
}

export class MemoryWatch {
  readonly #parts: MemoryWatchParts;
  readonly #idle = new IdleMemory();
  /** When the use was read, by the device. */
  readonly #readAtMs = new Map<string, number>();
  readonly #above = new Map<string, number>();

  constructor(parts: MemoryWatchParts) {
    this.#parts = parts;
  }

  restore(stored: StoredIdle | undefined): void {
    this.#idle.restore(stored);
  }

  stored(): StoredIdle {
    return this.#idle.stored();
  }

  /** Bytes above the idle use, of a device that nobody has; undefined: not judged. */
  aboveBytes(uuid: string): number | undefined {
    const above = this.#above.get(uuid);
    return above === undefined ? undefined : above * 1024 * 1024;
  }

  /**
   * Judges by the use that a look has read.
   * @param askedAtMs - when it was asked for @param before - devices that were in use then
   */
  async looked(askedAtMs: number, before: ReadonlySet<string>): Promise<void> {
    const { table } = this.#parts;
    const isThere = (uuid: string): boolean => table.get(uuid) !== undefined;
    this.#idle.driverIs(table.driver);
    this.#idle.forget(isThere);
    for (const known of [this.#readAtMs, this.#above])
      for (const uuid of known.keys()) if (!isThere(uuid)) known.delete(uuid);
    const used = new Map(
      table
        .all()
        .flatMap(({ uuid, usedMib, health }) =>
          health.missed > 0 || usedMib === undefined ? [] : [[uuid, usedMib] as const],
        ),
    );
    await this.#judge(used, askedAtMs, before, NONE);
  }

  /** Reads the use of these devices, whose container is gone. @returns those that are not empty */
  released(uuids: readonly string[]): Promise<readonly string[]> {
    return this.#read(uuids, new Set(uuids), true);
  }

  /**
   * @param ended - devices whose container is gone, though its lease is not over
   * @param ofSlices - also where that takes long
   */
  async #read(uuids: readonly string[], ended: ReadonlySet<string>, ofSlices: boolean): Promise<readonly string[]> {
    const { table, smi, inUse } = this.#parts;
    const askedAtMs = performance.now();
    const before = inUse();
    const devices = uuids.flatMap((uuid) => table.get(uuid) ?? []);
    const used = await smi.memory(devices, LEASE_DEADLINE_MS, ofSlices);
    await this.#judge(used, askedAtMs, before, ended, LEASE_DEADLINE_MS - (performance.now() - askedAtMs));
    return uuids.filter((uuid) => table.get(uuid)?.health.occupied === true);
  }

  /**
   * Reads the use before a lease, where the last answer is not current, within five seconds. Slices of a device that is
   * in use are left to the looks.
   * @returns whether a device changed
   */
  async beforeLease(uuids: readonly string[]): Promise<boolean> {
    const { table } = this.#parts;
    const old = uuids.filter((uuid) => {
      const health = table.get(uuid)?.health;
      return health?.state === 'healthy' && performance.now() - (this.#readAtMs.get(uuid) ?? -CURRENT_MS) >= CURRENT_MS;
    });
    return old.length > 0 && (await this.#read(old, NONE, false)).length > 0;
  }

  /** Takes the present use of that device for its idle one. */
  accept(uuid: string): void {
    const usedMib = this.#parts.table.get(uuid)?.usedMib;
    if (usedMib === undefined) return;
    this.#idle.accept(uuid, usedMib);
    this.#above.set(uuid, 0);
    this.#parts.table.event(uuid, { kind: 'vacated' });
  }

  async #judge(
    used: ReadonlyMap<string, number>,
    askedAtMs: number,
    before: ReadonlySet<string>,
    ended: ReadonlySet<string>,
    leftMs = LEASE_DEADLINE_MS,
  ): Promise<void> {
    const { table, log, onIdle } = this.#parts;
    const idle = JSON.stringify(this.#idle.stored());
    const judged = [...used].map(async ([uuid, usedMib]) => {
      const device = table.get(uuid);
      if (device === undefined || !this.#isFree(device, askedAtMs, before, ended)) return [];
      this.#readAtMs.set(uuid, askedAtMs);
      const above = this.#idle.aboveMib(device, usedMib);
      return [{ uuid, usedMib, above, isOccupied: above > 0 && !(await this.#hasDisplay(device, leftMs)) }];
    });
    if (JSON.stringify(this.#idle.stored()) !== idle) onIdle();
    for (const { uuid, usedMib, above, isOccupied } of (await Promise.all(judged)).flat()) {
      const now = table.get(uuid);
      if (now === undefined || !this.#isFree(now, askedAtMs, before, ended)) continue;
      this.#above.set(uuid, isOccupied ? above : 0);
      if (isOccupied === now.health.occupied) continue;
      if (isOccupied) log.error({ gpuUuid: uuid, usedMib, aboveMib: above }, `a GPU is given to nobody: ${IN_USE}`);
      else log.info({ gpuUuid: uuid, usedMib }, 'the memory of a GPU is free again');
      table.event(uuid, isOccupied ? { kind: 'occupied', why: IN_USE } : { kind: 'vacated' });
    }
  }

  /** Whether nobody had the device, or silicon of it, from the question until now. */
  #isFree(
    { uuid, parentUuid }: Device,
    askedAtMs: number,
    before: ReadonlySet<string>,
    ended: ReadonlySet<string>,
  ): boolean {
    const { table, inUse, probedAtMs } = this.#parts;
    const now = inUse();
    // Slices have memory of their own; a whole device shares all of it with its slices.
    const shared = parentUuid === '' ? [uuid, ...table.sharers(uuid)] : [uuid];
    const isUsed = (one: string): boolean => !ended.has(one) && (now.has(one) || before.has(one));
    return !shared.some((one) => isUsed(one) || (probedAtMs(one) ?? -1) >= askedAtMs);
  }

  #hasDisplay({ uuid }: Device, leftMs: number): Promise<boolean> {
    const [whole] = this.#parts.table.wholesOf([uuid]);
    const isAsked = whole !== undefined && leftMs > 0;
    return isAsked ? this.#parts.smi.hasDisplay(whole, leftMs) : Promise.resolve(false);
  }
}
