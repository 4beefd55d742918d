// Jobs of committed tasks that are in no queue. Their owner, the process that accepted them, adds them (queueing.ts).
// The leader adds those of an owner that is dead, from its mark in Redis on, and of all owners after a loss of Redis's
// data. So the cost grows with what may be lost, and not with what waits. Only tasks without an attempt are looked at:
// the sweep has the others. A job that is added twice changes nothing, and its fetch looks at the task's row.
import type { InstanceId, QueueName, TaskId } from '#shared/domain/ids.ts';
import { Listeners } from '#shared/listeners.ts';
import type { Log } from '#shared/log.ts';
import type { AddedMarks } from '../../stores/queues/added-marks.ts';
import { parseTaskJob } from '../../stores/queues/jobs.ts';
import type { TaskQueues } from '../../stores/queues/task-queues.ts';
import type { Db } from '../../stores/store/db.ts';
import { DEADLINES } from '../../stores/store/limits.ts';
import { acceptedJobsOf, taskOwners, unbegunTasksOf } from '../../stores/store/queries/tasks.ts';
import type { UnbegunTask } from '../../stores/store/queries/tasks.ts';
import type { Leases } from '../dispatch/leases.ts';

const PAGE = 500;
/** Milliseconds before a mark from which on tasks are looked at all the same: clocks of replicas are corrected. */
const MARGIN_MS = 60_000;
/** Time for which a dead owner is looked at: a commit that it had sent has its deadline at the database by then. */
const LAST_COMMIT_MS = DEADLINES.queryMs + 5_000;

export interface MissingJobsParts {
  readonly db: Db;
  readonly queues: Pick<TaskQueues, 'missing' | 'addAgain' | 'open'>;
  readonly leases: Pick<Leases, 'heldAmong'>;
  readonly marks: Pick<AddedMarks, 'read' | 'write' | 'forget' | 'rowsChecked'>;
  readonly isAlive: (replica: InstanceId) => boolean | Promise<boolean>;
  /** False for a while after Redis lost its data: every replica says first what it runs. */
  readonly mayRebuild?: () => boolean;
  /** Number that grows with each loss of Redis data. */
  readonly generation?: () => number;
  readonly log: Log;
  /** Most rows in one page; tests make it small. */
  readonly batch?: number;
}

export class MissingJobs {
  readonly #parts: MissingJobsParts;
  readonly #returned = new Listeners<[QueueName]>();
  /** Dead owners, and when this leader first looked at their tasks, in monotonic milliseconds. */
  #dead = new Map<InstanceId, number>();

  constructor(parts: MissingJobsParts) {
    this.#parts = parts;
  }

  /** Told of each queue that got jobs. */
  onReturned(listener: (queue: QueueName) => void): void {
    this.#returned.add(listener);
  }

  /** Runs one round. @returns how many jobs were added */
  async round(signal?: AbortSignal): Promise<number> {
    const { db, marks, isAlive, mayRebuild = () => true, generation = () => 0 } = this.#parts;
    const before = generation();
    const owners = await taskOwners(db);
    const { rowsChecked, addedTo } = await marks.read();
    let added = 0;
    if (!rowsChecked) {
      if (!mayRebuild()) return 0;
      for (const owner of owners) added += await this.#addMissing(owner, 0, signal);
      if (signal?.aborted === true || generation() !== before) return added;
      await marks.rowsChecked();
    }
    const alive = new Set<InstanceId>();
    for (const owner of new Set([...owners, ...addedTo.keys()])) if (await isAlive(owner)) alive.add(owner);
    for (const owner of owners) {
      const sinceMs = this.#dead.get(owner) ?? performance.now();
      if (alive.has(owner) || performance.now() - sinceMs > LAST_COMMIT_MS) continue;
      added += await this.#addMissing(owner, (addedTo.get(owner) ?? MARGIN_MS) - MARGIN_MS, signal);
      if (signal?.aborted === true) return added;
      this.#dead.set(owner, sinceMs);
    }
    this.#dead = new Map([...this.#dead].filter(([owner]) => owners.includes(owner) && !alive.has(owner)));
    await marks.forget([...addedTo.keys()].filter((owner) => !alive.has(owner) && !owners.includes(owner)));
    return added;
  }

  /** Adds the missing jobs of an owner's tasks that were accepted since then. @returns how many there were */
  async #addMissing(owner: InstanceId, sinceMs: number, signal: AbortSignal | undefined): Promise<number> {
    const { db, log, batch = PAGE } = this.#parts;
    let added = 0;
    let page: readonly UnbegunTask[];
    let after: UnbegunTask | undefined;
    do {
      page = await unbegunTasksOf(db, owner, sinceMs, batch, after);
      added += await this.#addOf(page);
      after = page.at(-1);
    } while (page.length === batch && signal?.aborted !== true);
    if (added > 0) log.warn({ owner, added }, 'tasks without a job are queued again');
    return added;
  }

  async #addOf(page: readonly UnbegunTask[]): Promise<number> {
    const { db, queues, leases } = this.#parts;
    const missing = await queues.missing(page);
    // An external runner has taken the task out of its queue, or an attempt runs whose job was lost.
    const held = await leases.heldAmong(missing);
    const texts = await acceptedJobsOf(
      db,
      missing.filter((taskId) => !held.has(taskId)),
    );
    const queueOf = new Map<TaskId, QueueName>(page.map(({ taskId, queue }) => [taskId, queue]));
    const jobs = texts.map(parseTaskJob).map((job) => ({ job, queue: queueOf.get(job.taskId) as QueueName }));
    const names = new Set(jobs.map(({ queue }) => queue));
    await Promise.all([...names].map((queue) => queues.open(queue)));
    await Promise.all(jobs.map(({ job, queue }) => queues.addAgain(queue, { ...job, isFromRow: true })));
    for (const queue of names) this.#returned.tell(queue);
    return jobs.length;
  }
}
