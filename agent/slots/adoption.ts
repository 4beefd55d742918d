/**
 * Attempts that runner processes bring to an agent that was restarted. Owned by the container's slots. Must stay true:
 * no container names more running attempts than it has slots, nor brings more results than its runners keep. A minute
 * after the adoption no new one counts.
 */

/** Bound on attempts that a runner names in a hello (`server.py`, `MOST_NAMED`). It may keep more results than that. */
export const MOST_HOLDING = 400;
/** Bound on results that a runner keeps (`server.py`, `MAX_UNACKNOWLEDGED`). */
const MOST_KEPT_RESULTS = 8192;
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
  #resultsLeft: number;
  /** Results in parts: fewer, since a runner keeps 16 MiB, and one that never ends is named in each heartbeat. */
  #inPartsLeft: number;

  /** @param adopted - the container is older than this agent process */
  constructor(adopted: boolean, processes: number, slots: number, nowMs: number) {
    this.#untilMs = adopted ? nowMs + ADOPTS_FOR_MS : -Infinity;
    this.#runningLeft = slots;
    this.#resultsLeft = processes * MOST_KEPT_RESULTS;
    this.#inPartsLeft = processes * MOST_HOLDING;
  }

  /** A process names an attempt that this agent does not know. @returns whether it counts as running */
  takesRunning(nowMs: number): boolean {
    if (nowMs > this.#untilMs || this.#runningLeft <= 0) return false;
    this.#runningLeft -= 1;
    return true;
  }

  /** Whether results of attempts that this agent does not know still count. */
  awaitsResults(nowMs: number): boolean {
    return nowMs <= this.#untilMs && this.#resultsLeft > 0;
  }

  /** A result of such an attempt begins to arrive. @returns whether it counts */
  takesResult(isInParts: boolean, nowMs: number): boolean {
    if (!this.awaitsResults(nowMs) || (isInParts && this.#inPartsLeft <= 0)) return false;
    if (isInParts) this.#inPartsLeft -= 1;
    this.#resultsLeft -= 1;
    return true;
  }
}
