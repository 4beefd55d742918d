// The end of a volume: its files, then its record.
import { AppError } from '#shared/errors.ts';
import type { VolumeRow } from '../stores/store/queries/volumes.ts';
import type { Volumes } from '../workspaces/deployments/volumes.ts';
import type { CacheVolumes } from './cache-volumes.ts';
import type { VolumeAnswer, VolumeCalls } from './volume-calls.ts';
import type { VolumeFiles } from './volume-files.ts';

export interface VolumeDeletionParts {
  readonly volumes: Pick<Volumes, 'usersOf' | 'forget'>;
  readonly volumeFiles: Pick<VolumeFiles, 'hasFiles'>;
  readonly volumeCalls: Pick<VolumeCalls, 'ask'>;
  readonly cacheVolumes: Pick<CacheVolumes, 'deleted'>;
}

/** How many entries went, and whether all did; a long work is ended by asking again. */
export interface RemovedEntries {
  readonly removed: number;
  readonly complete: boolean;
}

/**
 * Deletes a volume with all its files. The volume itself goes with its last file.
 * @throws AppError `volume_in_use`, and those of the machine that has its files
 */
export async function deleteVolume(parts: VolumeDeletionParts, volume: VolumeRow): Promise<RemovedEntries> {
  const { volumes, volumeFiles, volumeCalls, cacheVolumes } = parts;
  const { deployments, containers } = await volumes.usersOf(volume);
  const active = deployments.filter((one) => one.active);
  if (active.length > 0 || containers > 0) throw inUse(active, containers);
  const emptied = (await volumeFiles.hasFiles(volume))
    ? removedOf(await volumeCalls.ask(volume.id, { purpose: 'remove', path: '', recursive: true }))
    : { removed: 0, complete: true };
  if (!emptied.complete) return emptied;
  if (!(await volumes.forget(volume))) throw inUse([], 1);
  if (volume.driver === 'cache') cacheVolumes.deleted(volume.id);
  return emptied;
}

/** Reads what a file server tells of a removal. */
export const removedOf = ({ removed, complete }: VolumeAnswer): RemovedEntries => ({
  removed: typeof removed === 'number' && removed >= 0 ? removed : 0,
  complete: complete === true,
});

function inUse(active: readonly { readonly name: string; readonly version: number }[], containers: number): AppError {
  const names = active.slice(0, 5).map(({ name, version }) => `${name}/v${version}`);
  const more = active.length > names.length ? ', …' : '';
  const users =
    active.length > 0 ? `deployments mount it: ${names.join(', ')}${more}` : `${containers} containers mount it`;
  return new AppError('volume_in_use', `the volume is in use (${users}): stop them first`);
}
