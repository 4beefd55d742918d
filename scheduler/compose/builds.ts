// Builds of images, the streams of agents that tell of them, and the removal of unused images.
import type { Part } from '#shared/lifecycle.ts';
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

const HOUR_MS = 3_600_000;
const MINUTE_MS = 60_000;

export interface BuildParts {
  readonly buildStreams: OrderedStreams<OrderedBuild>;
  readonly builds: Builds;
  readonly rebuilds: Rebuilds;
  readonly imageCollector: ImageCollector;
  readonly imageReads: ImageReads;
  /** Loops of the leader: unused images, lost builds, pushes. */
  readonly imageUpkeep: readonly Part[];
}

export function openBuilds(
  { db, keys, instance, clock, registry, log, settings }: Infrastructure,
  { bus, machines, isLeader, leaderLoop, feasibility }: ClusterState,
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
  const pushes = builtRegistry && new Pushes({ ...builtRegistry, db, machines, streams: buildStreams, metrics, log });
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
  const imageCollector = new ImageCollector({ db, machines, days: settings.LONGSHORE_IMAGE_DAYS, log });
  const imageReads = new ImageReads(db);
  const imageUpkeep = [
    leaderLoop({
      name: 'image collector',
      everyMs: HOUR_MS,
      round: () => imageCollector.round(),
      failed: 'unused images were not removed, trying again',
    }),
    // A row that stays in BUILDING keeps its image from being deleted.
    leaderLoop({
      name: 'lost builds',
      everyMs: MINUTE_MS,
      round: () => imageCollector.endLost(),
      failed: 'builds whose scheduler is gone were not ended, trying again',
    }),
    ...(pushes === undefined
      ? []
      : [
          leaderLoop({
            name: 'image pushes',
            everyMs: MINUTE_MS,
            round: (signal) => pushes.round(signal),
            failed: 'images were not pushed, trying again',
          }),
        ]),
  ];
  return { buildStreams, builds, rebuilds, imageCollector, imageReads, imageUpkeep };
}
