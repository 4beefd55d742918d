import type { Registry } from '#shared/metrics.ts';
import { Counter, fromZero, Histogram, SLOW_BUCKETS } from '#shared/metrics.ts';
import { MODEL_TYPES } from '#shared/domain/models.ts';

const CLASSES = ['2xx', '4xx', '5xx', 'left'] as const;

/** Metrics of calls to models at this replica. */
export class InferenceMetrics {
  readonly requests: Counter<'type' | 'status'>;
  readonly firstToken: Histogram<'type'>;
  readonly tokens: Counter<'direction'>;

  constructor(registry: Registry) {
    const registers = [registry];
    this.requests = new Counter({
      name: 'longshore_scheduler_inference_requests_total',
      help: 'Calls of models below /v1 that ended, by the type of the model and the class of the status; left: the caller went away. A failure within a stream counts as 5xx.',
      labelNames: ['type', 'status'],
      registers,
    });
    fromZero(
      this.requests,
      MODEL_TYPES.flatMap((type) => CLASSES.map((status) => ({ type, status }))),
    );
    this.firstToken = new Histogram({
      name: 'longshore_scheduler_inference_first_token_seconds',
      help: 'From a call of a model to the first frame of its stream, or to its whole answer.',
      labelNames: ['type'],
      buckets: SLOW_BUCKETS,
      registers,
    });
    this.tokens = new Counter({
      name: 'longshore_scheduler_inference_tokens_total',
      help: 'Tokens of calls of models that ended: in (prompts), out (answers).',
      labelNames: ['direction'],
      registers,
    });
    fromZero(this.tokens, [{ direction: 'in' }, { direction: 'out' }]);
  }
}

export const classOf = (status: number): (typeof CLASSES)[number] =>
  status < 400 ? '2xx' : status < 500 ? '4xx' : '5xx';
