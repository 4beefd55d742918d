// Queues of asynchronous tasks as the rest of the scheduler sees them: one queue per deployment, else per stub.
// Dispatch fetches and finishes, admission adds, the reaper and the sweeps give back. Invariants:
// every call that ends or moves a fetched job is fenced by the lock token it was fetched with, so a
// superseded attempt changes nothing. Nothing here loops or holds a connection of its own per queue.
import type { LockToken, QueueName, TaskId } from '#shared/domain/ids.ts';
import type { QueueControl } from '../../domain/flow.ts';
import type { TaskJob } from './jobs.ts';

/** Milliseconds for which a fetched job stays locked unless renewed. */
export const LOCK_MS = 120_000;
/** Delayed jobs that are due within this time ask for containers. */
export const DUE_SOON_MS = 10_000;
/** Shortest lock token accepted: a shorter one (`'0'`) would bypass the fence. */
export const MIN_LOCK_TOKEN_LENGTH = 32;

/**
 * Outcome of a fenced call. `done`: it took effect. `gone` (-1): the job was finished or removed. `superseded`
 * (-6): another attempt holds it. `expired` (-2): the lock ran out; leave the job to the stall scan.
 */
export type Fence =
  | { readonly kind: 'done' }
  | { readonly kind: 'gone' }
  | { readonly kind: 'superseded' }
  | { readonly kind: 'expired' };

export interface QueueDepth {
  readonly waiting: number;
  readonly active: number;
  /** Jobs that are ready later, without the held ones. */
  readonly delayed: number;
  readonly prioritized: number;
  /** Jobs that wait until other tasks of their key have ended; they need no container. */
  readonly held: number;
  /** Jobs among `delayed` that are ready within {@link DUE_SOON_MS}: only they need a container. */
  readonly soon: number;
}

/** Jobs that wait for a slot now, run, or are due soon. */
export function inFlightOf(depth: QueueDepth): number {
  return depth.waiting + depth.active + depth.prioritized + depth.soon;
}

/** The same where an operator paused or bounded the queue. */
export function controlledInFlightOf(depth: QueueDepth, control: QueueControl | undefined): number {
  const inFlight = inFlightOf(depth);
  if (control === undefined) return inFlight;
  const most = control.paused ? 0 : (control.limit ?? Infinity);
  return Math.min(inFlight, Math.max(most, depth.active));
}

/** Sum of all jobs, which `maxPendingTasks` bounds. */
export function totalOf(depth: QueueDepth): number {
  return depth.waiting + depth.active + depth.delayed + depth.prioritized + depth.held;
}

export interface FetchedJob {
  readonly job: TaskJob;
  /**
   * Number of fetches of this job since it was added, this one
   * included; the attempt's number is `job.attempts + starts`.
   */
  readonly starts: number;
  readonly nextDueMs: undefined;
}

/** Answer to a fetch that found no ready job. */
export interface NothingFetched {
  readonly job: undefined;
  readonly starts: 0;
  /** Epoch milliseconds at which the queue's next delayed job is due. */
  readonly nextDueMs: number | undefined;
}

export type Fetched = FetchedJob | NothingFetched;

/**
 * Place of a job: `position` 1 is the next one, undefined further back
 * than is counted; `dueMs` in epoch milliseconds; gone: not in the queue.
 */
export type JobPlace =
  | { readonly kind: 'waiting'; readonly position: number | undefined }
  | { readonly kind: 'delayed'; readonly dueMs: number }
  | { readonly kind: 'held'; readonly control: HeldBy }
  | { readonly kind: 'active' }
  | { readonly kind: 'gone' };

/** A control (domain/flow.ts) as it stands. */
export interface HeldBy {
  readonly name: string;
  readonly most: number;
  /** Tasks that have a slot of it, and tasks that wait for one. */
  readonly running: number;
  readonly waiting: number;
}

/** Lock of a fetched job. */
export interface HeldLock {
  readonly queue: QueueName;
  readonly taskId: TaskId;
  readonly lock: LockToken;
}

/** Upkeep of flow control, for the leader (tasks/maintenance/flow-sweep.ts). */
export interface FlowUpkeep {
  /** A page of the tasks under flow control. @param cursor - of the page before; '0': the first */
  page(cursor: string): Promise<{ readonly tasks: readonly FlowTask[]; readonly cursor: string }>;
  /** Where the jobs of the tasks are, in their order. */
  jobsOf(tasks: readonly { readonly queue: QueueName; readonly taskId: TaskId }[]): Promise<readonly JobState[]>;
  /** Lets a held job be ready that has its slots. */
  promote(queue: QueueName, taskId: TaskId): Promise<void>;
  /** Gives free slots of these controls to the tasks that wait. */
  fill(controls: readonly string[]): Promise<void>;
  /** Gives a job its slots, or its place among the held ones; `isActive`: an attempt has it. */
  restore(queue: QueueName, job: TaskJob, isActive: boolean): Promise<void>;
}

/** A task under flow control: it has its slots, or waits for one of that control. */
export interface FlowTask {
  readonly taskId: TaskId;
  readonly queue: QueueName;
  readonly heldBy: string | undefined;
}

/** State of a job: `dueMs` is set while it is delayed. */
export type JobState = { readonly exists: boolean; readonly dueMs: number | undefined };

/**
 * Queue adapter as a whole. Every call has a deadline (the client's command timeout) and throws AppError
 * `queues_unavailable` when Redis does not answer. A fenced call answers with a {@link Fence} instead of throwing.
 * A lock token below {@link MIN_LOCK_TOKEN_LENGTH} characters is a programming error and throws a TypeError.
 */
export interface TaskQueues {
  /** Makes the queue usable: its settings are written before the first add. Repeating it costs nothing. */
  open(queue: QueueName): Promise<void>;
  /** Writes the settings of every open queue again: after Redis lost its data, before the next add. */
  reopenAll(): Promise<void>;
  /** Adds a job that may be there already. A job that exists stays as it is, with its first data. */
  add(queue: QueueName, job: TaskJob): Promise<void>;
  /**
   * Gives a delayed job other data, and delays it until then.
   * @returns false: it is delayed no more, and an attempt that has it may have either data
   */
  putOff(queue: QueueName, job: TaskJob, untilMs: number): Promise<boolean>;
  /**
   * Takes a job that no attempt holds out of its queue.
   * @param isRunning - an external runner has the task from now on: it keeps its slots until {@link release}
   * @returns false: the job is held, or not there
   */
  remove(queue: QueueName, taskId: TaskId, isRunning?: boolean): Promise<boolean>;
  /**
   * Makes the next ready job active under `lock` (120 s). A fetch
   * whose answer is lost is looked up later and given back.
   */
  fetch(queue: QueueName, lock: LockToken): Promise<Fetched>;
  /**
   * Sets the locks to run out in `ms`.
   * @returns the locks that could not be renewed (lost, superseded or finished), as they were given
   */
  renew(held: readonly HeldLock[], ms: number): Promise<readonly HeldLock[]>;
  /** Ends the job: it leaves the queue. The result never goes through the queue. */
  complete(queue: QueueName, taskId: TaskId, lock: LockToken): Promise<Fence>;
  /**
   * Ends the job as failed or cancelled; `reason` is for an operator who watches the queue. The queue never retries it.
   */
  fail(queue: QueueName, taskId: TaskId, lock: LockToken, reason: string): Promise<Fence>;
  /**
   * Delays the job until `untilMs` (epoch milliseconds). The queue wakes nobody then: the caller keeps the due time.
   * @param changed - replaces the job's data, in the same fenced step (a user retry counts itself there)
   */
  delay(queue: QueueName, taskId: TaskId, lock: LockToken, untilMs: number, changed?: TaskJob): Promise<Fence>;
  /**
   * Gives the job back to its queue, first in line.
   * @param changed - replaces the job's data just before (a loss is counted
   * there); not fenced, so the caller must have seen that the lock is its own
   */
  giveBack(queue: QueueName, taskId: TaskId, lock: LockToken, changed?: TaskJob): Promise<Fence>;
  /** Lock token that holds the job now. */
  lockOf(queue: QueueName, taskId: TaskId): Promise<LockToken | undefined>;
  /** Lock tokens that hold these jobs now, in the order asked; all in one command. */
  locksOf(
    tasks: readonly { readonly queue: QueueName; readonly taskId: TaskId }[],
  ): Promise<readonly (LockToken | undefined)[]>;
  /** The tasks among these that have no job in their queue, held or not; all in one round trip. */
  missing(tasks: readonly { readonly queue: QueueName; readonly taskId: TaskId }[]): Promise<readonly TaskId[]>;
  /** Job as stored in the queue, held or not. */
  read(queue: QueueName, taskId: TaskId): Promise<TaskJob | undefined>;
  /**
   * Place of a task, for a user who asks. The cost grows with the
   * queue (up to 10 000 places), so never on the path of a task.
   */
  placeOf(queue: QueueName, taskId: TaskId): Promise<JobPlace>;
  depth(queue: QueueName): Promise<QueueDepth>;
  /** Depths of the queues in one round trip, in the order asked. */
  depths(queues: readonly QueueName[]): Promise<readonly QueueDepth[]>;
  /** Ids of fetched jobs, newest first; at most `limit` (1 000) of them. */
  activeIds(queue: QueueName, limit?: number): Promise<readonly TaskId[]>;
  /** Fetched jobs with the locks that hold them, newest first; at most `limit` (1 000) of them. */
  held(queue: QueueName, limit?: number): Promise<readonly HeldLock[]>;
  /** Ids of jobs that no attempt has fetched, delayed or not; at most `limit` (100 000) of each kind. */
  waitingIds(queue: QueueName, limit?: number): Promise<readonly TaskId[]>;
  /**
   * Brings back jobs whose lock ran out (two passes, at least 30
   * s apart, each effective once per 30 s over all replicas).
   * @returns ids moved
   */
  scanStalled(queue: QueueName): Promise<readonly TaskId[]>;
  /**
   * Pauses or bounds a queue, or lets it go on, in Redis as in this process: each process that knows of it says so.
   * Where Redis does not answer, that is made up for when it does.
   */
  control(queue: QueueName, control: QueueControl): Promise<void>;
  /** Deletes the queue with all its jobs, because its deployment was deleted. */
  obliterate(queue: QueueName): Promise<void>;
  /** Told of queues with a job that is ready at that time. */
  onDelayed(listener: (queue: QueueName, dueMs: number) => void): void;
  /** Told of queues in which a held job is ready now. */
  onReleased(listener: (queue: QueueName, taskId: TaskId) => void): void;
  /** Whether an external runner may begin a waiting task: it is not held. */
  mayBegin(queue: QueueName, job: TaskJob): Promise<boolean>;
  /** Frees the slots of a task without a job, whose external runner is done. */
  release(taskId: TaskId): Promise<void>;
  /** Counts tasks that run here, also beyond the most of their controls: Redis may have lost their slots. */
  countRunning(tasks: readonly { readonly queue: QueueName; readonly job: TaskJob }[]): Promise<void>;
  /** Controls whose names begin so, with most of their tasks waiting first; at most `limit`. */
  controls(prefix: string, limit: number): Promise<readonly Omit<HeldBy, 'most'>[]>;
  /** Counts of these controls, in their order. */
  controlsNamed(names: readonly string[]): Promise<readonly Pick<HeldBy, 'running' | 'waiting'>[]>;
  /** Mends what a loss of data or a killed process left of slots and held jobs. */
  flow(): FlowUpkeep;
  /** Stops the repairs; the given client stays open for the caller to close. */
  close(): Promise<void>;
}
