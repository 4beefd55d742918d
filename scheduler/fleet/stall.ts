// Notices when this process stood still (its loop was busy, it was stopped, its host slept) and when its wall clock was
// set. Silence and ages measured across either prove nothing.
import type { Clock } from '#shared/clock.ts';
import type { Log } from '#shared/log.ts';

const EVERY_MS = 250;
export const STALL_MS = 2_000;
/** Size of a clock step that counts: corrections by time services are smaller, or slewed. */
export const STEP_MS = 2_000;

export class StallDetector {
  readonly name = 'stall detector';
  readonly #clock: Clock;
  readonly #log: Log;
  #timer: NodeJS.Timeout | undefined;
  #tickedAtMs: number;
  /** Wall time minus monotonic time, as of the last tick. */
  #offsetMs: number;
  #stalledAtMs: number | null = null;
  #steppedAtMs: number | null = null;

  constructor(clock: Clock, log: Log) {
    this.#clock = clock;
    this.#log = log;
    this.#tickedAtMs = clock.monotonicMs();
    this.#offsetMs = clock.nowMs() - this.#tickedAtMs;
  }

  start(): void {
    this.#tickedAtMs = this.#clock.monotonicMs();
    this.#timer = setInterval(() => this.tick(), EVERY_MS);
    this.#timer.unref();
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  /** Runs every quarter of a second; a tick that comes two seconds late shows a stall. */
  tick(): void {
    const nowMs = this.#clock.monotonicMs();
    const lateMs = nowMs - this.#tickedAtMs - EVERY_MS;
    this.#tickedAtMs = nowMs;
    this.#lookAtClock(nowMs);
    if (lateMs < STALL_MS) return;
    this.#stalledAtMs = nowMs;
    this.#log.warn({ stalledMs: Math.round(lateMs) }, 'this process stood still');
  }

  /** Notices a step of the wall clock. Small differences are absorbed, so that slow drift never adds up to a step. */
  #lookAtClock(nowMs: number): void {
    const offsetMs = this.#clock.nowMs() - nowMs;
    const stepMs = offsetMs - this.#offsetMs;
    this.#offsetMs = offsetMs;
    if (Math.abs(stepMs) < STEP_MS) return;
    this.#steppedAtMs = nowMs;
    this.#log.warn({ stepMs: Math.round(stepMs) }, 'the wall clock of this process was set');
  }

  /**
   * Monotonic milliseconds at which the last stall ended. The call itself
   * checks for a stall, since another part's timer may fire first after one.
   */
  stalledAtMs(): number | null {
    this.#lookIfLate();
    return this.#stalledAtMs;
  }

  /** Milliseconds since this process last stood still; Infinity: never. */
  sinceStallMs(): number {
    const atMs = this.stalledAtMs();
    return atMs === null ? Infinity : this.#clock.monotonicMs() - atMs;
  }

  /** Milliseconds since this process last stood still or its wall clock was set; Infinity: never. */
  calmMs(): number {
    this.#lookAtClock(this.#clock.monotonicMs());
    const atMs = Math.max(this.stalledAtMs() ?? -Infinity, this.#steppedAtMs ?? -Infinity);
    return this.#clock.monotonicMs() - atMs;
  }

  #lookIfLate(): void {
    if (this.#clock.monotonicMs() - this.#tickedAtMs >= STALL_MS + EVERY_MS) this.tick();
  }
}
