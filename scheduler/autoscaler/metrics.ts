import type { Registry } from '#shared/metrics.ts';
import { Counter, Gauge } from '#shared/metrics.ts';

/** What scaling decided. `stub_type` is a kind of the interface. */
export class AutoscalerMetrics {
  readonly events: Counter<'direction' | 'reason'>;
  readonly samples: Counter<'result'>;
  readonly live: Gauge<'stub_type' | 'state'>;
  readonly degraded: Gauge;

  constructor(registry: Registry) {
    const registers = [registry];
    this.events = new Counter({
      name: 'longshore_autoscaler_scale_events_total',
      help: 'Containers asked for (up) or told to go (down), and why.',
      labelNames: ['direction', 'reason'],
      registers,
    });
    this.samples = new Counter({
      name: 'longshore_autoscaler_samples_total',
      help: 'Queue depths read.',
      labelNames: ['result'],
      registers,
    });
    this.live = new Gauge({
      name: 'longshore_autoscaler_live_containers',
      help: 'Containers that are not terminal, by state.',
      labelNames: ['stub_type', 'state'],
      registers,
    });
    this.degraded = new Gauge({
      name: 'longshore_autoscaler_degraded_deployments',
      help: 'Queues whose breaker is open.',
      registers,
    });
  }
}
