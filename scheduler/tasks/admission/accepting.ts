// Group commit: writes of single tasks reach the database many in one statement. A write that arrives during
// a commit joins the next one. Asynchronous tasks are committed this way before their ids are returned.
import type { TaskJob } from '../../stores/queues/jobs.ts';
import { encodeTaskJob } from '../../stores/queues/jobs.ts';
import type { Queryable } from '../../stores/store/db.ts';
import { isNeverSent } from '../../stores/store/limits.ts';
import { GroupedWrites } from '../../stores/store/grouped-writes.ts';
import { insertRedriven } from '../../stores/store/queries/dead-letters.ts';
import type { AcceptedTask } from '../../stores/store/queries/tasks.ts';
import { MAX_TASK_BATCH, updateAcceptedJobs } from '../../stores/store/queries/tasks.ts';
import type { KeyClaim } from './idempotency.ts';
import type { IdempotencyKeys } from './idempotency-keys.ts';

/** Most writes that wait, twenty batches: a database that is further behind takes no more. */
const MOST_WAITING = 20 * MAX_TASK_BATCH;
/** Milliseconds after which a commit counts as stalled; an ordinary one takes milliseconds. */
const STALLED_MS = 2_000;
/** Milliseconds for which others are refused after the database took no connection. */
const UNREACHED_MS = 1_000;

export class GroupCommit<T> {
  readonly #writes: GroupedWrites<T, undefined>;

  constructor(write: (tasks: readonly T[]) => Promise<void>, mostWaiting = MOST_WAITING) {
    this.#writes = new GroupedWrites({
      write: async (tasks) => {
        await write(tasks);
        return tasks.map(() => undefined);
      },
      mostAtOnce: MAX_TASK_BATCH,
      mostWaiting,
      what: 'tasks',
    });
  }

  /**
   * Resolves once the task's row is committed.
   * @throws the error of `write`; AppError `database_unavailable` when too many wait
   */
  commit(task: T): Promise<void> {
    return this.#writes.write(task);
  }
}

export interface CommitsParts {
  /** Group commit for rows of asynchronous tasks, before their ids are returned. */
  readonly accepting: Pick<GroupCommit<AcceptedTask>, 'commit'>;
  readonly idempotencyKeys?: Pick<IdempotencyKeys, 'commit'> | undefined;
  /** Commits tasks that stand for dead ones, each if that one is dead. Absent: none is. */
  readonly redrives?: ReturnType<typeof redriveCommits> | undefined;
  readonly nowMs?: () => number;
}

/** Commits of rows, with the keys of their calls. */
export class Commits {
  readonly #parts: CommitsParts;
  readonly #nowMs: () => number;
  /** Start of each commit under way, the oldest first. */
  readonly #underWay = new Map<AcceptedTask, number>();
  #unreachedAtMs = -Infinity;

  constructor(parts: CommitsParts) {
    this.#parts = parts;
    this.#nowMs = parts.nowMs ?? (() => performance.now());
  }

  /** Whether the database is so slow, or away, that others are refused before they wait, or store their inputs. */
  isStalled(): boolean {
    const nowMs = this.#nowMs();
    const [oldestMs = Infinity] = this.#underWay.values();
    return nowMs - oldestMs >= STALLED_MS || nowMs - this.#unreachedAtMs < UNREACHED_MS;
  }

  /**
   * Commits the row of an asynchronous task, with its key.
   * @returns false: nothing is written, because the key is another task's by now, or gone, or the task that this one
   *   stands for is not dead
   * @throws when the row is not written, or nobody knows whether it is
   */
  async commit(task: AcceptedTask, claim: KeyClaim | undefined): Promise<boolean> {
    this.#underWay.set(task, this.#nowMs());
    try {
      if (task.record.redrivenFrom !== undefined) return (await this.#parts.redrives?.write(task)) === true;
      if (claim === undefined) {
        await this.#parts.accepting.commit(task);
        return true;
      }
      const { workspaceId, scope, key } = claim;
      return (await this.#parts.idempotencyKeys?.commit({ ...task, key: { workspaceId, scope, key } })) === true;
    } catch (error) {
      if (isNeverSent(error)) this.#unreachedAtMs = this.#nowMs();
      throw error;
    } finally {
      this.#underWay.delete(task);
    }
  }
}

/** Commits tasks that stand for dead ones. @returns false: another one stands for it, or it is not dead */
export function redriveCommits(db: Queryable): Pick<GroupedWrites<AcceptedTask, boolean>, 'write'> {
  return new GroupedWrites<AcceptedTask, boolean>({
    write: async (tasks) => {
      const first = new Map(tasks.toReversed().map((task) => [task.record.redrivenFrom, task]));
      const written = await insertRedriven(db, [...first.values()]);
      return tasks.map(({ record }) => written.has(record.taskId));
    },
    mostAtOnce: MAX_TASK_BATCH,
    mostWaiting: MOST_WAITING,
    what: 'tasks',
  });
}

/** Writes changed queue entries to the rows of their tasks, keeping the last one of each. */
export function keptJobs(db: Queryable): (job: TaskJob) => Promise<void> {
  const commits = new GroupCommit<TaskJob>((batch) =>
    updateAcceptedJobs(
      db,
      batch.map((job) => ({ taskId: job.taskId, job: encodeTaskJob(job) })),
    ),
  );
  return (job) => commits.commit(job);
}
