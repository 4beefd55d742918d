// Whether a device that nobody has is really empty: its used memory against what it uses when idle. Pure. The process
// list alone does not tell, because memory may be held with no listed process, or by a process of somebody else.
const MIB = 1024 * 1024;
/** Largest use that counts as idle before a device has been seen emptier: drivers before 510 or so count reserves. */
const MOST_IDLE_MIB = 1024;
const MOST_IDLE_PART = 0.02;
/** Room for monitoring, and for what the driver takes in persistence mode. */
const SLACK_MIB = 512;

/**
 * @param totalMib - 0: not known
 * @param lowestMib - lowest use while nobody had the device; undefined: none was seen
 */
export function idleLimitMib(totalMib: number, lowestMib: number | undefined): number {
  const most = Math.max(MOST_IDLE_MIB, totalMib * MOST_IDLE_PART);
  return Math.min(lowestMib ?? most, most) + SLACK_MIB;
}

/** As it is stored over restarts and boots: neither may turn memory of somebody else into idle use. */
export interface StoredIdle {
  /** Driver with which the lowest uses were seen. */
  readonly driver: string;
  readonly lowestMib: Readonly<Record<string, number>>;
  readonly acceptedMib: Readonly<Record<string, number>>;
}

/** The lowest use of each device while nobody had it, and what an operator has accepted. */
export class IdleMemory {
  #driver = '';
  readonly #lowest = new Map<string, number>();
  /** Use that an operator took for the idle one, by the device. */
  readonly #accepted = new Map<string, number>();

  restore(stored: StoredIdle | undefined): void {
    if (stored === undefined) return;
    this.#driver = stored.driver;
    for (const [uuid, mib] of Object.entries(stored.lowestMib)) this.#lowest.set(uuid, mib);
    for (const [uuid, mib] of Object.entries(stored.acceptedMib)) this.#accepted.set(uuid, mib);
  }

  stored(): StoredIdle {
    const [lowestMib, acceptedMib] = [this.#lowest, this.#accepted].map((known) => Object.fromEntries(known));
    return { driver: this.#driver, lowestMib: lowestMib ?? {}, acceptedMib: acceptedMib ?? {} };
  }

  /** Another driver has another idle use. An operator's word stays. */
  driverIs(driver: string): void {
    if (driver === '' || driver === this.#driver) return;
    if (this.#driver !== '') this.#lowest.clear();
    this.#driver = driver;
  }

  /** @returns MiB above the idle use; 0: the device is empty */
  aboveMib({ uuid, memoryBytes }: { readonly uuid: string; readonly memoryBytes: number }, usedMib: number): number {
    const accepted = this.#accepted.get(uuid);
    if (accepted !== undefined && usedMib <= accepted + SLACK_MIB) return 0;
    const before = this.#lowest.get(uuid);
    this.#lowest.set(uuid, Math.min(before ?? usedMib, usedMib));
    const above = usedMib - idleLimitMib(memoryBytes / MIB, this.#lowest.get(uuid));
    return Math.max(0, Math.round(above));
  }

  /** Takes this use for the idle one from now on. */
  accept(uuid: string, usedMib: number): void {
    this.#accepted.set(uuid, usedMib);
  }

  forget(isThere: (uuid: string) => boolean): void {
    for (const known of [this.#lowest, this.#accepted])
      for (const uuid of known.keys()) if (!isThere(uuid)) known.delete(uuid);
  }
}
