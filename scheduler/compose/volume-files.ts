// Files of volumes by signed addresses, and the streams to agents that they need.
import { VolumeFiles } from '../fleet/volume-files.ts';
import { VolumeStreams } from '../fleet/volume-streams.ts';
import type { ClusterState } from './cluster-state.ts';
import type { Identity } from './identity.ts';
import type { Infrastructure } from './infrastructure.ts';
import type { TaskParts } from './tasks.ts';

export interface VolumeFileParts {
  readonly volumeStreams: VolumeStreams;
  readonly volumeFiles: VolumeFiles;
}

export function openVolumeFiles(
  { db, keys, instance, clock }: Infrastructure,
  { installation }: Identity,
  { bus, machines }: ClusterState,
  { streams }: Pick<TaskParts, 'streams'>,
): VolumeFileParts {
  const volumeStreams = new VolumeStreams({ instance, bus, channel: keys.orderedStreamsChannel, streams });
  const volumeFiles = new VolumeFiles({
    db,
    machines,
    streams: volumeStreams,
    keys: () => installation.deriveKeys('volume-file'),
    clock,
  });
  return { volumeStreams, volumeFiles };
}
