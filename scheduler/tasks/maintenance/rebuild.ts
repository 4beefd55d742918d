// Rebuild of Redis after it lost its data. Each replica writes its queues' settings, spilled records and its attempts'
// leases again, and wakes the queues it serves. The leader removes the jobs of ended tasks: a job that is fetched is
// looked at then (dispatch/earlier-jobs.ts), but nobody may fetch from its queue. Waiting asynchronous tasks come back
// from their rows (missing-jobs.ts).
import type { QueueName, TaskId } from '#shared/domain/ids.ts';
import { sleep } from '#shared/backoff.ts';
import { Listeners } from '#shared/listeners.ts';
import type { Log } from '#shared/log.ts';
import type { AddedMarks } from '../../stores/queues/added-marks.ts';
import type { RedisData } from '../../stores/queues/redis-data.ts';
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
  readonly data: Pick<RedisData, 'onLost' | 'generation'>;
  readonly queues: Pick<TaskQueues, 'reopenAll' | 'waitingIds' | 'activeIds' | 'remove' | 'lockOf' | 'fail'>;
  readonly renewal: WrittenAgain['renewal'];
  readonly records: WrittenAgain['records'] & Pick<TaskRecords, 'ended'>;
  readonly marks: Pick<AddedMarks, 'rowsDoubtful'>;
  /**
   * Presence of this replica, which is written first: a caller who waits on a replica that nobody finds counts as gone.
   */
  readonly presence: { redisLost(): Promise<void> };
  /**
   * Queues of tasks that ended within the hour, a page at a time. An older
   * Redis is not older than that, since it writes its file every second.
   */
  readonly endedQueues: (after?: EndedCursor) => Promise<EndedQueues>;
  readonly log: Log;
  readonly isLeader: () => boolean;
  readonly tryAgainMs?: number;
}

const TRY_AGAIN_MS = 1_000;
const BATCH = 500;
/** Most active jobs looked at; the stall scan returns or removes the rest. */
const MOST_ACTIVE = 10_000;

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

  constructor(parts: RebuildParts) {
    this.#parts = parts;
  }

  /** Told when jobs are back: every queue may have some. */
  onRebuilt(listener: () => void): void {
    this.#rebuilt.add(listener);
  }

  start(): void {
    this.#off = this.#parts.data.onLost(() => void this.#run());
  }

  stop(): void {
    this.#off?.();
    this.#abort.abort();
  }

  async #run(): Promise<void> {
    const { generation } = this.#parts.data;
    const progress: Progress = { swept: new Set(), after: undefined };
    if (!(await this.#until(generation, () => this.#own()))) return;
    await this.#until(generation, () => this.#takeOutEnded(progress, generation));
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

  /** Writes the facts that only this replica knows. */
  async #own(): Promise<void> {
    const { queues, presence, marks, log } = this.#parts;
    await presence.redisLost();
    await marks.rowsDoubtful();
    await writeAgain(this.#parts);
    await queues.reopenAll();
    this.#rebuilt.tell();
    log.info('Redis is rebuilt: settings and leases');
  }

  /**
   * Removes the jobs of ended tasks, on the leader; goes on where the
   * try before stopped. A later loss of data starts over by itself.
   */
  async #takeOutEnded(progress: Progress, generation: number): Promise<void> {
    const { data, endedQueues, isLeader, log } = this.#parts;
    for (;;) {
      if (this.#abort.signal.aborted || !isLeader() || data.generation !== generation) return;
      const page = await endedQueues(progress.after);
      for (const queue of page.queues) {
        if (progress.swept.has(queue)) continue;
        await this.#sweep(queue);
        progress.swept.add(queue);
      }
      if (page.next === undefined) break;
      progress.after = page.next;
    }
    log.info({ queues: progress.swept.size }, 'jobs of tasks that are over have left their queues');
  }

  /** Removes the jobs of ended tasks from a queue, also those locked by attempts whose end Redis has forgotten. */
  async #sweep(queue: QueueName): Promise<void> {
    const { queues, log } = this.#parts;
    let removed = 0;
    for await (const taskId of this.#endedAmong(await queues.waitingIds(queue)))
      if (await queues.remove(queue, taskId)) removed += 1;
    for await (const taskId of this.#endedAmong(await queues.activeIds(queue, MOST_ACTIVE))) {
      const lock = await queues.lockOf(queue, taskId);
      if (lock !== undefined && (await queues.fail(queue, taskId, lock, 'ended before')).kind === 'done') removed += 1;
    }
    if (removed > 0) log.warn({ queue, removed }, 'jobs of tasks that are over were taken out of their queue');
  }

  async *#endedAmong(taskIds: readonly TaskId[]): AsyncIterable<TaskId> {
    const { records } = this.#parts;
    for (let at = 0; at < taskIds.length; at += BATCH) yield* await records.ended(taskIds.slice(at, at + BATCH));
  }
}
