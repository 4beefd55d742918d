// Attempts that others offered to this replica, or that it adopted or handed over: what it answers when it is asked
// about them again (owner.ts). Bound: those of ten minutes, and MOST. Those that may be forgotten count as sent.
import type { TaskId } from '#shared/domain/ids.ts';
import type { Known } from './owner.ts';
import { KNOWN_MS } from './owner.ts';

/** Some 50 MB. */
const MOST = 200_000;

export class KnownAttempts {
  readonly #most: number;
  /** In the order of their last change. */
  readonly #known = new Map<TaskId, Known & { readonly atMs: number }>();
  /** Last change of the newest attempt that was forgotten; monotonic milliseconds. */
  #forgotToMs = -Infinity;

  constructor(most = MOST) {
    this.#most = most;
  }

  get(taskId: TaskId): Known | undefined {
    return this.#known.get(taskId);
  }

  /** Milliseconds back from now of which everything is remembered. */
  keptMs(): number {
    return Math.min(KNOWN_MS, performance.now() - this.#forgotToMs);
  }

  remember(taskId: TaskId, known: Known): void {
    const atMs = performance.now();
    this.#known.delete(taskId);
    this.#known.set(taskId, { ...known, atMs });
    for (const [oldest, { atMs: sinceMs }] of this.#known) {
      if (this.#known.size <= this.#most && atMs - sinceMs <= KNOWN_MS) return;
      this.#forgotToMs = sinceMs;
      this.#known.delete(oldest);
    }
  }

  get size(): number {
    return this.#known.size;
  }
}
