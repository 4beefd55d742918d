// Volumes: signed addresses, calls on folders, and the streams to agents that both need.
import { CacheVolumes } from '../fleet/cache-volumes.ts';
import { VolumeCalls } from '../fleet/volume-calls.ts';
import { VolumeFiles } from '../fleet/volume-files.ts';
import { VolumeStreams } from '../fleet/volume-streams.ts';
import type { ClusterState } from './cluster-state.ts';
import type { Identity } from './identity.ts';
import type { Infrastructure } from './infrastructure.ts';
import type { TaskParts } from './tasks.ts';

export interface VolumeFileParts {
  readonly volumeStreams: VolumeStreams;
  readonly volumeFiles: VolumeFiles;
  readonly volumeCalls: VolumeCalls;
  readonly cacheVolumes: CacheVolumes;
}

export function openVolumeFiles(
  { db, keys, instance, clock, log }: Infrastructure,
  { installation, limits }: Identity,
  { bus, machines }: ClusterState,
  { streams }: Pick<TaskParts, 'streams'>,
): VolumeFileParts {
  const volumeStreams = new VolumeStreams({ instance, bus, channel: keys.orderedStreamsChannel, streams, machines });
  const volumeFiles = new VolumeFiles({
    db,
    machines,
    streams: volumeStreams,
    quotaOf: async (workspaceId) => ({
      used: machines.volumeBytes(workspaceId),
      most: (await limits.of(workspaceId)).bytes.volumes,
    }),
    keys: () => installation.deriveKeys('volume-file'),
    clock,
  });
  const cacheVolumes = new CacheVolumes({ db, machines, bus, channel: keys.deletedCachesChannel, log });
  return { volumeStreams, volumeFiles, volumeCalls: new VolumeCalls(volumeFiles), cacheVolumes };
}
