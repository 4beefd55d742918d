import type { Registry } from '#shared/metrics.ts';
import { bounded, Counter, fromZero, Gauge, LabelValues, Tally } from '#shared/metrics.ts';
import type { ContainerRegistry } from '../../fleet/containers/container-registry.ts';

const MOST_REASONS = 50;

/** Metrics of scaling decisions. `stub_type` is a kind of the interface. */
export class AutoscalerMetrics {
  readonly events: Counter<'direction' | 'reason'>;
  readonly samples: Counter<'result'>;
  readonly examined: Counter;

  constructor(registry: Registry) {
    const registers = [registry];
    this.events = bounded(
      new Counter({
        name: 'longshore_autoscaler_scale_events_total',
        help: 'Containers asked for (up) or told to go (down), and why.',
        labelNames: ['direction', 'reason'],
        registers,
      }),
      { reason: new LabelValues(MOST_REASONS) },
    );
    this.samples = new Counter({
      name: 'longshore_autoscaler_samples_total',
      help: 'Rounds of reading queue depths.',
      labelNames: ['result'],
      registers,
    });
    fromZero(this.samples, [{ result: 'ok' }, { result: 'stale' }, { result: 'failed' }]);
    this.examined = new Counter({
      name: 'longshore_autoscaler_examined_total',
      help: 'Queues that were looked at: those that changed, and every 30 s those that have containers or always want some.',
      registers,
    });
  }
}

export interface ScaleGaugesParts {
  readonly registry: Registry;
  readonly autoscaler: {
    /** Containers that each queue asks for. */
    wanted(): Iterable<{ readonly kind: string; readonly count: number }>;
    /** Number of queues whose breaker is open. */
    readonly degraded: number;
  };
  readonly containers: Pick<ContainerRegistry, 'all'>;
  readonly isLeader: () => boolean;
}

/**
 * Registers gauges that are counted from memory at each scrape. Only
 * the leader shows them, so that a sum over all replicas is right.
 */
export function registerScaleGauges({ registry, autoscaler, containers, isLeader }: ScaleGaugesParts): void {
  const registers = [registry];
  new Gauge({
    name: 'longshore_autoscaler_desired_containers',
    help: 'Containers that the queues ask for, within their bounds; shown by the leader.',
    labelNames: ['stub_type'],
    registers,
    collect() {
      const tally = new Tally('stub_type');
      for (const { kind, count } of isLeader() ? autoscaler.wanted() : []) tally.add(count, kind);
      tally.writeTo(this);
    },
  });
  new Gauge({
    name: 'longshore_autoscaler_live_containers',
    help: 'Containers that are not terminal, by state; shown by the leader.',
    labelNames: ['stub_type', 'state'],
    registers,
    collect() {
      const tally = new Tally('stub_type', 'state');
      for (const { spec, row } of isLeader() ? containers.all() : []) tally.add(1, spec.kind, row.state);
      tally.writeTo(this);
    },
  });
  new Gauge({
    name: 'longshore_autoscaler_degraded_deployments',
    help: 'Queues whose breaker is open; shown by the leader.',
    registers,
    collect() {
      this.set(isLeader() ? autoscaler.degraded : 0);
    },
  });
}
