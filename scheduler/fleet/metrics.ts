import type { Registry } from '#shared/metrics.ts';
import {
  bounded,
  Counter,
  FAST_BUCKETS,
  fromZero,
  Gauge,
  Histogram,
  LabelValues,
  SLOW_BUCKETS,
} from '#shared/metrics.ts';

/** Bounds on the pools and GPU models that have series of their own: people and hardware name them. */
const MOST_POOLS = 100;
const MOST_GPU_MODELS = 100;
/** Bound on message kinds and reasons: these are ours, but a newer agent may know more of them. */
const MOST_WORDS = 50;
/** Reasons for the end of a control stream that an alert counts separately, or that a bad network causes. */
const WATCHED_ENDS = ['contested', 'ping_unanswered', 'stream_ended', 'stream_error', 'replica_died', 'other_host'];

/** Metrics of placements, links and agents' messages. */
export class FleetMetrics {
  /** The bound that all metrics with the label share. */
  readonly pools = new LabelValues(MOST_POOLS);
  readonly gpuModels = new LabelValues(MOST_GPU_MODELS);
  /** Pools shown so far; `pools` bounds their number. */
  readonly #shown = new Set<string>();
  readonly sessions: Gauge<'protocol'>;
  readonly messages: Counter<'type' | 'result'>;
  readonly joins: Counter<'result'>;
  readonly disconnects: Counter<'pool' | 'reason'>;
  readonly placements: Counter<'pool' | 'gpu_model' | 'result'>;
  readonly placementDuration: Histogram<'gpu_model'>;
  readonly placementWait: Histogram<'gpu_model' | 'result'>;
  readonly unschedulable: Gauge<'reason'>;
  readonly preemptions: Counter<'reason'>;
  readonly gpuLeaseFaults: Counter<'kind'>;
  readonly ledgerFaults: Counter;
  readonly guard: Gauge<'pool'>;
  readonly ping: Histogram;
  readonly containerCalls: Counter<'result'>;

  constructor(registry: Registry) {
    const registers = [registry];
    const name = (tail: string): string => `longshore_scheduler_${tail}`;
    const words = (): LabelValues => new LabelValues(MOST_WORDS);
    const { pools: pool, gpuModels: gpu_model } = this;
    this.sessions = new Gauge({
      name: name('agent_sessions'),
      help: 'Control streams open here.',
      labelNames: ['protocol'],
      registers,
    });
    this.preemptions = new Counter({
      name: name('preemptions_total'),
      help: 'Interruptible containers that were asked to leave for others: for a guarantee, a fair share, or on a reserved machine.',
      labelNames: ['reason'],
      registers,
    });
    fromZero(
      this.preemptions,
      ['guarantee', 'fair_share', 'reservation'].map((reason) => ({ reason })),
    );
    this.ping = new Histogram({
      name: name('agent_ping_duration_seconds'),
      help: 'From a ping on a control stream to its answer.',
      buckets: FAST_BUCKETS,
      registers,
    });
    this.containerCalls = new Counter({
      name: name('container_calls_total'),
      help: 'Calls of containers through their sockets, when they end: answered (whatever the answer was), refused (not theirs to make), busy (too many under way), cut_off (either side went away), failed.',
      labelNames: ['result'],
      registers,
    });
    this.messages = bounded(
      new Counter({
        name: name('agent_messages_total'),
        help: 'Messages from agents, by kind and what became of them.',
        labelNames: ['type', 'result'],
        registers,
      }),
      { type: words() },
    );
    this.joins = new Counter({
      name: name('join_attempts_total'),
      help: 'Join tokens presented.',
      labelNames: ['result'],
      registers,
    });
    fromZero(
      this.joins,
      ['joined', 'enrolled', 'replayed', 'expired', 'revoked', 'full', 'unknown'].map((result) => ({ result })),
    );
    this.disconnects = bounded(
      new Counter({
        name: name('machine_disconnects_total'),
        help: 'Control streams that ended.',
        labelNames: ['pool', 'reason'],
        registers,
      }),
      { pool, reason: words() },
    );
    this.placements = bounded(
      new Counter({
        name: name('placements_total'),
        help: 'Placement decisions carried out or failed.',
        labelNames: ['pool', 'gpu_model', 'result'],
        registers,
      }),
      { pool, gpu_model },
    );
    this.placementDuration = bounded(
      new Histogram({
        name: name('placement_duration_seconds'),
        help: 'One placement decision with its write.',
        labelNames: ['gpu_model'],
        buckets: FAST_BUCKETS,
        registers,
      }),
      { gpu_model },
    );
    this.placementWait = bounded(
      new Histogram({
        name: name('placement_wait_seconds'),
        help: 'From a container being wanted to its machine.',
        labelNames: ['gpu_model', 'result'],
        buckets: SLOW_BUCKETS,
        registers,
      }),
      { gpu_model },
    );
    this.unschedulable = bounded(
      new Gauge({
        name: name('unschedulable_requests'),
        help: 'Containers no machine takes now, by the commonest reason; shown by the leader.',
        labelNames: ['reason'],
        registers,
      }),
      { reason: words() },
    );
    this.gpuLeaseFaults = new Counter({
      name: name('gpu_lease_faults_total'),
      help: 'Differences found, and repaired, between leased GPUs and the rows of containers: missing, left_over, leased_twice.',
      labelNames: ['kind'],
      registers,
    });
    fromZero(
      this.gpuLeaseFaults,
      ['missing', 'left_over', 'leased_twice'].map((kind) => ({ kind })),
    );
    this.ledgerFaults = new Counter({
      name: name('ledger_faults_total'),
      help: 'Containers whose resources placement counted otherwise than their rows say; corrected every 30 s.',
      registers,
    });
    this.guard = bounded(
      new Gauge({
        name: name('mass_disconnect_guard_active'),
        help: '1 while so many machines of a pool went silent together that none of them is given up; shown by the leader.',
        labelNames: ['pool'],
        registers,
      }),
      { pool },
    );
  }
  /** Shows a pool's counters at 0 as soon as the pool exists. */
  showPool(name: string): void {
    const pool = this.pools.of(name);
    if (this.#shown.has(pool)) return;
    this.#shown.add(pool);
    fromZero(
      this.disconnects,
      WATCHED_ENDS.map((reason) => ({ pool, reason })),
    );
  }
}
