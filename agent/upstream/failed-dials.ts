// Which failed dials of an outage are worth a line in the log: the first with each reason, and one a minute of it. An
// agent dials once a second or more often, for as long as its scheduler is away.

/** Interval of lines while nothing changes. */
const AGAIN_MS = 60_000;

/** Bound on reasons that are remembered; beyond it, the oldest is forgotten. */
const MOST_REASONS = 16;

/** An outage so far. */
export interface Outage {
  /** Dials that failed. */
  readonly tries: number;
  readonly forSeconds: number;
}

export class FailedDials {
  #tries = 0;
  #sinceMs = 0;
  /** When each reason was told. */
  readonly #said = new Map<string, number>();

  /**
   * Notes a failed dial.
   * @param nowMs - monotonic
   * @returns what to log; undefined: nothing
   */
  failed(reason: string, nowMs: number): Outage | undefined {
    if (this.#tries === 0) this.#sinceMs = nowMs;
    this.#tries += 1;
    if (nowMs - (this.#said.get(reason) ?? -Infinity) < AGAIN_MS) return undefined;
    const [oldest] = this.#said.keys();
    if (oldest !== undefined && this.#said.size >= MOST_REASONS) this.#said.delete(oldest);
    this.#said.delete(reason);
    this.#said.set(reason, nowMs);
    return { tries: this.#tries, forSeconds: Math.round((nowMs - this.#sinceMs) / 1000) };
  }

  /** The scheduler has answered. */
  succeeded(): void {
    this.#tries = 0;
    this.#said.clear();
  }
}
