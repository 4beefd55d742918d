/**
 * Attempts that runner processes may bring along to an agent that was started again. Owned by the container's slots.
 * Must stay true: no container brings more running attempts than it has slots, nor names more results than its runners keep; later than a minute after the adoption none is new.
 */

/** A runner names at most so many pairs in a hello (`server.py`, `_hello`). */
export const MOST_HOLDING = 400;
/** Task ids and attempt tokens are shorter. */
export const MAX_NAME_LENGTH = 128;
/** Runners dial every second; a handler that holds the interpreter delays its process. */
const ADOPTS_FOR_MS = 60_000;

export class Adoption {
  readonly #untilMs: number;
  #runningLeft: number;
  #claimsLeft: number;
  /** Named and not taken: results, most likely, which follow on the same connection. */
  readonly #claimed = new Set<string>();

  /** @param adopted - the container ran before this agent did */
  constructor(adopted: boolean, workers: number, slots: number, nowMs: number) {
    this.#untilMs = adopted ? nowMs + ADOPTS_FOR_MS : -Infinity;
    this.#runningLeft = slots;
    this.#claimsLeft = workers * MOST_HOLDING;
  }

  /** A process names a pair that this agent does not know. @param mayRun - the process has a slot left for it. @returns whether it counts as running */
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

  /** The result of a named pair has come, or begun to: once. @returns false: nobody named it */
  redeem(key: string): boolean {
    return this.#claimed.delete(key);
  }
}
