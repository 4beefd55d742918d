// Queries on a queue that count tasks in local queues as its jobs: this
// local queue's from memory, other replicas' from their entries in Redis.
import type { LockToken, QueueName, TaskId } from '#shared/domain/ids.ts';
import type { TaskJob } from '../../stores/queues/jobs.ts';
import type { HeldLock, JobPlace, QueueDepth, TaskQueues } from '../../stores/queues/task-queues.ts';
import type { LocalQueue } from './local-queue.ts';
import type { LocalQueueStore } from './store.ts';

export class LocalQueueView {
  readonly #inner: TaskQueues;
  readonly #store: LocalQueueStore;
  readonly #localQueue: LocalQueue;

  constructor(inner: TaskQueues, store: LocalQueueStore, localQueue: LocalQueue) {
    this.#inner = inner;
    this.#store = store;
    this.#localQueue = localQueue;
  }

  async lockOf(name: QueueName, taskId: TaskId): Promise<LockToken | undefined> {
    const task = this.#localQueue.get(taskId);
    if (task !== undefined) {
      if (await this.#store.has(name, taskId)) return task.lock;
      // Another replica ended the task, or Redis lost its data.
      this.#localQueue.drop(task);
      return undefined;
    }
    const lock = await this.#inner.lockOf(name, taskId);
    if (lock !== undefined || !(await this.#store.has(name, taskId))) return lock;
    return (await this.#store.locks(name, [taskId])).get(taskId);
  }

  async read(name: QueueName, taskId: TaskId): Promise<TaskJob | undefined> {
    const job = this.#localQueue.get(taskId)?.job ?? (await this.#inner.read(name, taskId));
    return job ?? (await this.#store.read(name, taskId));
  }

  async placeOf(name: QueueName, taskId: TaskId): Promise<JobPlace> {
    const task = this.#localQueue.get(taskId);
    if (task !== undefined) {
      if (task.lock !== undefined) return { kind: 'active' };
      const position = this.#localQueue.line(name).indexOf(task) + 1;
      return { kind: 'waiting', position: position === 0 ? undefined : position };
    }
    const place = await this.#inner.placeOf(name, taskId);
    if (place.kind !== 'gone' || !(await this.#store.has(name, taskId))) return place;
    const isSent = (await this.#store.locks(name, [taskId])).has(taskId);
    return isSent ? { kind: 'active' } : { kind: 'waiting', position: undefined };
  }

  async depth(name: QueueName): Promise<QueueDepth> {
    return this.#split(name, await this.#inner.depth(name));
  }

  async depths(names: readonly QueueName[]): Promise<readonly QueueDepth[]> {
    const depths = await this.#inner.depths(names);
    return depths.map((depth, index) => this.#split(names[index], depth));
  }

  /**
   * Moves this local queue's waiting tasks from `active` to `waiting`: the queue's count has all local queues among the
   * active ones.
   */
  #split(name: QueueName | undefined, depth: QueueDepth): QueueDepth {
    const waiting = name === undefined ? 0 : Math.min(this.#localQueue.waiting(name), depth.active);
    return waiting === 0 ? depth : { ...depth, active: depth.active - waiting, waiting: depth.waiting + waiting };
  }

  async renew(held: readonly HeldLock[], ms: number): Promise<readonly HeldLock[]> {
    // An entry in a local queue has no lock to renew: it lapses with its replica.
    const queued = held.filter(({ taskId, lock }) => this.#localQueue.get(taskId)?.lock !== lock);
    const lost = queued.length === 0 ? [] : await this.#inner.renew(queued, ms);
    const inLocalQueue = await Promise.all(lost.map(({ queue, taskId }) => this.#store.has(queue, taskId)));
    return lost.filter((_one, index) => inLocalQueue[index] !== true);
  }

  async held(name: QueueName, limit?: number): Promise<readonly HeldLock[]> {
    const [held, locks] = await Promise.all([this.#inner.held(name, limit), this.#store.locks(name)]);
    return [...held, ...[...locks].map(([taskId, lock]) => ({ queue: name, taskId, lock }))];
  }
}
