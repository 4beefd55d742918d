// Jobs of committed tasks that are in no queue. Their owner, the process that accepted them, adds them (queueing.ts).
// The leader adds those of an owner that seems dead, from its mark in Redis on and as long as it seems so: it may go on
// accepting without Redis. It adds those of all owners after a loss of Redis's data. And it walks over all waiting
// tasks, a page for each round, because a job may also be taken out by a process that dies, or that loses Redis's
// answer. Only tasks without an attempt are looked at: the sweep has the others. A task that some replica has is left
// alone. A job that is added twice changes nothing, and its fetch looks at the task's row.
import type { Clock } from '#shared/clock.ts';
import type { InstanceId, QueueName, TaskId } from '#shared/domain/ids.ts';
import { AppError } from '#shared/errors.ts';
import { Listeners } from '#shared/listeners.ts';
import type { Log } from '#shared/log.ts';
import type { AddedMarks } from '../../stores/queues/added-marks.ts';
import { parseTaskJob } from '../../stores/queues/jobs.ts';
import type { TaskQueues } from '../../stores/queues/task-queues.ts';
import type { Db } from '../../stores/store/db.ts';
import { acceptedJobsOf, ownedTasks, taskOwners, unbegunTasksOf } from '../../stores/store/queries/tasks.ts';
import type { OwnedTask, UnbegunTask } from '../../stores/store/queries/tasks.ts';
import type { Leases } from '../dispatch/leases.ts';

const PAGE = 500;
/** Milliseconds before the newest task seen that are looked at again: some commits wait, and clocks are corrected. */
const MARGIN_MS = 120_000;
/** Age from which on the walk over all tasks looks at a task: younger ones are on their way to their queue. */
const WALKED_MS = 60_000;

export interface MissingJobsParts {
  readonly db: Db;
  readonly queues: Pick<TaskQueues, 'missing' | 'add' | 'open'>;
  readonly leases: Pick<Leases, 'heldAmong'>;
  readonly marks: Pick<AddedMarks, 'read' | 'write' | 'forget' | 'rowsChecked'>;
  readonly isAlive: (replica: InstanceId) => boolean | Promise<boolean>;
  /** Which of these tasks some replica has; undefined: a present one did not answer. */
  readonly whoHas: (taskIds: readonly TaskId[]) => Promise<ReadonlySet<TaskId> | undefined>;
  /** Number that grows with each loss of Redis data. */
  readonly generation?: () => number;
  readonly clock: Clock;
  readonly log: Log;
  /** Most rows in one page; tests make it small. */
  readonly batch?: number;
}

/** How far an owner's tasks were looked at. */
interface Looked {
  /** Epoch milliseconds of the newest one. */
  readonly toMs: number;
  /** When it was found, in monotonic milliseconds. */
  readonly sinceMs: number;
}

export class MissingJobs {
  readonly #parts: MissingJobsParts;
  readonly #returned = new Listeners<[QueueName]>();
  /** Owners that seem dead. */
  #looked = new Map<InstanceId, Looked>();
  /** Where the walk over all tasks is. */
  #walked: OwnedTask | undefined;

  constructor(parts: MissingJobsParts) {
    this.#parts = parts;
  }

  /** Told of each queue that got jobs. */
  onReturned(listener: (queue: QueueName) => void): void {
    this.#returned.add(listener);
  }

  /**
   * Runs one round. @returns how many jobs were added
   * @throws when a store does not answer, or a replica whether it has a task without a job
   */
  async round(signal?: AbortSignal): Promise<number> {
    const { db, marks, isAlive, generation = () => 0 } = this.#parts;
    const before = generation();
    const owners = await taskOwners(db);
    const { rowsChecked, addedTo } = await marks.read();
    let added = 0;
    if (!rowsChecked) {
      this.#looked.clear();
      for (const owner of owners) added += await this.#look(owner, 0, signal);
      if (signal?.aborted !== true && generation() === before) await marks.rowsChecked();
      return added;
    }
    const alive = new Set<InstanceId>();
    for (const owner of new Set([...owners, ...addedTo.keys()])) if (await isAlive(owner)) alive.add(owner);
    for (const owner of owners) {
      if (alive.has(owner)) continue;
      added += await this.#look(owner, addedTo.get(owner) ?? 0, signal);
      if (signal?.aborted === true) return added;
    }
    this.#looked = new Map([...this.#looked].filter(([owner]) => owners.includes(owner) && !alive.has(owner)));
    await marks.forget([...addedTo.keys()].filter((owner) => !alive.has(owner) && !owners.includes(owner)));
    return added + (await this.#walk());
  }

  /** Adds the missing jobs of the next page of all tasks. @returns how many there were */
  async #walk(): Promise<number> {
    const { db, clock, log, batch = PAGE } = this.#parts;
    const page = await ownedTasks(db, batch, this.#walked);
    const bornBeforeMs = clock.nowMs() - WALKED_MS;
    const added = await this.#addOf(page.filter((task) => task.rank === 0 && task.createdAtMs < bornBeforeMs));
    this.#walked = page.length < batch ? undefined : page.at(-1);
    if (added > 0) log.warn({ added }, 'tasks whose jobs were lost are queued again');
    return added;
  }

  /**
   * Adds the missing jobs of an owner's tasks that nobody looked at yet, and marks them.
   * @param markedMs - its tasks of before have their jobs; epoch milliseconds
   * @returns how many jobs were added
   */
  async #look(owner: InstanceId, markedMs: number, signal: AbortSignal | undefined): Promise<number> {
    const { db, marks, clock, log, batch = PAGE } = this.#parts;
    const looked = this.#looked.get(owner) ?? { toMs: markedMs, sinceMs: clock.monotonicMs() };
    // Later than the margin nothing older comes, so that a dead owner's tasks are not asked for in every round.
    const isOver = clock.monotonicMs() - looked.sinceMs > MARGIN_MS;
    const fromMs = isOver ? looked.toMs + 1 : looked.toMs - MARGIN_MS;
    let added = 0;
    let { toMs } = looked;
    let page: readonly UnbegunTask[];
    let after: UnbegunTask | undefined;
    do {
      page = await unbegunTasksOf(db, owner, fromMs, batch, after);
      added += await this.#addOf(page);
      after = page.at(-1);
      toMs = Math.max(toMs, after?.createdAtMs ?? 0);
    } while (page.length === batch && signal?.aborted !== true);
    if (added > 0) log.warn({ owner, added }, 'tasks without a job are queued again');
    if (signal?.aborted === true) return added;
    this.#looked.set(owner, toMs > looked.toMs ? { toMs, sinceMs: clock.monotonicMs() } : looked);
    // A leader that follows begins here.
    if (toMs > looked.toMs) await marks.write(owner, toMs);
    return added;
  }

  async #addOf(page: readonly UnbegunTask[]): Promise<number> {
    const { db, queues, leases, whoHas } = this.#parts;
    if (page.length === 0) return 0;
    const missing = await queues.missing(page);
    if (missing.length === 0) return 0;
    const had = await whoHas(missing);
    if (had === undefined)
      throw new AppError('queues_unavailable', 'cannot tell who has tasks without a job: a replica does not answer');
    // An external runner has taken the task out of its queue, or its attempt is between two replicas.
    const held = await leases.heldAmong(missing);
    const texts = await acceptedJobsOf(
      db,
      missing.filter((taskId) => !had.has(taskId) && !held.has(taskId)),
    );
    const queueOf = new Map<TaskId, QueueName>(page.map(({ taskId, queue }) => [taskId, queue]));
    const jobs = texts.map(parseTaskJob).map((job) => ({ job, queue: queueOf.get(job.taskId) as QueueName }));
    const names = new Set(jobs.map(({ queue }) => queue));
    await Promise.all([...names].map((queue) => queues.open(queue)));
    await Promise.all(jobs.map(({ job, queue }) => queues.add(queue, { ...job, isFromRow: true })));
    for (const queue of names) this.#returned.tell(queue);
    return jobs.length;
  }
}
