// Which failed dials of an outage are worth a line in the log: the first, each with another reason, and one a minute.
// An agent dials once a second or more often, for as long as its scheduler is away.

/** Interval of lines while nothing changes. */
const AGAIN_MS = 60_000;

/** An outage so far. */
export interface Outage {
  /** Dials that failed. */
  readonly tries: number;
  readonly forSeconds: number;
}

export class FailedDials {
  #tries = 0;
  #sinceMs = 0;
  #saidAtMs = -Infinity;
  #reason: string | undefined;

  /**
   * Notes a failed dial.
   * @param nowMs - monotonic
   * @returns what to log; undefined: nothing
   */
  failed(reason: string, nowMs: number): Outage | undefined {
    if (this.#tries === 0) this.#sinceMs = nowMs;
    this.#tries += 1;
    if (reason === this.#reason && nowMs - this.#saidAtMs < AGAIN_MS) return undefined;
    this.#reason = reason;
    this.#saidAtMs = nowMs;
    return { tries: this.#tries, forSeconds: Math.round((nowMs - this.#sinceMs) / 1000) };
  }

  /** The scheduler has answered. */
  succeeded(): void {
    this.#tries = 0;
    this.#reason = undefined;
    this.#saidAtMs = -Infinity;
  }
}
