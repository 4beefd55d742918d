// Samples of containers and pools, which the series of metrics are made of.
import { ContainerSamples } from '../fleet/series/container-samples.ts';
import { SeriesMetrics } from '../fleet/series/metrics.ts';
import { PoolSamples } from '../fleet/series/pool-samples.ts';
import type { ClusterState } from './cluster-state.ts';
import type { Infrastructure } from './infrastructure.ts';

export interface SeriesParts {
  readonly containerSamples: ContainerSamples;
  readonly poolSamples: PoolSamples;
}

export function openSeries(
  { db, general, keys, instance, clock, log, registry }: Infrastructure,
  { containers, machines, presence, isLeader, isAlone }: ClusterState,
): SeriesParts {
  return {
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
