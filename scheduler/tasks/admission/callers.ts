// Callers who wait on this replica for a synchronous task and leave, reach their
// wait limit, or whose container cannot start. Each is answered exactly once.
import type { ContainerId, QueueName, TaskId } from '#shared/domain/ids.ts';
import { isTerminalTask } from '#shared/domain/status.ts';
import type { Log } from '#shared/log.ts';
import { CALLER_LEFT, SCHEDULER_STOPPING, WAIT_LIMIT } from '../../domain/endings.ts';
import type { Ending } from '../../domain/endings.ts';
import type { TaskQueues } from '../../stores/queues/task-queues.ts';
import type { Completion } from '../completion/completion.ts';
import type { Attempts } from '../dispatch/attempts.ts';
import type { Replies, Waiting } from '../dispatch/replies.ts';
import { errorBody } from '../records/recording.ts';
import type { TaskRecords } from '../records/records.ts';

/** Why callers get no container; absent fields mean a start that failed by the user's cause. */
export interface StartFailureReport {
  /** Container that did not start, whose last lines say why. */
  readonly containerId?: ContainerId;
  /** Why no machine was found for the container. */
  readonly notPlaced?: string;
}

export interface CallersParts {
  readonly replies: Pick<Replies, 'has' | 'hasBegun' | 'of' | 'all' | 'leave'>;
  readonly attempts: Pick<Attempts, 'current'>;
  readonly queues: Pick<TaskQueues, 'read'>;
  readonly records: Pick<TaskRecords, 'read'>;
  readonly completion: Pick<Completion, 'takeOut' | 'endTakenOut' | 'answerAs' | 'answerFrom'>;
  readonly log: Log;
}

export class Callers {
  readonly #parts: CallersParts;
  #readerLeft: (taskId: TaskId, ending: Ending) => Promise<void> = () => Promise.resolve();

  constructor(parts: CallersParts) {
    this.#parts = parts;
  }

  /** Called when a generator's caller left. The handler ends the task wherever it is. */
  onReaderLeft(handler: (taskId: TaskId, ending: Ending) => Promise<void>): void {
    this.#readerLeft = handler;
  }

  /** Ends the tasks that wait here, because the scheduler stops, and tells their callers. */
  async stop(): Promise<void> {
    const { replies, completion, log } = this.#parts;
    const ending = [...replies.all()].map(({ queue, job, taskId }) =>
      completion.takeOut(queue, job, SCHEDULER_STOPPING).catch((error: unknown) => {
        log.info({ err: error, taskId }, 'a waiting task is ended by whoever comes next');
      }),
    );
    await Promise.all(ending);
  }

  left(waiting: Waiting): void {
    void this.#left(waiting);
  }

  async #left(waiting: Waiting): Promise<void> {
    try {
      if (!this.#parts.replies.has(waiting.taskId)) return;
      // Nobody reads the rest of a generator's items, or of a streamed answer.
      const isRead = waiting.job.stream === true || this.#parts.replies.hasBegun(waiting.taskId);
      if (isRead) await this.#readerLeft(waiting.taskId, CALLER_LEFT);
      // A task that cannot be taken out is in a container: it runs on and is recorded.
      else if (!(await this.#parts.completion.takeOut(waiting.queue, waiting.job, CALLER_LEFT)))
        this.#parts.replies.leave(waiting.taskId);
    } catch (error) {
      this.#parts.log.info({ err: error, taskId: waiting.taskId }, 'a caller left; its task goes on');
    }
  }

  /**
   * Called when the wait limit of a caller ran out, and every few seconds until it is answered.
   * The answer is TIMEOUT when no container has the task; else its execution limit decides.
   */
  waitLimitReached(waiting: Waiting): void {
    // A task that runs here is answered by its end.
    if (this.#parts.attempts.current(waiting.taskId) !== undefined) return;
    void this.#waitLimit(waiting).catch((error: unknown) => {
      this.#parts.log.warn(
        { err: error, taskId: waiting.taskId },
        'wait limit could not be carried out, answering all the same',
      );
      this.#parts.completion.answerAs(waiting.taskId, WAIT_LIMIT);
    });
  }

  async #waitLimit(waiting: Waiting): Promise<void> {
    const { queues, records, replies } = this.#parts;
    if (await this.#parts.completion.takeOut(waiting.queue, waiting.job, WAIT_LIMIT)) return;
    // The task is held, or gone: it ended elsewhere and the answer was lost, or it was lost with the data of Redis.
    const record = await records.read(waiting.taskId);
    if (record !== undefined && isTerminalTask(record.status)) {
      await this.#parts.completion.answerFrom(record);
      return;
    }
    const held = (await queues.read(waiting.queue, waiting.taskId)) !== undefined;
    const runsHere = this.#parts.attempts.current(waiting.taskId) !== undefined;
    if (held || runsHere || !replies.has(waiting.taskId)) return;
    await this.#parts.completion.endTakenOut(waiting.queue, waiting.job, WAIT_LIMIT);
  }

  /**
   * Answers the waiting callers of a queue whose start failed by the user's cause while nothing else serves it.
   * @returns how many tasks were failed
   */
  async failWaiting(queue: QueueName, lastLines: string, how: StartFailureReport = {}): Promise<number> {
    const { containerId = null, notPlaced } = how;
    const ending: Ending = {
      status: 'ERROR',
      detail: lastLines,
      ...(notPlaced === undefined ? { reason: 'start_failed' } : { reason: 'not_placed', failureReason: notPlaced }),
    };
    const extra = { result: errorBody(lastLines), containerId };
    const failing = [...this.#parts.replies.of(queue)].map(async (waiting) => {
      try {
        return await this.#parts.completion.takeOut(queue, waiting.job, ending, extra);
      } catch (error) {
        this.#parts.log.warn({ err: error, taskId: waiting.taskId }, 'a waiting task could not be failed');
        return false;
      }
    });
    return (await Promise.all(failing)).filter(Boolean).length;
  }
}
