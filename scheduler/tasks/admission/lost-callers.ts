// Callers of functions whose connection broke. A client that is still there comes back to its task within seconds, here
// or at another replica; the task of one that does not is cancelled.
// A message may be lost, and a broken connection is noticed late: the replica to which a caller came back tells of it
// for as long as it is there.
import type { TaskId } from '#shared/domain/ids.ts';
import type { Bus } from '../../cluster/bus.ts';

const COMES_BACK_WITHIN_MS = 10_000;
const TELL_EVERY_MS = 3_000;
/** Callers that are waited for at once. The tasks of any others are cancelled at once. */
const MOST = 10_000;

export interface LostCallersParts {
  readonly bus: Pick<Bus, 'on' | 'publish'>;
  readonly channel: string;
  readonly comesBackWithinMs?: number;
}

export class LostCallers {
  readonly #parts: LostCallersParts;
  readonly #waiting = new Map<TaskId, NodeJS.Timeout>();
  /** Streams of callers here, by their task. */
  readonly #here = new Map<TaskId, number>();

  constructor(parts: LostCallersParts) {
    this.#parts = parts;
    parts.bus.on(parts.channel, (message) => {
      if (typeof message === 'string') this.#forget(message as TaskId);
    });
  }

  /** Callers that are waited for. */
  get size(): number {
    return this.#waiting.size;
  }

  /**
   * The caller of a task is here.
   * @param isBack - it had another stream before, perhaps elsewhere
   * @returns called once, when this stream of it is over
   */
  came(taskId: TaskId, isBack: boolean): () => void {
    this.#forget(taskId);
    this.#here.set(taskId, (this.#here.get(taskId) ?? 0) + 1);
    const telling = isBack ? this.#tellOf(taskId) : undefined;
    return () => {
      clearInterval(telling);
      const left = (this.#here.get(taskId) ?? 1) - 1;
      if (left > 0) this.#here.set(taskId, left);
      else this.#here.delete(taskId);
    };
  }

  /** Whether the caller of a task has a stream here. */
  isHere(taskId: TaskId): boolean {
    return this.#here.has(taskId);
  }

  /** The connection of a task's caller broke; `cancel` is called unless it comes back. */
  lost(taskId: TaskId, cancel: () => void): void {
    this.#forget(taskId);
    if (this.#waiting.size >= MOST) return cancel();
    const timer = setTimeout(() => {
      this.#waiting.delete(taskId);
      cancel();
    }, this.#parts.comesBackWithinMs ?? COMES_BACK_WITHIN_MS);
    timer.unref();
    this.#waiting.set(taskId, timer);
  }

  #tellOf(taskId: TaskId): NodeJS.Timeout {
    const { bus, channel } = this.#parts;
    bus.publish(channel, taskId);
    return setInterval(() => bus.publish(channel, taskId), TELL_EVERY_MS).unref();
  }

  #forget(taskId: TaskId): void {
    clearTimeout(this.#waiting.get(taskId));
    this.#waiting.delete(taskId);
  }
}
