/**
 * Has machines remove the directories of cache volumes that were deleted. An agent tells which it has: to each new
 * session, when they change, and every ten minutes. Those without a row leave. So a machine that was away, or a
 * message that was lost, needs no record. Invariant: only volumes without a row are named to an agent.
 */
import type { MachineId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { Bus } from '../cluster/bus.ts';
import type { Queryable } from '../stores/store/db.ts';
import { volumesWithoutRow } from '../stores/store/queries/volumes.ts';
import type { Machine } from './machine.ts';
import { cachesHere } from './machine.ts';

export interface CacheVolumesParts {
  readonly db: Queryable;
  readonly machines: { all(): Iterable<Machine> };
  readonly bus: Pick<Bus, 'on' | 'publish'>;
  readonly channel: string;
  readonly log: Log;
}

export class CacheVolumes {
  readonly #parts: CacheVolumesParts;
  #remove: (machineId: MachineId, volumeIds: readonly string[]) => boolean = () => false;

  constructor(parts: CacheVolumesParts) {
    this.#parts = parts;
    parts.bus.on(parts.channel, (message) => {
      if (typeof message === 'string') this.#removeHere(message);
    });
  }

  /** Called with volumes that a machine removes. @returns false: the machine is not linked here */
  onRemove(handler: (machineId: MachineId, volumeIds: readonly string[]) => boolean): void {
    this.#remove = handler;
  }

  /** A volume was deleted: machines that are linked to any replica remove it now, the others when they come back. */
  deleted(volumeId: string): void {
    this.#removeHere(volumeId);
    this.#parts.bus.publish(this.#parts.channel, volumeId);
  }

  /** Takes in which cache volumes a machine has. */
  async told(machineId: MachineId, volumeIds: readonly string[]): Promise<void> {
    const { db, log } = this.#parts;
    if (volumeIds.length === 0) return;
    try {
      const gone = await volumesWithoutRow(db, volumeIds);
      if (gone.length === 0) return;
      log.info({ machineId, volumes: gone.length }, 'deleted cache volumes leave a machine');
      this.#remove(machineId, gone);
    } catch (error) {
      log.warn({ err: error, machineId }, 'cache volumes of a machine were not compared');
    }
  }

  #removeHere(volumeId: string): void {
    for (const machine of this.#parts.machines.all()) {
      if (machine.sessionId === undefined) continue;
      if (cachesHere(machine).some((cache) => cache.volumeId === volumeId)) this.#remove(machine.row.id, [volumeId]);
    }
  }
}
