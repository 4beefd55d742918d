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
  readonly paces: Pick<FlowPaces, 'take' | 'giveBack'>;
  readonly clock: Pick<Clock, 'nowMs'>;
  readonly metrics: Pick<TaskMetrics, 'throttled'>;
  readonly log: Log;
}

/** A call that its rate and its throttle let in. */
interface Paced {
  readonly flow: TaskFlow;
  /** Called when it becomes no task: its turn goes to another one. */
  readonly giveBack: () => Promise<void>;
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
  ): Promise<Paced | Exclude<Submission, { kind: 'accepted' }>> {
    const { paces, clock, metrics, log } = this.#parts;
    const { rate, skipsExcess } = config.flow ?? {};
    const { key } = flow;
    const everyMs = isPaced(config.flow) ? flow.everyMs : undefined;
    const call = { workspaceId, queue, key, rate, everyMs };
    const answer = await soon(paces.take(call, clock.nowMs())).catch((error: unknown) => {
      log.info({ err: error, queue }, 'a call is taken without its rate or throttle');
      return { kind: 'taken' as const, atMs: undefined, next: '' };
    });
    switch (answer.kind) {
      case 'taken':
        return {
          flow: answer.atMs === undefined ? flow : { ...flow, atMs: answer.atMs },
          giveBack: async () => {
            if (answer.next === '') return;
            await soon(paces.giveBack(call, answer.next)).catch((error: unknown) => {
              log.info({ err: error, queue }, 'the turn of a call that was refused may stay empty');
            });
          },
        };
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

/** @throws the error of the answer, or that Redis is slow */
const soon = <T>(answer: Promise<T>): Promise<T> => withDeadline(answer, WITHIN_MS, () => new Error('Redis is slow'));

/** Whether a task gets its turn when it is accepted. A gathered one asks when no further call of its key came. */
const isPaced = (flow: FlowConfig | undefined): boolean => flow?.throttle !== undefined && flow.debounce === undefined;
