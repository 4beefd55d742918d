// Notices when this process stood still (its loop was busy, it was stopped, its host slept): what seems silent then may only not have been heard.
import type { Clock } from '#shared/clock.ts';
import type { Log } from '#shared/log.ts';

const EVERY_MS = 250;
export const STALL_MS = 2_000;

export class StallDetector {
  readonly name = 'stall detector';
  readonly #clock: Clock;
  readonly #log: Log;
  #timer: NodeJS.Timeout | undefined;
  #tickedAtMs = 0;
  #stalledAtMs: number | null = null;

  constructor(clock: Clock, log: Log) {
    this.#clock = clock;
    this.#log = log;
  }

  start(): void {
    this.#tickedAtMs = this.#clock.monotonicMs();
    this.#timer = setInterval(() => this.tick(), EVERY_MS);
    this.#timer.unref();
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  /** Comes every quarter of a second; two seconds late, it was a stall. */
  tick(): void {
    const nowMs = this.#clock.monotonicMs();
    const lateMs = nowMs - this.#tickedAtMs - EVERY_MS;
    this.#tickedAtMs = nowMs;
    if (lateMs < STALL_MS) return;
    this.#stalledAtMs = this.#clock.nowMs();
    this.#log.warn({ stalledMs: Math.round(lateMs) }, 'this process stood still');
  }

  /** Epoch milliseconds at which the last stall ended; looks itself, since another's timer may come first after a stall. */
  stalledAtMs(): number | null {
    if (this.#clock.monotonicMs() - this.#tickedAtMs >= STALL_MS + EVERY_MS) this.tick();
    return this.#stalledAtMs;
  }
}
