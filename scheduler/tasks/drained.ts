// What a drain cuts off: at its deadline asynchronous tasks go back to their queue, superseded, before the container's end is waited for, which may take long or never come. A synchronous task cannot run again,
// so it keeps what the stop leaves it. Looked for again every second: what another process of ours had sent is adopted later, and while a machine does not talk nothing moves.
import type { ContainerId } from '#shared/domain/ids.ts';
import { repeat } from '#shared/backoff.ts';
import type { Attempt } from './attempts.ts';
import type { TaskContext } from './task-parts.ts';

const LOOK_EVERY_MS = 1_000;

export class Drained {
  readonly #tasks: TaskContext;

  constructor(tasks: TaskContext) {
    this.#tasks = tasks;
  }

  start(): void {
    const { signal, attempts } = this.#tasks;
    void repeat(LOOK_EVERY_MS, signal, () => this.#look(attempts.all()), this.#notYet);
  }

  /** It was told to stop. */
  lookAt(containerId: ContainerId): void {
    this.#look(this.#tasks.attempts.ofContainer(containerId)).catch(this.#notYet);
  }

  readonly #notYet = (error: unknown): void => {
    this.#tasks.log.warn({ err: error }, 'what a drain cut off is not handed back yet, trying again');
  };

  async #look(attempts: Iterable<Attempt>): Promise<void> {
    const { ender, metrics, log, isCutOff } = this.#tasks;
    const cutOff = [...attempts].filter(
      ({ job, ending, containerId }) => !job.sync && ending === undefined && isCutOff(containerId),
    );
    const handedBack = cutOff.map((attempt) => {
      metrics.attemptsLost.inc({ reason: 'drained' });
      log.info({ taskId: attempt.job.taskId, containerId: attempt.containerId }, 'a drain is over, giving a task back');
      return ender.abandon(attempt);
    });
    await Promise.all(handedBack);
  }
}
