/**
 * Images of containers' files, beside those that are built. Such an image cannot be built again: it lasts as long as
 * its machine, or the registry, has it. Source: decision 0196.
 */
import { randomUUID } from 'node:crypto';
import { repeat } from '#shared/backoff.ts';
import { builtImageName } from '#shared/domain/built-images.ts';
import { sha256Hex } from '#shared/domain/ids.ts';
import type { InstanceId, MachineId } from '#shared/domain/ids.ts';
import { AppError, messageOf } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import type { Db } from '../../stores/store/db.ts';
import { claimBuild, deleteImage, endBuild, renewBuild } from '../../stores/store/queries/images.ts';
import type { ContainerChanges } from '../inside/changes.ts';
import type { RunningContainer } from '../inside/inside.ts';
import { MOST_IMAGES, MOST_OF_WORKSPACE } from './builds.ts';
import type { Definition } from './definition.ts';

export interface SnapshotsParts {
  readonly db: Db;
  readonly instance: InstanceId;
  readonly changes: Pick<ContainerChanges, 'change'>;
  readonly log: Log;
}

/** Time for the engine to write an image: 8 minutes of the 10 that clients wait. */
const SNAPSHOT_WITHIN_MS = 480_000;
const RENEW_EVERY_MS = 2_000;

export class Snapshots {
  readonly #parts: SnapshotsParts;
  #unwanted: (machineId: MachineId, images: readonly string[]) => void = () => undefined;

  constructor(parts: SnapshotsParts) {
    this.#parts = parts;
  }

  /** Called with an image that a machine may have got, although the snapshot failed. */
  onUnwanted(handler: (machineId: MachineId, images: readonly string[]) => void): void {
    this.#unwanted = handler;
  }

  /**
   * Makes an image of the container's files. The registry gets it later, as any image that is on one machine alone.
   * @returns its name
   * @throws AppError `too_many_images`, `container_failed`, `machine_silent`
   */
  async take(container: RunningContainer): Promise<string> {
    const { db, instance: owner, changes, log } = this.#parts;
    const { workspaceId, containerId, machineId } = container;
    const id = builtImageName(sha256Hex(JSON.stringify(['snapshot-1', workspaceId, containerId, randomUUID()])));
    const definition: Definition = {
      pythonVersion: 'python3',
      steps: [],
      contextObjectId: '',
      bases: [],
      snapshotOf: containerId,
    };
    const bounds = { most: MOST_OF_WORKSPACE, mostImages: MOST_IMAGES, forced: false };
    const claim = await claimBuild(db, { id, workspaceId, definition, owner, ...bounds });
    if (claim === 'full')
      throw new AppError(
        'too_many_images',
        `this workspace has ${MOST_IMAGES} images: delete some (\`longshore image list\`)`,
      );
    if (claim !== 'claimed') {
      // Nobody asks for it again: each has a name of its own.
      await deleteImage(db, workspaceId, id);
      throw new AppError('too_many_images', `this workspace makes ${MOST_OF_WORKSPACE} images at once: wait for one`);
    }
    const abort = new AbortController();
    const renewing = repeat(
      RENEW_EVERY_MS,
      abort.signal,
      async () => void (await renewBuild(db, id, owner, '')),
      (error) => log.warn({ err: error, image: id }, 'a snapshot was not renewed, trying again'),
    );
    try {
      const sizeBytes = await changes.change(container, { snapshot: { image: id } }, SNAPSHOT_WITHIN_MS);
      const place = { machineId, sizeBytes };
      if (!(await endBuild(db, { id, owner, state: 'READY', error: '', output: '', place })))
        throw new AppError('container_failed', 'the snapshot took too long to be recorded: make another one');
      log.info({ image: id, workspaceId, containerId, machineId, sizeBytes }, 'snapshot of a container ended');
      return id;
    } catch (error) {
      // The caller has the reason; an image that never was counts for nobody.
      await endBuild(db, { id, owner, state: 'FAILED', error: messageOf(error), output: '' });
      await deleteImage(db, workspaceId, id);
      this.#unwanted(machineId, [id]);
      throw error;
    } finally {
      abort.abort();
      await renewing;
    }
  }
}
