// Look at fetched jobs whose tasks may have an attempt or an end already: jobs that were fetched before, and jobs from
// before this process knew the data of Redis, which may have come back older. Such a job is sent only where no replica
// has its task and its row has not ended. Rows are read behind the answers, because an attempt that ends leaves its
// replica's memory no sooner than its record is made. Jobs of one turn, and those that come during a look, share one.
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { InstanceId, TaskId } from '#shared/domain/ids.ts';
import type { RedisData } from '../../stores/queues/redis-data.ts';
import type { FetchedJob } from '../../stores/queues/task-queues.ts';
import type { TaskRecords } from '../records/records.ts';

/** Largest difference between clocks of replicas, in milliseconds (agents have the same bound). */
const CLOCK_SKEW_MS = 30_000;
/** Most tasks in one question. */
const MOST_TOGETHER = 500;

/** State of a task whose job was fetched; `unknown`: a replica or a store does not answer now. */
export type Standing = 'waits' | 'runs' | 'ended' | 'unknown';

export interface EarlierJobsParts {
  /** Absent: Redis never comes back older. */
  readonly redisData?: Pick<RedisData, 'knownSinceMs'> | undefined;
  /** Which of these tasks some replica has; undefined: a present one did not answer. */
  readonly whoHas: (taskIds: readonly TaskId[]) => Promise<ReadonlySet<TaskId> | undefined>;
  readonly records: Pick<TaskRecords, 'endedSurely'>;
  readonly instance: InstanceId;
}

export class EarlierJobs {
  readonly #parts: EarlierJobsParts;
  readonly #asked = new Map<TaskId, PromiseWithResolvers<Standing>>();
  #isLooking = false;

  constructor(parts: EarlierJobsParts) {
    this.#parts = parts;
  }

  /** Whether nobody can have begun the job's task: it was made since the data are known, and is fetched first. */
  isNew({ job, starts }: Pick<FetchedJob, 'job' | 'starts'>): boolean {
    const { redisData, instance } = this.#parts;
    if (starts > 1 || job.attempts > 0 || job.isFromRow === true) return false;
    if (redisData === undefined) return true;
    return job.createdAtMs > redisData.knownSinceMs + (job.replica === instance ? 0 : CLOCK_SKEW_MS);
  }

  /** State of the task. @throws when the database does not answer */
  look(taskId: TaskId): Promise<Standing> {
    const asked = this.#asked.get(taskId) ?? Promise.withResolvers<Standing>();
    this.#asked.set(taskId, asked);
    if (!this.#isLooking) void this.#lookAtAll();
    return asked.promise;
  }

  async #lookAtAll(): Promise<void> {
    this.#isLooking = true;
    while (this.#asked.size > 0) {
      await nextTurn();
      const batch = [...this.#asked].slice(0, MOST_TOGETHER);
      for (const [taskId] of batch) this.#asked.delete(taskId);
      try {
        const standingOf = await this.#look(batch.map(([taskId]) => taskId));
        for (const [taskId, { resolve }] of batch) resolve(standingOf(taskId));
      } catch (error) {
        for (const [, { reject }] of batch) reject(error);
      }
    }
    this.#isLooking = false;
  }

  async #look(taskIds: readonly TaskId[]): Promise<(taskId: TaskId) => Standing> {
    const had = await this.#parts.whoHas(taskIds);
    if (had === undefined) return () => 'unknown';
    const { over, isComplete } = await this.#parts.records.endedSurely(taskIds);
    const ended = new Set(over);
    return (taskId) => {
      if (ended.has(taskId)) return 'ended';
      if (had.has(taskId)) return 'runs';
      return isComplete ? 'waits' : 'unknown';
    };
  }
}
