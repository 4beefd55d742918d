/**
 * The budgets of one container on its two sockets. Owned by the container's slots and its gateway socket; asking one allocates nothing and sets no timer.
 * Must stay true: output that is only fast waits (the reads of its connection pause); only what no runner ever sends is a violation. The numbers: decision 0070.
 */

/** Bytes and frames that one container may send in a second before its connections wait; a second of each is free. */
export const BYTES_PER_SECOND = 256 * 1024 * 1024;
export const FRAMES_PER_SECOND = 50_000;

/** Rare events (connections, hellos, starts, ends of processes, results that nobody waits for): so many at once, so many a second. */
const RARE_AT_ONCE = 400;
const RARE_PER_SECOND = 20;
/** Frames that cannot be read, or that come before a hello. */
const FAULTS_AT_ONCE = 60;
const FAULTS_PER_SECOND = 1;

/** Calls that one container may begin in a second before they wait for their turn, and refused calls and connections that it may make. */
const CALLS_PER_SECOND = 2000;
const REFUSED_AT_ONCE = 10_000;
const REFUSED_PER_SECOND = 1000;

/** Lines that are looked at: twice what the log buffer takes (log-buffer.ts), so that none of those is missed. */
const LINES_PER_SECOND = 2000;
const LINES_AT_ONCE = 10_000;

/** Which rule a container broke; the label of a metric. */
export type Rule = 'second_hello' | 'holding' | 'rare_frames' | 'bad_frames' | 'calls';

/** A rate with a burst, kept as the moment until which everything so far is paid for. */
export class Rate {
  readonly #costMs: number;
  readonly #burstMs: number;
  #paidUntilMs = -Infinity;

  constructor(perSecond: number, atOnce: number) {
    this.#costMs = 1000 / perSecond;
    this.#burstMs = atOnce * this.#costMs;
  }

  /** @returns for how many milliseconds that is ahead of the rate and its burst; 0: it is within them */
  ahead(count: number, nowMs: number): number {
    this.#paidUntilMs = Math.max(this.#paidUntilMs, nowMs - this.#burstMs) + count * this.#costMs;
    return Math.max(0, this.#paidUntilMs - nowMs);
  }
}

export class SocketBudget {
  readonly #bytes = new Rate(BYTES_PER_SECOND, BYTES_PER_SECOND);
  readonly #frames = new Rate(FRAMES_PER_SECOND, FRAMES_PER_SECOND);
  readonly #lines = new Rate(LINES_PER_SECOND, LINES_AT_ONCE);
  readonly #rare: Rate;
  readonly #faults = new Rate(FAULTS_PER_SECOND, FAULTS_AT_ONCE);

  /** @param workers - runner processes of the container, each with connections and ends of its own */
  constructor(workers: number) {
    this.#rare = new Rate(RARE_PER_SECOND * (1 + workers), RARE_AT_ONCE * (1 + workers));
  }

  /** A read of so many bytes and frames. @returns for how many milliseconds the connection is not read on; 0: it is */
  read(bytes: number, frames: number, nowMs: number): number {
    return Math.max(this.#bytes.ahead(bytes, nowMs), this.#frames.ahead(frames, nowMs));
  }

  /** A line of output. @returns false: it is above what the log buffer takes */
  line(nowMs: number): boolean {
    return this.#lines.ahead(1, nowMs) === 0;
  }

  /** @returns false: a violation */
  rare(count: number, nowMs: number): boolean {
    return this.#rare.ahead(count, nowMs) === 0;
  }

  /** @returns false: a violation */
  fault(nowMs: number): boolean {
    return this.#faults.ahead(1, nowMs) === 0;
  }
}

/** The same for the socket by which a container calls the platform. */
export class CallBudget {
  readonly #calls = new Rate(CALLS_PER_SECOND, CALLS_PER_SECOND);
  readonly #refused: Rate;

  constructor(refusedPerSecond = REFUSED_PER_SECOND, refusedAtOnce = REFUSED_AT_ONCE) {
    this.#refused = new Rate(refusedPerSecond, refusedAtOnce);
  }

  /** A call. @returns for how many milliseconds it waits for its turn */
  call(nowMs: number): number {
    return this.#calls.ahead(1, nowMs);
  }

  /** A call or connection that was refused. @returns false: a violation */
  refused(nowMs: number): boolean {
    return this.#refused.ahead(1, nowMs) === 0;
  }
}
