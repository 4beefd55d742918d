// Builds of images, the streams of agents that tell of them, and the removal of unused images.
import { Builds } from '../fleet/builds/builds.ts';
import type { OrderedBuild } from '../fleet/builds/builds.ts';
import { ImageCollector } from '../fleet/builds/collector.ts';
import { ImageReads } from '../fleet/builds/image-reads.ts';
import { Pushes } from '../fleet/builds/pushes.ts';
import { Rebuilds } from '../fleet/builds/rebuilds.ts';
import { OrderedStreams } from '../fleet/ordered-streams.ts';
import type { ClusterState } from './cluster-state.ts';
import type { Infrastructure } from './infrastructure.ts';
import type { ObjectParts } from './objects.ts';
import type { RegistryParts } from './registry.ts';
import type { Scaling } from './scaling.ts';
import type { TaskParts } from './tasks.ts';

export interface BuildParts {
  readonly buildStreams: OrderedStreams<OrderedBuild>;
  readonly builds: Builds;
  readonly rebuilds: Rebuilds;
  /** Absent: no registry has built images. */
  readonly pushes?: Pushes;
  readonly imageCollector: ImageCollector;
  readonly imageReads: ImageReads;
}

export function openBuilds(
  { db, keys, instance, clock, registry, log, settings }: Infrastructure,
  { bus, machines, isLeader, feasibility }: ClusterState,
  { objects }: Pick<ObjectParts, 'objects'>,
  { streams }: Pick<TaskParts, 'streams'>,
  { cpuWorkAllowed }: Pick<Scaling, 'cpuWorkAllowed'>,
  { builtRegistry, registryMetrics: metrics }: RegistryParts,
): BuildParts {
  const buildStreams = new OrderedStreams<OrderedBuild>({
    instance,
    bus,
    channel: keys.orderedBuildsChannel,
    streams,
    machines,
  });
  const pushes =
    builtRegistry && new Pushes({ ...builtRegistry, db, machines, streams: buildStreams, isLeader, metrics, log });
  const builds = new Builds({
    db,
    instance,
    machines,
    streams: buildStreams,
    objects,
    cpuWorkAllowed,
    pythonProblem: (work, pythonVersion) =>
      feasibility.pythonProblem({ ...work, gpuCount: work.gpu.length === 0 ? 0 : 1 }, pythonVersion),
    registry,
    pushes,
    log,
  });
  const rebuilds = new Rebuilds({
    db,
    machines,
    builds,
    cpuWorkAllowed,
    hasRegistry: builtRegistry !== undefined,
    isLeader,
    nowMs: () => clock.monotonicMs(),
    metrics,
    log,
  });
  const imageCollector = new ImageCollector({ db, machines, isLeader, days: settings.LONGSHORE_IMAGE_DAYS, log });
  const imageReads = new ImageReads(db);
  return { buildStreams, builds, rebuilds, imageCollector, imageReads, ...(pushes === undefined ? {} : { pushes }) };
}
