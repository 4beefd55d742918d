// Rates and throttles of a call, asked before anything of it is kept. Invariant: a Redis that does not answer refuses
// no call. A task without its turn asks for it when it is fetched.
import { withDeadline } from '#shared/backoff.ts';
import type { Clock } from '#shared/clock.ts';
import type { Log } from '#shared/log.ts';
import type { TaskFlow } from '../../domain/flow.ts';
import type { FlowConfig } from '../../domain/flow-settings.ts';
import type { Target } from '../../domain/stub-config.ts';
import type { FlowPaces } from '../../stores/queues/flow-paces.ts';
import { MOST_PACES } from '../../stores/queues/flow-paces.ts';
import type { TaskMetrics } from '../metrics.ts';
import type { Submission } from './calls.ts';

const WITHIN_MS = 250;

export interface FlowAdmissionParts {
  readonly paces: Pick<FlowPaces, 'take'>;
  readonly clock: Pick<Clock, 'nowMs'>;
  readonly metrics: Pick<TaskMetrics, 'throttled'>;
  readonly log: Log;
}

export class FlowAdmission {
  readonly #parts: FlowAdmissionParts;

  constructor(parts: FlowAdmissionParts) {
    this.#parts = parts;
  }

  /** Whether {@link admit} has anything to ask. */
  static asks({ config }: Target): boolean {
    return config.flow?.rate !== undefined || isPaced(config.flow);
  }

  /** @returns flow control of the task, with its turn; else why it is not taken */
  async admit(
    { workspaceId, queue, config }: Target,
    flow: TaskFlow,
  ): Promise<{ readonly flow: TaskFlow } | Exclude<Submission, { kind: 'accepted' }>> {
    const { paces, clock, metrics, log } = this.#parts;
    const { rate, skipsExcess } = config.flow ?? {};
    const { key } = flow;
    const everyMs = isPaced(config.flow) ? flow.everyMs : undefined;
    const asked = paces.take({ workspaceId, queue, key, rate, everyMs }, clock.nowMs());
    const answer = await withDeadline(asked, WITHIN_MS, () => new Error('Redis is slow')).catch((error: unknown) => {
      log.info({ err: error, queue }, 'a call is taken without its rate or throttle');
      return { kind: 'taken' as const, atMs: undefined };
    });
    switch (answer.kind) {
      case 'taken':
        return { flow: answer.atMs === undefined ? flow : { ...flow, atMs: answer.atMs } };
      case 'too_often':
        if (skipsExcess === true) return { kind: 'skipped', by: 'rate', taskId: null };
        metrics.throttled.inc({ resource: 'flow_rate' });
        return { kind: 'flow_rate_exceeded', key, retryAfterSeconds: Math.max(1, Math.ceil(answer.afterMs / 1000)) };
      case 'too_many_keys':
        metrics.throttled.inc({ resource: 'flow_keys' });
        return { kind: 'too_many_flow_keys', most: MOST_PACES };
    }
  }
}

/** Whether a task gets its turn when it is accepted. A gathered one asks when no further call of its key came. */
const isPaced = (flow: FlowConfig | undefined): boolean => flow?.throttle !== undefined && flow.debounce === undefined;
