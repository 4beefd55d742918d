// Builds of images, the streams of agents that tell of them, and the removal of unused images.
import { Builds } from '../fleet/builds/builds.ts';
import type { OrderedBuild } from '../fleet/builds/builds.ts';
import { ImageCollector } from '../fleet/builds/collector.ts';
import { ImageReads } from '../fleet/builds/image-reads.ts';
import { OrderedStreams } from '../fleet/ordered-streams.ts';
import type { ClusterState } from './cluster-state.ts';
import type { Infrastructure } from './infrastructure.ts';
import type { ObjectParts } from './objects.ts';
import type { Scaling } from './scaling.ts';
import type { TaskParts } from './tasks.ts';

export interface BuildParts {
  readonly buildStreams: OrderedStreams<OrderedBuild>;
  readonly builds: Builds;
  readonly imageCollector: ImageCollector;
  readonly imageReads: ImageReads;
}

export function openBuilds(
  { db, keys, instance, registry, log, settings }: Infrastructure,
  { bus, machines, isLeader }: ClusterState,
  { objects }: Pick<ObjectParts, 'objects'>,
  { streams }: Pick<TaskParts, 'streams'>,
  { cpuWorkAllowed }: Pick<Scaling, 'cpuWorkAllowed'>,
): BuildParts {
  const buildStreams = new OrderedStreams<OrderedBuild>({ instance, bus, channel: keys.orderedBuildsChannel, streams });
  const builds = new Builds({ db, instance, machines, streams: buildStreams, objects, cpuWorkAllowed, registry, log });
  const imageCollector = new ImageCollector({ db, machines, isLeader, days: settings.LONGSHORE_IMAGE_DAYS, log });
  return { buildStreams, builds, imageCollector, imageReads: new ImageReads(db) };
}
