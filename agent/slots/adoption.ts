/**
 * Attempts that runner processes may name to an agent that was restarted. Owned by the container's slots. Must stay
 * true: no container names more running attempts than it has slots, nor more results than its runners keep. A minute
 * after the adoption no new one counts.
 */

/** Bound on attempts that a runner names in a hello (`server.py`, `_hello`). */
export const MOST_HOLDING = 400;
/** Bound on names: task ids and attempt tokens are shorter. */
export const MAX_NAME_LENGTH = 128;
/**
 * Time in which attempts are adopted. Runners dial every second; a handler that holds the interpreter delays its
 * process.
 */
const ADOPTS_FOR_MS = 60_000;

export class Adoption {
  readonly #untilMs: number;
  #runningLeft: number;
  #claimsLeft: number;
  /** Attempts that were named and not taken: most likely their results follow on the same connection. */
  readonly #claimed = new Set<string>();

  /** @param adopted - the container is older than this agent process */
  constructor(adopted: boolean, workers: number, slots: number, nowMs: number) {
    this.#untilMs = adopted ? nowMs + ADOPTS_FOR_MS : -Infinity;
    this.#runningLeft = slots;
    this.#claimsLeft = workers * MOST_HOLDING;
  }

  /**
   * A process names an attempt that this agent does not know.
   * @param mayRun - the process has a slot left for it
   * @returns whether the attempt counts as running
   */
  takes(key: string, mayRun: boolean, nowMs: number): boolean {
    if (nowMs > this.#untilMs) return false;
    if (mayRun && this.#runningLeft > 0) {
      this.#runningLeft -= 1;
      return true;
    }
    if (this.#claimsLeft > 0 && !this.#claimed.has(key)) {
      this.#claimsLeft -= 1;
      this.#claimed.add(key);
    }
    return false;
  }

  isClaimed(key: string): boolean {
    return this.#claimed.has(key);
  }

  /** Redeems a named attempt, once, when its result has begun to arrive. @returns false when nobody named it */
  redeem(key: string): boolean {
    return this.#claimed.delete(key);
  }
}
