// Local queues as Redis knows them: one hash per queue, task → its job, which names the replica of its local queue. The
// hash counts in the queue's depth, and outlives a replica that dies. Invariant: a task's entry stands from
// before its attempt is sent until its end is decided. Its lease stands until its record is safe.
import type { Redis } from 'ioredis';
import type { InstanceId, LockToken, QueueName, TaskId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { Leases } from '../dispatch/leases.ts';
import { unavailable } from '../../stores/queues/answers.ts';
import type { TaskJob } from '../../stores/queues/jobs.ts';
import type { Keys } from '../../stores/queues/keys.ts';
import { defineScript } from '../../stores/queues/scripts.ts';
import type { Script } from '../../stores/queues/scripts.ts';
import { atTurnEnd } from '../../stores/queues/turns.ts';
import { encodeEntry, FORWARDED_MARK, parseEntry } from './entries.ts';
import type { LocalTask } from './local-queue.ts';

/**
 * Redis' answer on a task. `in`: it may be sent, and stands in Redis.
 * `jobs_wait`: older jobs are in the queue. `full`: the queue is above its bound.
 */
export interface AdmissionResult {
  readonly kind: 'in' | 'jobs_wait' | 'full';
  /** Depth of the queue with this task, as it is or would be. */
  readonly depth: number;
  /** Jobs in the queue, and tasks in the local queues of all replicas, at that moment. */
  readonly jobs: number;
  readonly inLocalQueues: number;
}

/** Whether the task is in; false also where no answer comes. */
export async function isLetIn(entering: Promise<AdmissionResult>): Promise<boolean> {
  try {
    return (await entering).kind === 'in';
  } catch {
    return false;
  }
}

export interface LocalQueueStoreParts {
  readonly client: Redis;
  readonly keys: Keys;
  readonly log: Log;
  readonly leases: Pick<Leases, 'locksOf' | 'dropOf'>;
  /** Keys that admit-local-tasks.lua reads of a queue, the local queue last. */
  readonly depthKeys: (queue: QueueName) => readonly string[];
}

interface Entering {
  readonly job: TaskJob;
  readonly bound: number;
  readonly forwardedTo: InstanceId | undefined;
}
/** Tasks that enter one queue in this turn of the event loop. */
interface Batch {
  readonly tasks: Entering[];
  readonly answers: Promise<readonly number[]>;
}

/** Most entries or queues per Redis command. */
const MOST_AT_ONCE = 500;

export class LocalQueueStore {
  readonly #parts: LocalQueueStoreParts;
  readonly #enter: Script;
  readonly #leave: Script;
  readonly #return: Script;
  readonly #batches = new Map<QueueName, Batch>();
  /** Tasks that ended in this turn of the event loop. */
  readonly #ending = new Map<QueueName, TaskId[]>();

  constructor(parts: LocalQueueStoreParts) {
    this.#parts = parts;
    this.#enter = defineScript(parts.client, 'longshoreAdmitLocalTasks');
    this.#leave = defineScript(parts.client, 'longshoreRemoveUnsentTask');
    this.#return = defineScript(parts.client, 'longshoreTakeBackTask');
  }

  get isReady(): boolean {
    return this.#parts.client.status === 'ready';
  }

  /**
   * Lets a task in, together with the others of this turn, in one command.
   * @param forwardedTo - a replica that is told of the task in the same step, when it is let in
   * @throws AppError `queues_unavailable`: the task may stand in Redis all the same
   */
  async enter(queue: QueueName, job: TaskJob, bound: number, forwardedTo?: InstanceId): Promise<AdmissionResult> {
    const batch = this.#batches.get(queue) ?? this.#newBatch(queue);
    const place = batch.tasks.push({ job, bound, forwardedTo }) - 1;
    let answers: readonly number[];
    try {
      answers = await batch.answers;
    } catch (error) {
      throw unavailable(`let task ${job.taskId} into ${queue}`, error);
    }
    const [answer = 0, jobs = 0, inLocalQueues = 0] = [answers[place], answers.at(-2), answers.at(-1)];
    const kind = answer === 0 ? 'jobs_wait' : answer > 0 ? 'in' : 'full';
    return { kind, depth: Math.abs(answer), jobs, inLocalQueues };
  }

  #newBatch(queue: QueueName): Batch {
    const { client, keys, depthKeys } = this.#parts;
    const tasks: Entering[] = [];
    const answers = new Promise<readonly number[]>((resolve, reject) => {
      atTurnEnd(client, () => {
        this.#batches.delete(queue);
        const given = tasks.flatMap(({ job, bound, forwardedTo }) => {
          const channel = forwardedTo === undefined ? '' : keys.forwardingChannel(forwardedTo);
          return [job.taskId, bound, encodeEntry(job, forwardedTo), channel];
        });
        const answered = this.#enter.run(...depthKeys(queue), keys.localQueues, queue, ...given);
        answered.then((numbers) => resolve(numbers as readonly number[]), reject);
      });
    });
    const batch: Batch = { tasks, answers };
    this.#batches.set(queue, batch);
    return batch;
  }

  /** Removes an entry. @returns true when it stood there */
  async remove(queue: QueueName, taskId: TaskId): Promise<boolean> {
    const { client, keys } = this.#parts;
    const removed = this.#asking(`take task ${taskId} out of its lane`, client.hdel(keys.localQueue(queue), taskId));
    return (await removed) === 1;
  }

  /** Removes the entry of a task that is over, with the others of this turn. */
  ended(queue: QueueName, taskId: TaskId): void {
    const { client, keys, log } = this.#parts;
    const ending = this.#ending.get(queue);
    if (ending !== undefined) return void ending.push(taskId);
    const taskIds = [taskId];
    this.#ending.set(queue, taskIds);
    atTurnEnd(client, () => {
      this.#ending.delete(queue);
      client.hdel(keys.localQueue(queue), ...taskIds).catch((error: unknown) => {
        log.info({ err: error, queue }, 'tasks that are over are still in their local queue');
      });
    });
  }

  /** Drops the lease of an attempt that was given back while Redis did not answer. */
  async dropLeft(task: LocalTask): Promise<void> {
    const { leftLock } = task;
    if (leftLock === undefined) return;
    const { taskId } = task.job;
    await this.#asking(`drop the lease of task ${taskId}`, this.#parts.leases.dropOf(taskId, leftLock));
    task.leftLock = undefined;
  }

  /**
   * Removes an entry, unless an attempt of the task was sent,
   * is about to be sent, or is announced by an external runner.
   */
  async removeUnsent(queue: QueueName, taskId: TaskId): Promise<boolean> {
    const { keys } = this.#parts;
    const leaving = this.#leave.run(keys.localQueue(queue), keys.lease(taskId), taskId);
    return (await this.#asking(`take task ${taskId} out of its lane`, leaving)) === 1;
  }

  /**
   * Makes a forwarded task this local queue's again.
   * @param mustBeForwarded - only where its entry still says so: the task
   * was not taken back before, and the task did not go on as a job
   * @returns false: an attempt of the task was sent, or is about to be, or nobody has the task any more
   */
  async takeBack(queue: QueueName, job: TaskJob, mustBeForwarded = false): Promise<boolean> {
    const { keys } = this.#parts;
    const { taskId } = job;
    const mark = mustBeForwarded ? FORWARDED_MARK : '';
    const returning = this.#return.run(keys.localQueue(queue), keys.lease(taskId), taskId, encodeEntry(job), mark);
    return (await this.#asking(`take task ${taskId} back`, returning)) === 1;
  }

  async has(queue: QueueName, taskId: TaskId): Promise<boolean> {
    const { client, keys } = this.#parts;
    return (await this.#asking(`find task ${taskId}`, client.hexists(keys.localQueue(queue), taskId))) === 1;
  }

  async read(queue: QueueName, taskId: TaskId): Promise<TaskJob | undefined> {
    const { client, keys } = this.#parts;
    const text = await this.#asking(`read task ${taskId}`, client.hget(keys.localQueue(queue), taskId));
    return text === null ? undefined : parseEntry(text);
  }

  async ids(queue: QueueName): Promise<readonly TaskId[]> {
    const { client, keys } = this.#parts;
    return (await this.#asking(`list the lanes of ${queue}`, client.hkeys(keys.localQueue(queue)))) as TaskId[];
  }

  /** Lock tokens of the tasks that were sent, or are about to be. */
  async locks(queue: QueueName, taskIds?: readonly TaskId[]): Promise<ReadonlyMap<TaskId, LockToken>> {
    const { leases } = this.#parts;
    const what = `list the lanes of ${queue}`;
    const ids = taskIds ?? (await this.ids(queue));
    const found = await this.#asking(what, leases.locksOf(ids));
    const locks = new Map<TaskId, LockToken>();
    for (const [index, lock] of found.entries()) {
      const taskId = ids[index];
      if (taskId !== undefined && lock !== undefined) locks.set(taskId, lock);
    }
    return locks;
  }

  /** Queues that have entries in a local queue. */
  async queues(): Promise<readonly QueueName[]> {
    const { client, keys } = this.#parts;
    const names = (await this.#asking('list the lanes', client.smembers(keys.localQueues))) as QueueName[];
    const found: QueueName[] = [];
    for (let at = 0; at < names.length; at += MOST_AT_ONCE) {
      const some = names.slice(at, at + MOST_AT_ONCE);
      const counting = some.map((name) => client.hlen(keys.localQueue(name)));
      const counts = await this.#asking('count the lanes', Promise.all(counting));
      found.push(...some.filter((_name, index) => (counts[index] ?? 0) > 0));
    }
    return found;
  }

  /** Writes entries again after Redis lost them, regardless of the bound. */
  async restore(queue: QueueName, jobs: readonly TaskJob[], forwardedTo?: InstanceId): Promise<void> {
    const { client, keys } = this.#parts;
    // All commands go out in this turn: an entry whose task ends later is removed after them.
    const commands: Promise<number>[] = [client.sadd(keys.localQueues, queue)];
    for (let at = 0; at < jobs.length; at += MOST_AT_ONCE) {
      const fields = jobs.slice(at, at + MOST_AT_ONCE).flatMap((job) => [job.taskId, encodeEntry(job, forwardedTo)]);
      commands.push(client.hset(keys.localQueue(queue), ...fields));
    }
    await this.#asking(`restore the lane of ${queue}`, Promise.all(commands));
  }

  /** Deletes the local queue of a queue whose deployment was deleted. */
  async forget(queue: QueueName): Promise<void> {
    const { client, keys } = this.#parts;
    await this.#asking(
      `delete the lane of ${queue}`,
      Promise.all([client.del(keys.localQueue(queue)), client.srem(keys.localQueues, queue)]),
    );
  }

  async #asking<T>(what: string, answer: Promise<T>): Promise<T> {
    try {
      return await answer;
    } catch (error) {
      throw unavailable(what, error);
    }
  }
}
