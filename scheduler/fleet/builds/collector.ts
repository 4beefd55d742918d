/**
 * Removes built images that nothing uses. Compares the images of a machine with the rows when its agent connects.
 * Invariant: an image that a deployment has is never removed; a row goes before the image.
 */
import type { MachineId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { Db } from '../../stores/store/db.ts';
import {
  deleteImage,
  deleteLostSnapshots,
  deleteUnusedImages,
  endLostBuilds,
  forgetPlaces,
  imagesInBuild,
  imagesOfMachine,
} from '../../stores/store/queries/images.ts';
import type { Machine } from '../machine.ts';

const MOST_REMOVED = 200;

export interface ImageCollectorParts {
  readonly db: Db;
  readonly machines: { all(): Iterable<Machine> };
  readonly days: number;
  readonly log: Log;
}

export class ImageCollector {
  readonly #parts: ImageCollectorParts;
  /** The session in which each machine's images were compared. */
  readonly #compared = new Map<MachineId, string>();
  #remove: (machineId: MachineId, images: readonly string[]) => boolean = () => false;

  constructor(parts: ImageCollectorParts) {
    this.#parts = parts;
  }

  /** Called with images that a machine removes. @returns false: the machine is not linked here, and compared later */
  onRemove(handler: (machineId: MachineId, images: readonly string[]) => boolean): void {
    this.#remove = handler;
  }

  /** Ends builds and snapshots whose process died, also where nobody asks for the image again. */
  async endLost(): Promise<void> {
    const snapshots = await deleteLostSnapshots(this.#parts.db);
    if (snapshots.length > 0) {
      this.#parts.log.info({ images: snapshots }, 'snapshots whose scheduler is gone were removed');
      this.#removeEverywhere(snapshots);
    }
    const lost = await endLostBuilds(this.#parts.db);
    if (lost.length > 0) this.#parts.log.info({ images: lost }, 'builds whose scheduler is gone have ended');
  }

  async round(): Promise<void> {
    const { db, days, log } = this.#parts;
    const removed = await deleteUnusedImages(db, days, MOST_REMOVED);
    if (removed.length === 0) return;
    log.info({ images: removed.length }, 'unused images removed');
    this.#removeEverywhere(removed);
  }

  /** Deletes an image. @returns false: the workspace has none of that name, or a deployment uses it */
  async delete(workspaceId: WorkspaceId, imageId: string): Promise<boolean> {
    if (!(await deleteImage(this.#parts.db, workspaceId, imageId))) return false;
    this.#removeEverywhere([imageId]);
    return true;
  }

  /** A machine whose agent has connected tells which images are there. */
  machineChanged({ row, sessionId, inventory, health }: Machine): void {
    if (sessionId === undefined || inventory === null || health !== 'READY' || !inventory.builds) return;
    if (this.#compared.get(row.id) === sessionId) return;
    this.#compared.set(row.id, sessionId);
    this.#compare(row.id, inventory.builtImages).catch((error: unknown) => {
      this.#compared.delete(row.id);
      this.#parts.log.warn({ err: error, machineId: row.id }, 'images of a machine were not compared');
    });
  }

  async #compare(machineId: MachineId, present: readonly string[]): Promise<void> {
    const { db, log } = this.#parts;
    const known = new Set(await imagesOfMachine(db, machineId));
    const here = new Set(present);
    const gone = [...known].filter((image) => !here.has(image));
    // A build that ends at this moment has the image before its row says so.
    const inBuild = new Set(await imagesInBuild(db, [...here, ...gone]));
    const lost = gone.filter((image) => !inBuild.has(image));
    const unwanted = [...here].filter((image) => !known.has(image) && !inBuild.has(image));
    if (lost.length > 0) {
      await forgetPlaces(db, machineId, lost);
      log.warn({ machineId, images: lost.length }, 'built images are gone from a machine');
    }
    if (unwanted.length > 0) this.#remove(machineId, unwanted);
  }

  /** Machines of other replicas remove them when their agents connect again. */
  #removeEverywhere(images: readonly string[]): void {
    for (const { row, sessionId } of this.#parts.machines.all())
      if (sessionId !== undefined) this.#remove(row.id, images);
  }
}
