// Words for a person who follows something while the scheduler is away: at first, and then once a minute. Pure.

const AGAIN_MS = 60_000;

export class Outage {
  #sinceMs: number | undefined;
  #toldMs = 0;

  /** Another try failed. @returns a sentence, when it is time for one */
  failed(nowMs: number): string | undefined {
    if (this.#sinceMs === undefined) {
      this.#sinceMs = nowMs;
      this.#toldMs = nowMs;
      return 'the connection is lost; dialling again';
    }
    if (nowMs - this.#toldMs < AGAIN_MS) return undefined;
    this.#toldMs = nowMs;
    const minutes = Math.floor((nowMs - this.#sinceMs) / AGAIN_MS);
    return `the scheduler has not answered for ${minutes} min; Ctrl-C ends this command`;
  }

  /** The scheduler answered. @returns whether it had been away */
  over(): boolean {
    const wasAway = this.#sinceMs !== undefined;
    this.#sinceMs = undefined;
    return wasAway;
  }
}
