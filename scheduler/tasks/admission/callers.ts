// Callers who wait on this replica for a synchronous task and leave, reach their
// wait limit, or whose container cannot start. Each is answered exactly once.
import type { ContainerId, QueueName } from '#shared/domain/ids.ts';
import { isTerminalTask } from '#shared/domain/status.ts';
import { CALLER_LEFT, WAIT_LIMIT } from '../../domain/endings.ts';
import type { Ending } from '../../domain/endings.ts';
import type { Waiting } from '../dispatch/replies.ts';
import { errorBody } from '../records/recording.ts';
import type { TaskContext } from '../task-parts.ts';

/** Why callers get no container; absent fields mean a start that failed by the user's cause. */
export interface FailedStart {
  /** Container that did not start, whose last lines say why. */
  readonly containerId?: ContainerId;
  /** Why no machine was found for the container. */
  readonly notPlaced?: string;
}

export class Callers {
  readonly #tasks: TaskContext;

  constructor(tasks: TaskContext) {
    this.#tasks = tasks;
  }

  left(waiting: Waiting): void {
    void this.#left(waiting);
  }

  async #left(waiting: Waiting): Promise<void> {
    try {
      if (!this.#tasks.replies.has(waiting.taskId)) return;
      // Nobody reads the rest of a generator's items.
      if (this.#tasks.replies.hasBegun(waiting.taskId)) await this.#tasks.readerLeft(waiting.taskId, CALLER_LEFT);
      // A task that cannot be taken out is in a container: it runs on and is recorded.
      else await this.#tasks.completion.takeOut(waiting.queue, waiting.job, CALLER_LEFT);
    } catch (error) {
      this.#tasks.log.info({ err: error, taskId: waiting.taskId }, 'a caller left; its task goes on');
    }
  }

  /**
   * Called when the wait limit of a caller ran out, and every few seconds until it is answered.
   * The answer is TIMEOUT when no container has the task; else its execution limit decides.
   */
  waitLimitReached(waiting: Waiting): void {
    // A task that runs here is answered by its end.
    if (this.#tasks.attempts.current(waiting.taskId) !== undefined) return;
    void this.#waitLimit(waiting).catch((error: unknown) => {
      this.#tasks.log.warn(
        { err: error, taskId: waiting.taskId },
        'wait limit could not be carried out, answering all the same',
      );
      this.#tasks.completion.answerAs(waiting.taskId, WAIT_LIMIT);
    });
  }

  async #waitLimit(waiting: Waiting): Promise<void> {
    const { queues, records, replies } = this.#tasks;
    if (await this.#tasks.completion.takeOut(waiting.queue, waiting.job, WAIT_LIMIT)) return;
    // The task is held, or gone: it ended elsewhere and the answer was lost, or it was lost with the data of Redis.
    const record = await records.read(waiting.taskId);
    if (record !== undefined && isTerminalTask(record.status)) {
      await this.#tasks.completion.answerFrom(record);
      return;
    }
    const held = (await queues.read(waiting.queue, waiting.taskId)) !== undefined;
    const runsHere = this.#tasks.attempts.current(waiting.taskId) !== undefined;
    if (held || runsHere || !replies.has(waiting.taskId)) return;
    await this.#tasks.completion.endTakenOut(waiting.queue, waiting.job, WAIT_LIMIT);
  }

  /**
   * Answers the waiting callers of a queue whose start failed by the user's cause while nothing else serves it.
   * @returns how many tasks were failed
   */
  async failWaiting(queue: QueueName, lastLines: string, how: FailedStart = {}): Promise<number> {
    const { containerId = null, notPlaced } = how;
    const ending: Ending = {
      status: 'ERROR',
      detail: lastLines,
      ...(notPlaced === undefined ? { reason: 'start_failed' } : { reason: 'not_placed', failureReason: notPlaced }),
    };
    const extra = { result: errorBody(lastLines), containerId };
    let failed = 0;
    for (const waiting of [...this.#tasks.replies.of(queue)]) {
      try {
        if (await this.#tasks.completion.takeOut(queue, waiting.job, ending, extra)) failed += 1;
      } catch (error) {
        this.#tasks.log.warn({ err: error, taskId: waiting.taskId }, 'a waiting task could not be failed');
      }
    }
    return failed;
  }
}
