// Return of tasks whose container is past the deadline of a drain. Asynchronous tasks go back to their queue,
// superseded, without waiting for the container's end, which may take long or never come. A synchronous task
// cannot run again, so it keeps the time that the stop leaves it. Every second the check repeats, because
// attempts of another process may be adopted later. While a machine is silent nothing changes.
import type { ContainerId } from '#shared/domain/ids.ts';
import { repeat } from '#shared/backoff.ts';
import type { Log } from '#shared/log.ts';
import type { Attempt, Attempts } from '../dispatch/attempts.ts';
import type { TaskMetrics } from '../metrics.ts';
import type { Completion } from './completion.ts';

const LOOK_EVERY_MS = 1_000;

export interface DrainCutoffParts {
  readonly attempts: Pick<Attempts, 'all' | 'ofContainer'>;
  readonly completion: Pick<Completion, 'abandon'>;
  /**
   * Whether the container's attempts must end now: its machine's drain is past its deadline, and the agent is linked.
   */
  readonly isCutOff: (containerId: ContainerId) => boolean;
  readonly metrics: Pick<TaskMetrics, 'attemptsLost'>;
  readonly log: Log;
  readonly signal: AbortSignal;
}

export class DrainCutoff {
  readonly #parts: DrainCutoffParts;

  constructor(parts: DrainCutoffParts) {
    this.#parts = parts;
  }

  start(): void {
    const { signal, attempts } = this.#parts;
    void repeat(LOOK_EVERY_MS, signal, () => this.#check(attempts.all()), this.#notYet);
  }

  /** Checks a container that was just told to stop. */
  lookAt(containerId: ContainerId): void {
    this.#check(this.#parts.attempts.ofContainer(containerId)).catch(this.#notYet);
  }

  readonly #notYet = (error: unknown): void => {
    this.#parts.log.warn({ err: error }, 'what a drain cut off is not handed back yet, trying again');
  };

  async #check(attempts: Iterable<Attempt>): Promise<void> {
    const { completion, metrics, log, isCutOff } = this.#parts;
    const cutOff = [...attempts].filter(
      ({ job, ending, containerId }) => !job.sync && ending === undefined && isCutOff(containerId),
    );
    const handedBack = cutOff.map((attempt) => {
      metrics.attemptsLost.inc({ reason: 'drained' });
      log.info({ taskId: attempt.job.taskId, containerId: attempt.containerId }, 'a drain is over, giving a task back');
      return completion.abandon(attempt);
    });
    await Promise.all(handedBack);
  }
}
