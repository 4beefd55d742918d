// Return of tasks whose container is past the deadline of a drain. Asynchronous tasks go back to their queue,
// superseded, without waiting for the container's end, which may take long or never come. A synchronous task
// cannot run again, so it keeps the time that the stop leaves it. Every second the check repeats, because
// attempts of another process may be adopted later. While a machine is silent nothing changes.
import type { ContainerId } from '#shared/domain/ids.ts';
import { repeat } from '#shared/backoff.ts';
import type { Attempt } from '../dispatch/attempts.ts';
import type { TaskContext } from '../task-parts.ts';

const LOOK_EVERY_MS = 1_000;

export class DrainCutoff {
  readonly #tasks: TaskContext;

  constructor(tasks: TaskContext) {
    this.#tasks = tasks;
  }

  start(): void {
    const { signal, attempts } = this.#tasks;
    void repeat(LOOK_EVERY_MS, signal, () => this.#look(attempts.all()), this.#notYet);
  }

  /** Checks a container that was just told to stop. */
  lookAt(containerId: ContainerId): void {
    this.#look(this.#tasks.attempts.ofContainer(containerId)).catch(this.#notYet);
  }

  readonly #notYet = (error: unknown): void => {
    this.#tasks.log.warn({ err: error }, 'what a drain cut off is not handed back yet, trying again');
  };

  async #look(attempts: Iterable<Attempt>): Promise<void> {
    const { completion, metrics, log, isCutOff } = this.#tasks;
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
