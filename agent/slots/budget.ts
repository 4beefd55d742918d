/**
 * The budgets of one container on its two sockets. Owned by the container's slots and its gateway socket; a check
 * allocates nothing and sets no timer. Must stay true: output that is merely fast waits (reading from its connection
 * pauses); only messages that no runner ever sends are a violation. The numbers: decision 0070.
 */

/**
 * Bytes and frames per second that one container may send before its connections wait; the first second's worth is
 * free.
 */
export const BYTES_PER_SECOND = 256 * 1024 * 1024;
export const FRAMES_PER_SECOND = 50_000;

/** Rare events (connections, hellos, starts, ends of processes): a burst, and a rate per second. */
const RARE_AT_ONCE = 400;
const RARE_PER_SECOND = 20;
/**
 * Results that nobody needs, and that cost as much as one rare event. A runner that dials again repeats all that it
 * keeps (8,192), which then cost 256 of the 400 that each process has at once.
 */
export const REPEATED_RESULTS_PER_RARE = 32;
/** Faults: unreadable frames, or frames before a hello. */
const FAULTS_AT_ONCE = 60;
const FAULTS_PER_SECOND = 1;

/** Calls per second that one container may begin before they wait; and the bound on refused calls and connections. */
const CALLS_PER_SECOND = 2000;
const REFUSED_AT_ONCE = 10_000;
const REFUSED_PER_SECOND = 1000;

/**
 * Lines per second that are decoded: twice the log buffer's rate (log-buffer.ts), so that the buffer misses none of its
 * lines.
 */
const LINES_PER_SECOND = 2000;
const LINES_AT_ONCE = 10_000;

/** The rule that a container broke; the label of a metric. */
export type Rule = 'second_hello' | 'holding' | 'rare_frames' | 'bad_frames' | 'calls';

/** A rate with a burst, stored as the moment until which all use so far is paid for. */
export class Rate {
  readonly #costMs: number;
  readonly #burstMs: number;
  #paidUntilMs = -Infinity;

  constructor(perSecond: number, atOnce: number) {
    this.#costMs = 1000 / perSecond;
    this.#burstMs = atOnce * this.#costMs;
  }

  /** @returns milliseconds by which this use is ahead of the rate and its burst; 0: within both */
  ahead(count: number, nowMs: number): number {
    this.#paidUntilMs = Math.max(this.#paidUntilMs, nowMs - this.#burstMs) + count * this.#costMs;
    return Math.max(0, this.#paidUntilMs - nowMs);
  }

  /** Counts a use that the rate and its burst allow. @returns false for a use that they do not; it costs nothing */
  admit(nowMs: number): boolean {
    const from = Math.max(this.#paidUntilMs, nowMs - this.#burstMs);
    if (from + this.#costMs > nowMs) return false;
    this.#paidUntilMs = from + this.#costMs;
    return true;
  }
}

export class SocketBudget {
  readonly #bytes = new Rate(BYTES_PER_SECOND, BYTES_PER_SECOND);
  readonly #frames = new Rate(FRAMES_PER_SECOND, FRAMES_PER_SECOND);
  readonly #lines = new Rate(LINES_PER_SECOND, LINES_AT_ONCE);
  readonly #rare: Rate;
  readonly #faults = new Rate(FAULTS_PER_SECOND, FAULTS_AT_ONCE);

  /** @param workers - runner processes of the container, each with its own connections and ends */
  constructor(workers: number) {
    this.#rare = new Rate(RARE_PER_SECOND * (1 + workers), RARE_AT_ONCE * (1 + workers));
  }

  /** Counts a read of bytes and frames. @returns milliseconds for which reading must pause; 0: none */
  read(bytes: number, frames: number, nowMs: number): number {
    return Math.max(this.#bytes.ahead(bytes, nowMs), this.#frames.ahead(frames, nowMs));
  }

  /** @returns false for a line that exceeds the log buffer's rate; later lines do not pay for such lines */
  line(nowMs: number): boolean {
    return this.#lines.admit(nowMs);
  }

  /** @returns false for a violation */
  rare(count: number, nowMs: number): boolean {
    return this.#rare.ahead(count, nowMs) === 0;
  }

  /** @returns false for a violation */
  fault(nowMs: number): boolean {
    return this.#faults.ahead(1, nowMs) === 0;
  }
}

/** Budget of the socket by which a container calls the platform. */
export class CallBudget {
  readonly #calls = new Rate(CALLS_PER_SECOND, CALLS_PER_SECOND);
  readonly #refused: Rate;

  constructor(refusedPerSecond = REFUSED_PER_SECOND, refusedAtOnce = REFUSED_AT_ONCE) {
    this.#refused = new Rate(refusedPerSecond, refusedAtOnce);
  }

  /** Counts a call. @returns milliseconds that the call has to wait */
  call(nowMs: number): number {
    return this.#calls.ahead(1, nowMs);
  }

  /** Counts a refused call or connection. @returns false for a violation */
  refused(nowMs: number): boolean {
    return this.#refused.ahead(1, nowMs) === 0;
  }
}
