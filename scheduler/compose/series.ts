// Samples of containers and pools, which the series of metrics are made of.
import { ContainerSamples } from '../fleet/series/container-samples.ts';
import { SeriesMetrics } from '../fleet/series/metrics.ts';
import { PoolSamples } from '../fleet/series/pool-samples.ts';
import { SampleEvents } from '../fleet/series/sample-events.ts';
import type { ClusterState } from './cluster-state.ts';
import type { DeploymentParts } from './deployments.ts';
import type { Events } from './events.ts';
import type { Infrastructure } from './infrastructure.ts';

export interface SeriesParts {
  readonly containerSamples: ContainerSamples;
  readonly poolSamples: PoolSamples;
  readonly sampleEvents: SampleEvents;
}

export function openSeries(
  { db, general, keys, instance, clock, log, registry }: Infrastructure,
  { containers, machines, presence, isLeader, isAlone }: ClusterState,
  { passing }: Pick<Events, 'passing'>,
  { directory }: Pick<DeploymentParts, 'directory'>,
): SeriesParts {
  return {
    sampleEvents: new SampleEvents(passing, (id) => directory.stub(id), log),
    containerSamples: new ContainerSamples({ db, containers, clock, metrics: new SeriesMetrics(registry), log }),
    poolSamples: new PoolSamples({
      db,
      machines,
      isLeader,
      redis: isAlone ? undefined : general,
      instance,
      keyOf: keys.poolUse,
      replicas: () => presence.seen(),
      clock,
      log,
    }),
  };
}
