/**
 * Answers that serve every reader of the same question for a while: the longer one took, the longer it is kept. Readers
 * who come while it is under way wait for it. A failure is not kept.
 */
import type { Clock } from './clock.ts';

export interface KeptAnswersParts<A> {
  readonly clock: Pick<Clock, 'monotonicMs'>;
  /** Bound on the answers that are kept; the one that was asked first leaves first. */
  readonly most: number;
  readonly leastMs: number;
  /** Longest time that an answer is kept; absent: `leastMs`. */
  readonly longestMs?: number;
  /** Size of an answer, and the bound on the sum of all; absent: none. */
  readonly size?: { readonly of: (answer: A) => number; readonly most: number };
}

/** An answer is kept for so many times the time that it took, within the bounds. */
const TIMES = 10;

interface Kept<A> {
  readonly answer: Promise<A>;
  /** By the clock that nobody sets. */
  untilMs: number;
  size: number;
}

export class KeptAnswers<K, A> {
  readonly #parts: KeptAnswersParts<A>;
  readonly #kept = new Map<K, Kept<A>>();

  constructor(parts: KeptAnswersParts<A>) {
    this.#parts = parts;
  }

  /** The kept answer, else that of `read`. */
  async of(key: K, read: () => Promise<A>): Promise<A> {
    const { clock, leastMs, longestMs = leastMs, size } = this.#parts;
    const beganMs = clock.monotonicMs();
    const known = this.#kept.get(key);
    if (known !== undefined && beganMs < known.untilMs) return await known.answer;
    const kept: Kept<A> = { answer: read(), untilMs: Infinity, size: 0 };
    this.#kept.delete(key);
    this.#kept.set(key, kept);
    this.#makeRoom();
    try {
      const answer = await kept.answer;
      const nowMs = clock.monotonicMs();
      kept.untilMs = nowMs + Math.min(longestMs, Math.max(leastMs, TIMES * (nowMs - beganMs)));
      kept.size = size?.of(answer) ?? 0;
      this.#makeRoom();
      return answer;
    } catch (error) {
      if (this.#kept.get(key) === kept) this.#kept.delete(key);
      throw error;
    }
  }

  /** Forgets an answer: the next reader asks anew. */
  delete(key: K): void {
    this.#kept.delete(key);
  }

  clear(): void {
    this.#kept.clear();
  }

  /** Forgets answers that are over, and the oldest ones beyond the bounds. */
  #makeRoom(): void {
    const { clock, most, size } = this.#parts;
    const nowMs = clock.monotonicMs();
    let sum = 0;
    for (const [key, kept] of this.#kept) {
      if (nowMs >= kept.untilMs) this.#kept.delete(key);
      else sum += kept.size;
    }
    for (const [key, kept] of this.#kept) {
      if (this.#kept.size <= most && sum <= (size?.most ?? Infinity)) break;
      this.#kept.delete(key);
      sum -= kept.size;
    }
  }
}
