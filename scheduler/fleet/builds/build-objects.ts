// Objects with files of builds that machines were ordered: such a machine may fetch the object for a while.
import type { MachineId } from '#shared/domain/ids.ts';

/** Longest wait of a build for its turn, and for its base images. */
const KEPT_MS = 4 * 3_600_000;
const MOST = 2000;

export class BuildObjects {
  readonly #until = new Map<string, number>();

  add(machineId: MachineId, objectId: string): void {
    const key = `${machineId} ${objectId}`;
    this.#until.delete(key);
    this.#until.set(key, Date.now() + KEPT_MS);
    const [oldest] = this.#until.keys();
    if (this.#until.size > MOST && oldest !== undefined) this.#until.delete(oldest);
  }

  has(machineId: MachineId, objectId: string): boolean {
    return (this.#until.get(`${machineId} ${objectId}`) ?? 0) > Date.now();
  }
}
