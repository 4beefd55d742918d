// Streamed calls whose callers wait on this replica for their bytes. The agent opens a stream to its own replica when
// the attempt begins; from there the bytes go to the caller's replica, here or elsewhere.
// Invariant: a stream reaches the caller of its own task, once. A stream that nobody waits for is ended.
import type { Duplex } from 'node:stream';
import type { InstanceId, TaskId } from '#shared/domain/ids.ts';
import type { TaskJob } from '../../stores/queues/jobs.ts';

/** Takes the bytes of a streamed call, between this caller and the runner process. */
export type TakeBytes = (bytes: Duplex) => void;

export class Streams {
  readonly #instance: InstanceId;
  readonly #callers = new Map<TaskId, TakeBytes>();
  #elsewhere: (replica: InstanceId, taskId: TaskId, bytes: Duplex) => void = (_replica, _taskId, bytes) => {
    bytes.destroy();
  };

  constructor(instance: InstanceId) {
    this.#instance = instance;
  }

  /** Called with a stream whose caller waits at another replica. */
  onElsewhere(handler: (replica: InstanceId, taskId: TaskId, bytes: Duplex) => void): void {
    this.#elsewhere = handler;
  }

  /** Waits for the stream of a task. @returns a function that ends the wait */
  expect(taskId: TaskId, take: TakeBytes): () => void {
    this.#callers.set(taskId, take);
    return () => {
      if (this.#callers.get(taskId) === take) this.#callers.delete(taskId);
    };
  }

  /** A runner process is about to serve that job: its bytes go to the caller. */
  arrived({ taskId, replica }: Pick<TaskJob, 'taskId' | 'replica'>, bytes: Duplex): void {
    if (replica !== this.#instance) this.#elsewhere(replica, taskId, bytes);
    else this.take(taskId, bytes);
  }

  /** Gives a stream to its caller here. */
  take(taskId: TaskId, bytes: Duplex): void {
    const take = this.#callers.get(taskId);
    this.#callers.delete(taskId);
    if (take === undefined) bytes.destroy();
    else take(bytes);
  }
}
