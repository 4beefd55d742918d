// Catch-up of a replica between the leader's lease and its first decision:
// the last leader may have died between writing a row and announcing it.
import type { MachineId } from '#shared/domain/ids.ts';
import { Listeners } from '#shared/listeners.ts';
import type { ContainerRegistry } from '../fleet/containers/container-registry.ts';
import type { Machines } from '../fleet/machines.ts';
import type { Queryable } from '../stores/store/db.ts';
import { raiseFence } from '../stores/store/queries/leadership.ts';

export interface TakeOverParts {
  readonly db: Queryable;
  readonly containers: Pick<ContainerRegistry, 'readMissed'>;
  readonly machines: Pick<Machines, 'readMissed'>;
}

export class TakeOver {
  readonly #parts: TakeOverParts;
  readonly #superseded = new Listeners<[MachineId]>();

  constructor(parts: TakeOverParts) {
    this.#parts = parts;
  }

  /** Told when a machine linked here has a newer session elsewhere. */
  onSuperseded(listener: (id: MachineId) => void): void {
    this.#superseded.add(listener);
  }

  /**
   * Makes the store refuse the writes of earlier leaders, then reads all their writes that were not heard of
   * here. So every placement is counted, no device is given away twice, and no container is started twice.
   * @returns the highest number that ever led; above `fence`: this replica does not lead, and nothing was read
   * @throws the store's error: this replica must not lead
   */
  async raise(fence: number): Promise<number> {
    const { db, machines, containers } = this.#parts;
    const highest = await raiseFence(db, fence);
    if (highest !== fence) return highest;
    // Machines are read first: containers on them are judged by them.
    await machines.readMissed((id) => this.#superseded.tell(id));
    await containers.readMissed();
    return highest;
  }
}
