// Delay of task lists until the database has caught up. Lists come from the database, and records
// reach it in batches. So a list waits until the drainer has passed all records that Redis held
// when the list was asked for. A caller then finds every task whose answer was seen. Only lists
// pay: two small Redis reads when nothing is on its way, and none for calls. Source: decision 0087.
import type { Redis } from 'ioredis';
import { sleep, withDeadline } from '#shared/backoff.ts';
import type { Log } from '#shared/log.ts';
import type { Keys } from '../../stores/queues/keys.ts';
import { defineScript } from '../../stores/queues/scripts.ts';
import type { Script } from '../../stores/queues/scripts.ts';

/** Longest wait, in milliseconds: a stale list is better than none when the drainer is that far behind. */
const WAIT_MS = 2_000;
const LOOK_EVERY_MS = 20;

type Ends = { readonly first: string; readonly last: string } | undefined;

export interface CaughtUpParts {
  /** Client that appends records, so that earlier appends of this replica are seen. The client fails fast. */
  readonly client: Redis;
  readonly keys: Pick<Keys, 'records'>;
  readonly log: Log;
  /** Drains at once where this replica leads; elsewhere the leader's own interval counts. */
  readonly drainSoon: () => void;
  readonly waitMs?: number;
}

export class CaughtUp {
  readonly #parts: CaughtUpParts;
  readonly #script: Script;
  /** Read under way, which serves all waiting lists. */
  #reading: Promise<Ends> | undefined;

  constructor(parts: CaughtUpParts) {
    this.#parts = parts;
    this.#script = defineScript(parts.client, 'longshoreStreamEnds');
  }

  /**
   * Waits until the database has caught up.
   * @returns false: the list may lack tasks, because the drainer is behind or Redis does not answer
   */
  async caughtUp(): Promise<boolean> {
    const untilMs = performance.now() + (this.#parts.waitMs ?? WAIT_MS);
    try {
      // The read under way may have been answered before the caller's task was recorded.
      await this.#reading;
      const begun = await this.#ends();
      if (begun === undefined) return true;
      while (performance.now() < untilMs) {
        this.#parts.drainSoon();
        await sleep(LOOK_EVERY_MS);
        const now = await this.#ends();
        if (now === undefined || isAfter(now.first, begun.last)) return true;
      }
      this.#parts.log.info({ behind: begun.last }, 'a list of tasks did not wait any longer for their records');
    } catch (error) {
      this.#parts.log.info({ err: error }, 'a list of tasks is read without a look at the records on their way');
    }
    return false;
  }

  #ends(): Promise<Ends> {
    this.#reading ??= this.#readEnds().finally(() => (this.#reading = undefined));
    return this.#reading;
  }

  async #readEnds(): Promise<Ends> {
    const reading = this.#script.run(this.#parts.keys.records);
    const [first, last] = (await withDeadline(reading, WAIT_MS, () => new Error('Redis is slow'))) as string[];
    return first === undefined || last === undefined ? undefined : { first, last };
  }
}

/** Whether stream id `a` comes after `b`. Ids are two numbers, `ms-sequence`. */
function isAfter(a: string, b: string): boolean {
  const [aMs = 0n, aSequence = 0n] = a.split('-').map(BigInt);
  const [bMs = 0n, bSequence = 0n] = b.split('-').map(BigInt);
  return aMs === bMs ? aSequence > bSequence : aMs > bMs;
}
