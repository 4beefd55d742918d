// Work that the leader alone does, again and again. It begins when this replica leads and ends when it does not: the
// signal of the round under way then aborts. Rounds never overlap. A failed one is tried again, later each time.
import { backoffMs, sleep } from '#shared/backoff.ts';
import type { Part } from '#shared/lifecycle.ts';
import type { Log } from '#shared/log.ts';
import type { LeaderLease } from './leader.ts';
import { whileLeading } from './while-leading.ts';

const LONGEST_FIRST_MS = 5 * 60_000;

export interface LeaderLoopOptions<T> {
  readonly name: string;
  readonly leader: Pick<LeaderLease, 'isLeader' | 'onChange'>;
  /** Milliseconds from the end of a round to the next one; the first comes after five minutes of leading at most. */
  readonly everyMs: number;
  readonly round: (signal: AbortSignal) => T | Promise<T>;
  /** Milliseconds until the next round, by what this one gave. Absent: `everyMs`. */
  readonly restMs?: (given: T) => number;
  /** Words of the log for a failed round. */
  readonly failed: string;
  readonly log: Log;
}

export class LeaderLoop<T> implements Part {
  readonly name: string;
  readonly #options: LeaderLoopOptions<T>;
  #running: Promise<unknown> = Promise.resolve();
  #end: (() => void) | undefined;

  constructor(options: LeaderLoopOptions<T>) {
    this.name = options.name;
    this.#options = options;
  }

  start(): void {
    this.#end = whileLeading(this.#options.leader, (signal) => {
      this.#running = this.#running.then(() => this.#run(signal));
    });
  }

  /** Ends the round under way, and waits for it. */
  async stop(): Promise<void> {
    this.#end?.();
    await this.#running;
  }

  async #run(signal: AbortSignal): Promise<void> {
    const { leader, everyMs, round, restMs = () => everyMs, failed, log } = this.#options;
    let failures = 0;
    // A leadership that never lasts an hour must not put off what is done each hour.
    let waitMs = Math.min(everyMs, LONGEST_FIRST_MS);
    while (await sleep(waitMs, signal)) {
      // The lease may have run out while this process stood still, before anybody said so.
      if (!leader.isLeader()) continue;
      try {
        waitMs = restMs(await round(signal));
        failures = 0;
      } catch (error) {
        if (signal.aborted) return;
        failures += 1;
        waitMs = Math.min(everyMs, backoffMs(failures, { baseMs: 1_000, capMs: 60_000, floorMs: 500 }));
        log.warn({ err: error, part: this.name, againMs: waitMs }, failed);
      }
    }
  }
}
