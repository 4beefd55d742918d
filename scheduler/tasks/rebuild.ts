// After Redis lost its data: each replica writes the settings of its queues and the leases of what it runs again, and wakes what it serves; the leader takes jobs out whose tasks are over, also from queues
// that nobody fetches from. Waiting asynchronous tasks come back from their rows (sweep.ts), after every replica had the time to say what it runs.
import type { QueueName } from '#shared/domain/ids.ts';
import type { Clock } from '#shared/clock.ts';
import { sleep } from '#shared/backoff.ts';
import type { Log } from '#shared/log.ts';
import type { OlderJobs } from '../queues/older-jobs.ts';
import type { RedisData } from '../queues/redis-data.ts';
import type { TaskQueues } from '../queues/task-queues.ts';

export interface RebuildParts {
  readonly data: Pick<RedisData, 'onLost' | 'generation'>;
  readonly queues: Pick<TaskQueues, 'reopenAll'>;
  readonly tasks: { redisLost(): Promise<void> };
  /** This replica's, first of all: a caller who waits on a replica that nobody finds counts as gone. */
  readonly presence: { redisLost(): Promise<void> };
  readonly olderJobs: Pick<OlderJobs, 'sweep'>;
  /** Queues of tasks that changed since then. */
  readonly recentQueues: (sinceMs: number) => Promise<readonly QueueName[]>;
  readonly clock: Clock;
  readonly log: Log;
  readonly isLeader: () => boolean;
  readonly wakeAll: () => void;
  readonly settleMs?: number;
}

/** Every replica notices within a second or two, and renews its locks within 30 s in any case. */
const SETTLE_MS = 35_000;
const TRY_AGAIN_MS = 1_000;
/** An older Redis is not older than that: it writes its file every second. */
const RECENT_MS = 3600_000;

export class Rebuild {
  readonly name = 'rebuild';
  readonly #parts: RebuildParts;
  readonly #abort = new AbortController();
  #off: (() => void) | undefined;
  #lostAtMs = -Infinity;

  constructor(parts: RebuildParts) {
    this.#parts = parts;
  }

  start(): void {
    this.#off = this.#parts.data.onLost(() => void this.#run());
  }

  stop(): void {
    this.#off?.();
    this.#abort.abort();
  }

  /** Whether what no queue has may be taken for lost. */
  isOver(): boolean {
    return this.#parts.clock.monotonicMs() - this.#lostAtMs >= (this.#parts.settleMs ?? SETTLE_MS);
  }

  async #run(): Promise<void> {
    const { clock, data, log } = this.#parts;
    this.#lostAtMs = clock.monotonicMs();
    const { generation } = data;
    for (;;) {
      try {
        await this.#once();
        return;
      } catch (error) {
        log.warn({ err: error }, 'Redis is not rebuilt yet, trying again');
      }
      if (!(await sleep(TRY_AGAIN_MS, this.#abort.signal)) || data.generation !== generation) return;
    }
  }

  async #once(): Promise<void> {
    const { queues, tasks, presence, olderJobs, recentQueues, clock, isLeader, wakeAll, log } = this.#parts;
    await presence.redisLost();
    // What runs is said before what stands in a lane: whoever lent it takes back what stands there without a lease.
    await tasks.redisLost();
    await queues.reopenAll();
    if (isLeader()) {
      for (const queue of await recentQueues(clock.nowMs() - RECENT_MS)) await olderJobs.sweep(queue);
    }
    wakeAll();
    log.info('Redis is rebuilt: settings, leases, and queues without what is over');
  }
}
