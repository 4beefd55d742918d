// What Redis was told in the last seconds, as text: a Redis that is killed while its disk is slow comes back without the last second or two of its writes, and the end of a task must not be among what nobody has any more.
import type { TaskId } from '#shared/domain/ids.ts';

/** Kept for one to two of these; longer while Redis takes nothing. Redis comes back at most two seconds older. */
const TURN_MS = 5_000;
/** What a turn holds at most; beyond it a turn is shorter. */
const MOST_RECORDS = 10_000;
const MOST_CHARACTERS = 8 * 1024 ** 2;

/** The newest record of each task that was written a moment ago. */
export class RecentRecords {
  readonly #nowMs: () => number;
  #newer = new Map<TaskId, string>();
  #older = new Map<TaskId, string>();
  #characters = 0;
  #turnedAtMs: number;

  constructor(nowMs: () => number = () => performance.now()) {
    this.#nowMs = nowMs;
    this.#turnedAtMs = nowMs();
  }

  note(taskId: TaskId, text: string): void {
    const nowMs = this.#nowMs();
    const isFull = this.#newer.size >= MOST_RECORDS || this.#characters >= MOST_CHARACTERS;
    if (isFull || nowMs - this.#turnedAtMs >= TURN_MS) {
      this.#older = this.#newer;
      this.#newer = new Map();
      this.#characters = 0;
      this.#turnedAtMs = nowMs;
    }
    this.#newer.set(taskId, text);
    this.#characters += text.length;
  }

  all(): readonly string[] {
    return [...new Map([...this.#older, ...this.#newer]).values()];
  }
}
