// Effects of a deployment that stops, goes or scales to zero on its tasks, its callers and its containers.
import type { QueueName, TaskId } from '#shared/domain/ids.ts';
import { isTerminalTask } from '#shared/domain/status.ts';
import { Listeners } from '#shared/listeners.ts';
import type { Log } from '#shared/log.ts';
import { DEPLOYMENT_DELETED, DEPLOYMENT_STOPPED } from '../domain/endings.ts';
import type { Ending } from '../domain/endings.ts';
import type { QueueControl } from '../domain/flow.ts';
import { totalOf } from '../stores/queues/task-queues.ts';
import type { TaskQueues } from '../stores/queues/task-queues.ts';
import type { DeploymentEffects } from '../workspaces/deployments/needs.ts';
import type { Cancellation } from './completion/cancellation.ts';
import type { Completion } from './completion/completion.ts';
import type { Attempts } from './dispatch/attempts.ts';
import type { Replies } from './dispatch/replies.ts';
import type { TaskRecords } from './records/records.ts';

export interface DeploymentStopsParts {
  readonly attempts: Pick<Attempts, 'current' | 'ofQueue'>;
  readonly completion: Pick<Completion, 'takeOut' | 'answerAs'>;
  readonly cancellation: Pick<Cancellation, 'cancelRecorded' | 'revoke'>;
  readonly queues: Pick<TaskQueues, 'depth' | 'obliterate' | 'control'>;
  readonly records: Pick<TaskRecords, 'read'>;
  readonly replies: Pick<Replies, 'of'>;
  readonly containers: {
    /** Stops every container of one queue, at once. */
    stopAll(queue: QueueName, reason: string): Promise<void>;
  };
  readonly log: Log;
  /** Ids of a queue's tasks that are not final, in order, from the database: at most `limit`, those after `after`. */
  readonly openTasks: (queue: QueueName, limit: number, after: TaskId | undefined) => Promise<readonly TaskId[]>;
}

const BATCH = 500;
/** Tasks that are ended together: their records are one write. */
const AT_ONCE = 50;
/** Callers who wait get `deployment stopped`, as the interface has it. Records of other tasks name the deletion. */
const RECORDED_DELETION: Ending = { ...DEPLOYMENT_DELETED, detail: 'deployment deleted' };

export class DeploymentStops implements DeploymentEffects {
  readonly #parts: DeploymentStopsParts;
  readonly #answering = new Map<QueueName, Promise<number>>();
  readonly #queueChanged = new Listeners<[QueueName]>();

  constructor(parts: DeploymentStopsParts) {
    this.#parts = parts;
  }

  /** Told when a queue may need more or fewer containers. */
  onQueueChanged(listener: (queue: QueueName) => void): void {
    this.#queueChanged.add(listener);
  }

  async stopped(queue: QueueName): Promise<void> {
    await this.#answerCallers(queue, DEPLOYMENT_STOPPED);
    await this.#parts.containers.stopAll(queue, 'user_stop');
    this.#queueChanged.tell(queue);
  }

  async deleting(queue: QueueName): Promise<number> {
    return await this.#answerCallers(queue, DEPLOYMENT_DELETED);
  }

  async deleted(queue: QueueName): Promise<number> {
    let cancelled = await this.#answerCallers(queue, DEPLOYMENT_DELETED);
    await this.#parts.containers.stopAll(queue, 'user_stop');
    let after: TaskId | undefined;
    do {
      const open = await this.#parts.openTasks(queue, BATCH, after);
      for (let at = 0; at < open.length; at += AT_ONCE) {
        const ended = await Promise.all(open.slice(at, at + AT_ONCE).map((taskId) => this.#cancel(taskId)));
        cancelled += ended.filter(Boolean).length;
      }
      after = open.at(-1);
    } while (after !== undefined);
    this.#queueChanged.tell(queue);
    await this.forget(queue);
    return cancelled;
  }

  async #cancel(taskId: TaskId): Promise<boolean> {
    const { records, cancellation } = this.#parts;
    const record = await records.read(taskId);
    // Rows lag behind tasks that ended a moment ago.
    if (record === undefined || isTerminalTask(record.status)) return false;
    return await cancellation.cancelRecorded(record, RECORDED_DELETION);
  }

  /**
   * Deletes a queue to which nothing is added any more. Jobs that another replica still
   * takes out or ends are left to it; then a few small keys stay, and no task is lost.
   */
  async forget(queue: QueueName): Promise<void> {
    const { queues, log } = this.#parts;
    try {
      if (totalOf(await queues.depth(queue)) === 0) await queues.obliterate(queue);
    } catch (error) {
      log.info({ err: error, queue }, 'a deleted queue still has its settings in Redis');
    }
  }

  async queueControlled(queue: QueueName, control: QueueControl): Promise<void> {
    await this.#parts.queues.control(queue, control);
    this.#queueChanged.tell(queue);
  }

  async scaledToZero(queue: QueueName): Promise<void> {
    await this.#parts.containers.stopAll(queue, 'user_stop');
    this.#queueChanged.tell(queue);
  }

  /** Answers the callers who wait here, after a deployment was stopped or deleted at any replica. */
  async answerStopped(queue: QueueName): Promise<void> {
    await this.#answerCallers(queue, DEPLOYMENT_STOPPED);
  }

  /**
   * Answers the queue's synchronous callers at once, whether their tasks
   * wait or run. Several such calls for one queue run one after another.
   * @returns how many tasks ended
   */
  async #answerCallers(queue: QueueName, ending: Ending): Promise<number> {
    const before = this.#answering.get(queue);
    const mine =
      before === undefined ? this.#answerAll(queue, ending) : before.then(() => this.#answerAll(queue, ending));
    this.#answering.set(queue, mine);
    try {
      return await mine;
    } finally {
      if (this.#answering.get(queue) === mine) this.#answering.delete(queue);
    }
  }

  async #answerAll(queue: QueueName, ending: Ending): Promise<number> {
    const callers = [...this.#parts.replies.of(queue)];
    const ends = callers.map(async (waiting) => {
      const attempt = this.#parts.attempts.current(waiting.taskId);
      try {
        if (attempt !== undefined) await this.#parts.cancellation.revoke(attempt, ending);
        // A task that another replica has is ended there, when it hears of the stop.
        else await this.#parts.completion.takeOut(queue, waiting.job, ending);
      } catch (error) {
        this.#parts.log.warn(
          { err: error, taskId: waiting.taskId },
          'a caller of a stopped deployment is answered without its record',
        );
      }
      this.#parts.completion.answerAs(waiting.taskId, ending);
    });
    await Promise.all(ends);
    return callers.length + (await this.#endServed(queue, ending));
  }

  /**
   * Revokes attempts that run here for callers of other replicas,
   * so that those hear the reason instead of a lost container.
   * @returns how many there were
   */
  async #endServed(queue: QueueName, ending: Ending): Promise<number> {
    const served = [...this.#parts.attempts.ofQueue(queue)].filter(({ job }) => job.sync);
    const ended = await Promise.all(served.map((attempt) => this.#parts.cancellation.revoke(attempt, ending)));
    return ended.filter(Boolean).length;
  }
}
