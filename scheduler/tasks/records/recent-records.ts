// Records of the last seconds, as the text sent to Redis. A Redis that is killed while its disk is slow
// comes back without its last second or two of writes. The end of a task must not be lost with them.
import type { TaskId } from '#shared/domain/ids.ts';

/**
 * Milliseconds of a turn. Records are kept for one to two turns, and for as long as Redis is away besides; Redis comes
 * back at most two seconds older.
 */
const TURN_MS = 5_000;
/** Time after a reconnect until the data have been compared, and the records written again; several tries are in it. */
const BACK_MS = 15_000;
/** Most records of a turn; beyond this or the characters below the turn ends early. */
const MOST_RECORDS = 10_000;
const MOST_CHARACTERS = 8 * 1024 ** 2;

/** Newest record of each task that was written a moment ago. */
export class RecentRecords {
  readonly #nowMs: () => number;
  #newer = new Map<TaskId, string>();
  #older = new Map<TaskId, string>();
  #characters = 0;
  #turnedAtMs: number;
  /** No turn ends by time before then. */
  #heldUntilMs = -Infinity;

  constructor(nowMs: () => number = () => performance.now()) {
    this.#nowMs = nowMs;
    this.#turnedAtMs = nowMs();
  }

  /** Redis is away: what it had a moment ago may be gone when it comes back. */
  away(): void {
    this.#heldUntilMs = Infinity;
  }

  /** Redis answers again. */
  back(): void {
    this.#heldUntilMs = this.#nowMs() + BACK_MS;
  }

  note(taskId: TaskId, text: string): void {
    const nowMs = this.#nowMs();
    const isFull = this.#newer.size >= MOST_RECORDS || this.#characters >= MOST_CHARACTERS;
    if (isFull || (nowMs - this.#turnedAtMs >= TURN_MS && nowMs >= this.#heldUntilMs)) {
      this.#older = this.#newer;
      this.#newer = new Map();
      this.#characters = 0;
      this.#turnedAtMs = nowMs;
    }
    this.#characters += text.length - (this.#newer.get(taskId)?.length ?? 0);
    this.#newer.set(taskId, text);
  }

  all(): readonly string[] {
    return [...new Map([...this.#older, ...this.#newer]).values()];
  }
}
