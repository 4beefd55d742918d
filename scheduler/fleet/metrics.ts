import type { Registry } from '#shared/metrics.ts';
import { Counter, FAST_BUCKETS, Gauge, Histogram, SLOW_BUCKETS } from '#shared/metrics.ts';

/** Machines, placements and the messages of agents. `pool` is bounded by the pools an operator made. */
export class FleetMetrics {
  readonly machines: Gauge<'pool' | 'health' | 'intent'>;
  readonly sessions: Gauge<'protocol'>;
  readonly messages: Counter<'type' | 'result'>;
  readonly joins: Counter<'result'>;
  readonly disconnects: Counter<'pool' | 'reason'>;
  readonly placements: Counter<'pool' | 'gpu_model' | 'result'>;
  readonly placementDuration: Histogram<'gpu_model'>;
  readonly placementWait: Histogram<'gpu_model' | 'result'>;
  readonly unschedulable: Gauge<'reason'>;

  constructor(registry: Registry) {
    const registers = [registry];
    const name = (tail: string): string => `longshore_scheduler_${tail}`;
    this.machines = new Gauge({
      name: name('machines'),
      help: 'Machines by what they are and what the operator wants of them.',
      labelNames: ['pool', 'health', 'intent'],
      registers,
    });
    this.sessions = new Gauge({
      name: name('agent_sessions'),
      help: 'Control streams open here.',
      labelNames: ['protocol'],
      registers,
    });
    this.messages = new Counter({
      name: name('agent_messages_total'),
      help: 'Messages from agents, by kind and what became of them.',
      labelNames: ['type', 'result'],
      registers,
    });
    this.joins = new Counter({
      name: name('join_attempts_total'),
      help: 'Join tokens presented.',
      labelNames: ['result'],
      registers,
    });
    this.disconnects = new Counter({
      name: name('machine_disconnects_total'),
      help: 'Control streams that ended.',
      labelNames: ['pool', 'reason'],
      registers,
    });
    this.placements = new Counter({
      name: name('placements_total'),
      help: 'Placement decisions carried out or failed.',
      labelNames: ['pool', 'gpu_model', 'result'],
      registers,
    });
    this.placementDuration = new Histogram({
      name: name('placement_duration_seconds'),
      help: 'One placement decision with its write.',
      labelNames: ['gpu_model'],
      buckets: FAST_BUCKETS,
      registers,
    });
    this.placementWait = new Histogram({
      name: name('placement_wait_seconds'),
      help: 'From a container being wanted to its machine.',
      labelNames: ['gpu_model', 'result'],
      buckets: SLOW_BUCKETS,
      registers,
    });
    this.unschedulable = new Gauge({
      name: name('unschedulable_requests'),
      help: 'Containers no machine takes now, by the commonest reason.',
      labelNames: ['reason'],
      registers,
    });
  }
}
