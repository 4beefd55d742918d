// Callers who wait on this replica for a synchronous task, and the timer of each one's wait limit. A reply settles its caller exactly once.
import type { DeploymentId, QueueName, StubId, TaskId } from '#shared/domain/ids.ts';
import type { Finished } from '../tasks/task-service.ts';

export interface Waiting {
  readonly taskId: TaskId;
  readonly queue: QueueName;
  readonly stubId: StubId;
  readonly deploymentId: DeploymentId | null;
}

interface Entry extends Waiting {
  readonly resolve: (finished: Finished) => void;
  readonly timer: NodeJS.Timeout;
}

export class Replies {
  readonly #entries = new Map<TaskId, Entry>();
  readonly #onWaitLimit: (waiting: Waiting) => void;

  constructor(onWaitLimit: (waiting: Waiting) => void) {
    this.#onWaitLimit = onWaitLimit;
  }

  /** Waits for the answer; `onWaitLimit` is told when `waitMs` passed without one. */
  wait(waiting: Waiting, waitMs: number): Promise<Finished> {
    return new Promise((resolve) => {
      const timer = setTimeout(() => {
        if (this.#entries.has(waiting.taskId)) this.#onWaitLimit(waiting);
      }, waitMs);
      this.#entries.set(waiting.taskId, { ...waiting, resolve, timer });
    });
  }

  /** The task was not accepted after all: nobody waits, nothing is answered here. */
  abandon(taskId: TaskId): void {
    const entry = this.#entries.get(taskId);
    if (entry === undefined) return;
    this.#entries.delete(taskId);
    clearTimeout(entry.timer);
  }

  /** True when somebody waited. */
  settle(taskId: TaskId, finished: Finished): boolean {
    const entry = this.#entries.get(taskId);
    if (entry === undefined) return false;
    this.#entries.delete(taskId);
    clearTimeout(entry.timer);
    entry.resolve(finished);
    return true;
  }

  has(taskId: TaskId): boolean {
    return this.#entries.has(taskId);
  }

  /** The callers of one queue. */
  *of(queue: QueueName): Iterable<Waiting> {
    for (const entry of this.#entries.values()) if (entry.queue === queue) yield entry;
  }

  get size(): number {
    return this.#entries.size;
  }

  /** The replica stops: everybody still waiting is told so. */
  settleAll(finished: Finished): void {
    for (const taskId of [...this.#entries.keys()]) this.settle(taskId, finished);
  }
}
