// Rebuild of Redis after it lost its data. Each replica writes its queues' settings, spilled records and its
// attempts' leases again, and wakes the queues it serves. The leader removes the jobs of
// ended tasks, also from queues that nobody fetches from. Waiting asynchronous tasks come back
// from their rows (missing-jobs.ts), after every replica had the time to say what it runs.
import type { QueueName } from '#shared/domain/ids.ts';
import type { Clock } from '#shared/clock.ts';
import { sleep } from '#shared/backoff.ts';
import { Listeners } from '#shared/listeners.ts';
import type { Log } from '#shared/log.ts';
import type { AddedMarks } from '../../stores/queues/added-marks.ts';
import type { OlderJobs } from '../../stores/queues/older-jobs.ts';
import type { RedisData } from '../../stores/queues/redis-data.ts';
import type { RollCall } from '../../stores/queues/roll-call.ts';
import type { TaskQueues } from '../../stores/queues/task-queues.ts';
import type { EndedCursor } from '../../stores/store/queries/tasks.ts';
import type { TaskRecords } from '../records/records.ts';
import type { Renewal } from './renewal.ts';

export interface EndedQueues {
  readonly queues: readonly QueueName[];
  /** Beginning of the next page; absent: there is none. */
  readonly next?: EndedCursor;
}

/** Parts of a replica that know its attempts and what it spilled. */
export interface WrittenAgain {
  readonly renewal: Pick<Renewal, 'restoreAll'>;
  readonly records: Pick<TaskRecords, 'redisLost'>;
}

/**
 * Writes again what Redis may have lost: leases of attempts here, and spilled records.
 * The ends of tasks are in their rows, by which their jobs leave the queues.
 * @throws AppError `queues_unavailable`
 */
export async function writeAgain({ renewal, records }: WrittenAgain): Promise<void> {
  await renewal.restoreAll();
  await records.redisLost();
}

export interface RebuildParts {
  readonly data: Pick<RedisData, 'onLost' | 'generation' | 'sure'>;
  readonly rollCall: Pick<RollCall, 'call'>;
  readonly queues: Pick<TaskQueues, 'reopenAll'>;
  readonly renewal: WrittenAgain['renewal'];
  readonly records: WrittenAgain['records'];
  readonly marks: Pick<AddedMarks, 'rowsDoubtful'>;
  /**
   * Presence of this replica, which is written first: a caller who waits on a replica that nobody finds counts as gone.
   */
  readonly presence: { redisLost(): Promise<void> };
  readonly olderJobs: Pick<OlderJobs, 'sweep'>;
  /**
   * Queues of tasks that ended within the hour, a page at a time. An older
   * Redis is not older than that, since it writes its file every second.
   */
  readonly endedQueues: (after?: EndedCursor) => Promise<EndedQueues>;
  readonly clock: Clock;
  readonly log: Log;
  readonly isLeader: () => boolean;
  readonly settleMs?: number;
  readonly tryAgainMs?: number;
}

/**
 * Time until every replica has said what it runs, in milliseconds. Each notices
 * the loss within a second or two, and renews its locks within 30 s in any case.
 */
const SETTLE_MS = 35_000;
const TRY_AGAIN_MS = 1_000;

/** Progress of the rebuild after one loss. */
interface Progress {
  /** Queues done; no more than queues had a task that ended within the hour. */
  readonly swept: Set<QueueName>;
  after: EndedCursor | undefined;
}

export class Rebuild {
  readonly name = 'rebuild';
  readonly #parts: RebuildParts;
  readonly #abort = new AbortController();
  readonly #rebuilt = new Listeners<[]>();
  #off: (() => void) | undefined;
  #lostAtMs = -Infinity;

  constructor(parts: RebuildParts) {
    this.#parts = parts;
  }

  /** Told when jobs are back: every queue may have some. */
  onRebuilt(listener: () => void): void {
    this.#rebuilt.add(listener);
  }

  start(): void {
    this.#off = this.#parts.data.onLost(() => void this.#run());
    // A replica that rebuilds also waits for the word of this one, which has nothing yet.
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

  /** Whether a task that is in no queue may count as lost. */
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

  /** Repeats the work until it succeeds. @returns false: the data were lost once more, or this process stops */
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

  /**
   * Writes the facts that only this replica knows. Queues are served before jobs
   * of ended tasks have left them; no fetch precedes that check (older-jobs.ts).
   */
  async #own(): Promise<void> {
    const { queues, presence, marks, log } = this.#parts;
    await presence.redisLost();
    await marks.rowsDoubtful();
    await writeAgain(this.#parts);
    await queues.reopenAll();
    this.#rebuilt.tell();
    log.info('Redis is rebuilt: settings and leases');
  }

  /** Says that this replica has written again what it has, so that the others may count on that. */
  async #callRoll(generation: number): Promise<void> {
    await this.#parts.rollCall.call(generation);
  }

  /**
   * Removes the jobs of ended tasks, on the leader; goes on where the
   * try before stopped. A later loss of data starts over by itself.
   */
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
