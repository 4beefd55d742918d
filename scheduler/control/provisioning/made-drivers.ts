// Drivers of the GPUs that a pool's provider makes, as its machines tell them. A provider's order names no driver, so
// the machine that was made last says what the next one will have. Without that a pool with an old image of its
// machines would make one after another for containers that need a newer driver.
import type { Room } from './facts.ts';

/** Time for which the driver is remembered without such a machine: the provider may have a new image. */
export const REMEMBERED_MS = 24 * 3_600_000;

export class MadeDrivers {
  readonly #byPool = new Map<number, { readonly driver: string; readonly seenAtMs: number }>();

  /** Driver of the machines that the pool gets; null: not known. @param rooms - of the pool */
  of(poolId: number, rooms: readonly Room[], nowMs: number): string | null {
    const newest = rooms
      .filter(
        ({ isOrderOfToday, total: { gpuDriver = '' } }) => isOrderOfToday && gpuDriver !== null && gpuDriver !== '',
      )
      .toSorted((a, b) => b.createdAtMs - a.createdAtMs)[0];
    const driver = newest?.total.gpuDriver ?? null;
    if (driver !== null) this.#byPool.set(poolId, { driver, seenAtMs: nowMs });
    const known = this.#byPool.get(poolId);
    if (known === undefined) return null;
    if (nowMs < known.seenAtMs + REMEMBERED_MS) return known.driver;
    this.#byPool.delete(poolId);
    return null;
  }

  /** The pool changed, or is gone. */
  delete(poolId: number): void {
    this.#byPool.delete(poolId);
  }

  clear(): void {
    this.#byPool.clear();
  }
}
