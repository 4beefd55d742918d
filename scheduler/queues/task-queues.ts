// The queues of tasks as the rest of the scheduler sees them: one queue per deployment, else per stub. Dispatch fetches and finishes, the
// service adds, the reaper and the sweeps give back. What must stay true: every call that ends or moves a fetched job is fenced by the lock
// token it was fetched with, so a superseded attempt changes nothing; and nothing here loops or holds a connection of its own per queue.
import type { LockToken, QueueName, TaskId } from '#shared/domain/ids.ts';
import type { TaskJob } from './jobs.ts';

/** How long a fetched job stays locked unless renewed. */
export const LOCK_MS = 120_000;
/** A lock token shorter than this is refused: short ones (`'0'`) would pass by the fence. */
export const MIN_LOCK_TOKEN_LENGTH = 32;

/**
 * What a fenced call found. `done`: it is done. `gone` (-1): the job was finished or removed. `superseded` (-6): another attempt holds it.
 * `expired` (-2): the lock ran out; leave the job to the stall scan.
 */
export type Fence =
  | { readonly kind: 'done' }
  | { readonly kind: 'gone' }
  | { readonly kind: 'superseded' }
  | { readonly kind: 'expired' };

export interface QueueDepth {
  readonly waiting: number;
  readonly active: number;
  readonly delayed: number;
  readonly prioritized: number;
}

/** Waiting, active, delayed and prioritised together: what `maxPendingTasks` bounds and the autoscaler counts. */
export function totalOf(depth: QueueDepth): number {
  return depth.waiting + depth.active + depth.delayed + depth.prioritized;
}

export interface Fetched {
  /** Absent: nothing was ready. */
  readonly job: TaskJob | undefined;
  /** How often this job was fetched since it was added, this time included; the attempt's number is `job.attempts + starts`. 0 without a job. */
  readonly starts: number;
  /** Lent by the replica that accepted it: its lease says whether it may be sent, and nothing is decided about it before that. Absent: it is not. */
  readonly isLent?: true;
  /** Epoch milliseconds at which the queue's next delayed job is due; told only by an empty fetch. */
  readonly nextDueMs: number | undefined;
}

export interface Added {
  /** Waiting, active, delayed and prioritised, this job and those added before it included. */
  readonly depth: number;
  /** False: it was refused, and is nowhere. */
  readonly isIn: boolean;
  /** Another replica has room for it and was told: nobody needs to be woken. Absent: it waits for whoever fetches it. */
  readonly isLent?: true;
}

/** Where a job lies: `position` 1 is the next one, undefined further back than is counted; `dueMs` in epoch milliseconds; gone: not in the queue. */
export type JobPlace =
  | { readonly kind: 'waiting'; readonly position: number | undefined }
  | { readonly kind: 'delayed'; readonly dueMs: number }
  | { readonly kind: 'active' }
  | { readonly kind: 'gone' };

/** One lock to renew. */
export interface HeldLock {
  readonly queue: QueueName;
  readonly taskId: TaskId;
  readonly lock: LockToken;
}

/**
 * The queue adapter's whole surface. Every call has a deadline (the client's command timeout) and throws AppError `queues_unavailable` when
 * Redis does not answer; a fenced call answers with a {@link Fence} instead of throwing. A lock token below {@link MIN_LOCK_TOKEN_LENGTH}
 * characters is a programming error and throws a TypeError.
 */
export interface TaskQueues {
  /** Makes the queue usable: its settings are written before the first add. Repeating it costs nothing. */
  open(queue: QueueName): Promise<void>;
  /** Writes the settings of every queue open here again: after Redis lost its data, before the next add. */
  reopenAll(): Promise<void>;
  /**
   * Adds a job under a new id and reads the depth after it, in one round trip; the adds of one turn of the event loop share the reading, each with its own depth.
   * An add that throws is undone in the background when it did happen, unless the same id is added again.
   * @param bound - most tasks that may be pending with this one; absent: any number. Whoever can judge it refuses the job; else it is added all the same, and the caller takes it out again
   */
  add(queue: QueueName, job: TaskJob, bound?: number): Promise<Added>;
  /** Adds a job that was there before. Where it still is, nothing changes (its first data stay). Not counted against any bound. */
  addAgain(queue: QueueName, job: TaskJob): Promise<void>;
  /** Takes a job that nobody holds out of its queue. False: it is held, or not there. */
  remove(queue: QueueName, taskId: TaskId): Promise<boolean>;
  /** Makes the next ready job active under `lock` (120 s). A fetch whose answer is lost is looked up later and given back. */
  fetch(queue: QueueName, lock: LockToken): Promise<Fetched>;
  /** Sets the locks to run out in `ms`. @returns those that could not be renewed (lost, superseded or finished), as they were given */
  renew(held: readonly HeldLock[], ms: number): Promise<readonly HeldLock[]>;
  /** Ends the job: it leaves the queue. The result goes its own way, never through the queue. */
  complete(queue: QueueName, taskId: TaskId, lock: LockToken): Promise<Fence>;
  /** Ends the job as failed or cancelled; `reason` is for whoever watches the queue. Never retried by the queue. */
  fail(queue: QueueName, taskId: TaskId, lock: LockToken, reason: string): Promise<Fence>;
  /**
   * Puts the job off until `untilMs` (epoch milliseconds). Nobody wakes up by itself then: the caller owns the due time.
   * @param changed - replaces what the job carries, in the same fenced step (a user retry counts itself there)
   */
  delay(queue: QueueName, taskId: TaskId, lock: LockToken, untilMs: number, changed?: TaskJob): Promise<Fence>;
  /**
   * Back to the queue, first in line.
   * @param changed - replaces what the job carries, just before (a loss is counted there); not fenced, so only for who has seen that the lock is its own
   */
  giveBack(queue: QueueName, taskId: TaskId, lock: LockToken, changed?: TaskJob): Promise<Fence>;
  /**
   * Gives a task back without Redis, where its place in line is this process's to say: a task of the local queue that was never sent.
   * @returns false: its place is in Redis, or at the replica that lent it
   */
  letGo(queue: QueueName, taskId: TaskId, lock: LockToken): boolean;
  /** This process has nothing to do with the attempt any more: another replica has it, or its end could not be written. */
  disown(queue: QueueName, taskId: TaskId): void;
  /** The token that holds the job now. */
  lockOf(queue: QueueName, taskId: TaskId): Promise<LockToken | undefined>;
  /** The job as it lies in the queue, held or not. */
  read(queue: QueueName, taskId: TaskId): Promise<TaskJob | undefined>;
  /** For whoever asks where his task is; its cost grows with the queue (up to 10 000 places), so not for the way of a task. */
  placeOf(queue: QueueName, taskId: TaskId): Promise<JobPlace>;
  depth(queue: QueueName): Promise<QueueDepth>;
  /** All in one round trip, in the order asked. */
  depths(queues: readonly QueueName[]): Promise<readonly QueueDepth[]>;
  /** Ids of fetched jobs, newest first; at most `limit` (1 000) of them. */
  activeIds(queue: QueueName, limit?: number): Promise<readonly TaskId[]>;
  /** Fetched jobs with the locks that hold them, newest first; at most `limit` (1 000) of them. */
  held(queue: QueueName, limit?: number): Promise<readonly HeldLock[]>;
  /** Ids of jobs that nobody has fetched, put off or not; at most `limit` (100 000) of each kind. */
  waitingIds(queue: QueueName, limit?: number): Promise<readonly TaskId[]>;
  /** Brings jobs back whose lock ran out (two passes, at least 30 s apart, each effective once per 30 s over all replicas). @returns ids moved */
  scanStalled(queue: QueueName): Promise<readonly TaskId[]>;
  /** Deletes the queue with everything in it: its deployment was deleted. */
  obliterate(queue: QueueName): Promise<void>;
  /** Stops the repairs; the client given stays open, it is the caller's. */
  close(): Promise<void>;
}
