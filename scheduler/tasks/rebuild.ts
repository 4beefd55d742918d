// After Redis lost its data: each replica writes the settings of its queues and the leases of what it runs again, and wakes what it serves; the leader takes jobs out whose tasks are over, also from queues
// that nobody fetches from. Waiting asynchronous tasks come back from their rows (sweep.ts), after every replica had the time to say what it runs.
import type { QueueName } from '#shared/domain/ids.ts';
import type { Clock } from '#shared/clock.ts';
import { sleep } from '#shared/backoff.ts';
import type { Log } from '#shared/log.ts';
import type { OlderJobs } from '../queues/older-jobs.ts';
import type { RedisData } from '../queues/redis-data.ts';
import type { RollCall } from '../queues/roll-call.ts';
import type { TaskQueues } from '../queues/task-queues.ts';
import type { EndedCursor } from '../store/queries/tasks.ts';

export interface EndedQueues {
  readonly queues: readonly QueueName[];
  /** Where the next page begins; absent: there is none. */
  readonly next?: EndedCursor;
}

export interface RebuildParts {
  readonly data: Pick<RedisData, 'onLost' | 'generation' | 'lostAtMs' | 'sure'>;
  readonly rollCall: Pick<RollCall, 'call'>;
  readonly queues: Pick<TaskQueues, 'reopenAll'>;
  readonly tasks: { redisLost(): Promise<void>; allHaveSaid(lostAtMs: number): Promise<void> };
  /** This replica's, first of all: a caller who waits on a replica that nobody finds counts as gone. */
  readonly presence: { redisLost(): Promise<void> };
  readonly olderJobs: Pick<OlderJobs, 'sweep'>;
  /** Queues of tasks that ended within the hour, a page at a time: an older Redis is not older than that, for it writes its file every second. */
  readonly endedQueues: (after?: EndedCursor) => Promise<EndedQueues>;
  readonly clock: Clock;
  readonly log: Log;
  readonly isLeader: () => boolean;
  readonly wakeAll: () => void;
  readonly settleMs?: number;
  readonly tryAgainMs?: number;
}

/** Every replica notices within a second or two, and renews its locks within 30 s in any case. */
const SETTLE_MS = 35_000;
const TRY_AGAIN_MS = 1_000;

/** How far the rebuild after one loss has come. */
interface Progress {
  /** No more than queues had a task that ended within the hour. */
  readonly swept: Set<QueueName>;
  after: EndedCursor | undefined;
}

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
    // Whoever rebuilds waits for this replica's word, too; it has nothing yet.
    void this.#first();
  }

  async #first(): Promise<void> {
    const { data } = this.#parts;
    await data.sure();
    const { generation } = data;
    if (generation === 0) await this.#until(generation, () => this.#callRoll(generation));
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
    const { clock, data } = this.#parts;
    const { generation } = data;
    this.#lostAtMs = clock.monotonicMs();
    const progress: Progress = { swept: new Set(), after: undefined };
    if (!(await this.#until(generation, () => this.#own()))) return;
    void this.#until(generation, () => this.#callRoll(generation));
    await this.#until(generation, () => this.#takeOutEnded(progress, () => data.generation === generation));
  }

  /** Tried until it succeeds. @returns false: the data were lost once more, or this process stops */
  async #until(generation: number, work: () => Promise<void>): Promise<boolean> {
    const { data, tryAgainMs = TRY_AGAIN_MS, log } = this.#parts;
    for (;;) {
      try {
        await work();
        return true;
      } catch (error) {
        log.warn({ err: error }, 'Redis is not rebuilt yet, trying again');
      }
      if (!(await sleep(tryAgainMs, this.#abort.signal)) || data.generation !== generation) return false;
    }
  }

  /** What this replica alone knows. Queues are served before what is over has left them: no fetch overtakes that (older-jobs.ts). */
  async #own(): Promise<void> {
    const { queues, tasks, presence, wakeAll, log } = this.#parts;
    await presence.redisLost();
    // What runs is said before what stands in a lane: whoever lent it takes back what stands there without a lease.
    await tasks.redisLost();
    await queues.reopenAll();
    wakeAll();
    log.info('Redis is rebuilt: settings and leases');
  }

  /** From here on the others may count on that. */
  async #callRoll(generation: number): Promise<void> {
    const { rollCall, tasks, data } = this.#parts;
    if (await rollCall.call(generation)) await tasks.allHaveSaid(data.lostAtMs);
  }

  /** The leader's; it goes on where the try before it stopped. A later loss of data starts over by itself. */
  async #takeOutEnded(progress: Progress, isNewest: () => boolean): Promise<void> {
    const { olderJobs, endedQueues, isLeader, log } = this.#parts;
    for (;;) {
      if (this.#abort.signal.aborted || !isLeader() || !isNewest()) return;
      const page = await endedQueues(progress.after);
      for (const queue of page.queues) {
        if (progress.swept.has(queue)) continue;
        await olderJobs.sweep(queue);
        progress.swept.add(queue);
      }
      if (page.next === undefined) break;
      progress.after = page.next;
    }
    log.info({ queues: progress.swept.size }, 'jobs of tasks that are over have left their queues');
  }
}
