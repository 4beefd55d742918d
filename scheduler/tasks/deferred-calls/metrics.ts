import type { Registry } from '#shared/metrics.ts';
import { Counter, Gauge, fromZero } from '#shared/metrics.ts';
import { FINAL_TASK_STATUSES } from '#shared/domain/status.ts';

export const REFUSALS = ['calls', 'bytes'] as const;
export const RETURNS = ['no_room', 'lost', 'stopping'] as const;

/** Metrics of calls of models that are answered later. */
export class DeferredCallMetrics {
  readonly accepted: Counter;
  readonly refused: Counter<'bound'>;
  readonly returned: Counter<'cause'>;
  readonly ended: Counter<'status'>;
  readonly waiting: Gauge;
  readonly running: Gauge;

  constructor(registry: Registry) {
    const registers = [registry];
    this.accepted = new Counter({
      name: 'longshore_scheduler_deferred_calls_accepted_total',
      help: 'Calls of models that were accepted to be answered later (Prefer: respond-async).',
      registers,
    });
    this.refused = new Counter({
      name: 'longshore_scheduler_deferred_calls_refused_total',
      help: 'Calls to be answered later that were refused, by the bound of their workspace that was reached.',
      labelNames: ['bound'],
      registers,
    });
    fromZero(
      this.refused,
      REFUSALS.map((bound) => ({ bound })),
    );
    this.returned = new Counter({
      name: 'longshore_scheduler_deferred_calls_returned_total',
      help: 'Tries of calls that wait again: the model had no room, the replica was lost, or it stopped.',
      labelNames: ['cause'],
      registers,
    });
    fromZero(
      this.returned,
      RETURNS.map((cause) => ({ cause })),
    );
    this.ended = new Counter({
      name: 'longshore_scheduler_deferred_calls_ended_total',
      help: 'Calls to be answered later that ended, by the status of their task.',
      labelNames: ['status'],
      registers,
    });
    fromZero(
      this.ended,
      FINAL_TASK_STATUSES.map((status) => ({ status })),
    );
    this.waiting = new Gauge({
      name: 'longshore_scheduler_deferred_calls_waiting',
      help: 'Calls to be answered later that wait, as the leader counted them last.',
      registers,
    });
    this.running = new Gauge({
      name: 'longshore_scheduler_deferred_calls_running',
      help: 'Calls to be answered later that this replica carries out.',
      registers,
    });
  }
}
