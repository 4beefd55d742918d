// Changes to tasks from outside: users and external runners start, end and stop tasks, and a deployment
// that stops or goes ends its own. Every change passes the same fences as our own runners' changes.
import type { LockToken, QueueName, StubId, TaskId } from '#shared/domain/ids.ts';
import { isUuid } from '#shared/domain/ids.ts';
import type { TaskStatus } from '#shared/domain/status.ts';
import { isTerminalTask, TASK_STATUSES } from '#shared/domain/status.ts';
import type { Clock } from '#shared/clock.ts';
import { Listeners } from '#shared/listeners.ts';
import type { Log } from '#shared/log.ts';
import type { Leases } from './dispatch/leases.ts';
import type { Replies } from './dispatch/replies.ts';
import type { Caller } from '../workspaces/identity/caller.ts';
import type { TaskQueues } from '../stores/queues/task-queues.ts';
import type { TaskJob } from '../stores/queues/jobs.ts';
import { CANCELLED, COMPLETED, DEPLOYMENT_DELETED, DEPLOYMENT_STOPPED, failureReasonOf } from '../domain/endings.ts';
import type { Ending, FinalStatus } from '../domain/endings.ts';
import { totalOf } from '../stores/queues/task-queues.ts';
import type { Attempt, Attempts } from './dispatch/attempts.ts';
import type { Changes } from './records/changes.ts';
import type { Completion } from './completion/completion.ts';
import type { ForeignRuns } from './foreign-runs.ts';
import { resultTextOf } from './completion/result-text.ts';
import type { RecordRank, TaskRecord, TaskRecords } from './records/records.ts';
import { ENDED_BY, RANK } from './state.ts';
import type { DeploymentEffects } from '../workspaces/deployments/needs.ts';

export type StartOutcome = 'started' | 'refused';
export type EndOutcome = 'ended' | 'unchanged' | 'refused';

export interface EndRequest {
  readonly taskId: string;
  /** Status as given; an unknown one is refused. */
  readonly taskStatus: string;
  /** Container of the attempt; empty: any container that holds the current attempt. */
  readonly containerId: string;
  readonly durationSeconds: number;
  readonly containerHostname: string;
  /** Seconds for which the container stays warm, if longer than the stub's; 0 when absent. */
  readonly keepWarmSeconds: number;
  /** Result of the handler as it came; empty: none. */
  readonly result: Uint8Array;
}

export type StopOutcome =
  | { readonly kind: 'stopped' }
  /** `unknown`: no such task of the caller. `not_cancelled`: the task changed hands again and again meanwhile. */
  | { readonly kind: 'refused'; readonly reason: 'unknown' | 'not_cancelled' };

export interface TaskActionsParts {
  readonly attempts: Attempts;
  readonly completion: Completion;
  readonly changes: Changes;
  readonly queues: TaskQueues;
  readonly records: TaskRecords;
  readonly replies: Replies;
  readonly leases: Leases;
  readonly foreign: ForeignRuns;
  readonly stops: {
    /** Stops every container of one queue, at once. */
    stopAll(queue: QueueName, reason: string): Promise<void>;
  };
  readonly clock: Clock;
  readonly log: Log;
  /** Ids of a queue's tasks that are not final, in order, from the database: at most `limit`, those after `after`. */
  readonly openTasks: (queue: QueueName, limit: number, after: TaskId | undefined) => Promise<readonly TaskId[]>;
  /** Tells the other replicas that a task ended here, because one may have its attempt. */
  readonly revokeElsewhere?: (taskId: TaskId, lock: LockToken, ending: Ending) => void;
}

const BATCH = 500;
/** Most tries to cancel a task that changes hands meanwhile. */
const CANCEL_TRIES = 3;

export class TaskActions implements DeploymentEffects {
  readonly #parts: TaskActionsParts;
  readonly #answering = new Map<QueueName, Promise<void>>();
  readonly #queueChanged = new Listeners<[QueueName]>();

  constructor(parts: TaskActionsParts) {
    this.#parts = parts;
  }

  /** Told when a queue may need more or fewer containers. */
  onQueueChanged(listener: (queue: QueueName) => void): void {
    this.#queueChanged.add(listener);
  }

  // ---- StartTask, EndTask -------------------------------------------------------------------------------------------

  /**
   * Claims and starts in one step (one winner), or repeats the holder's own start.
   * A task that is unknown, foreign, terminal or claimed by another is refused.
   */
  async startTask(caller: Caller, taskId: string, named: string): Promise<StartOutcome> {
    const record = await this.#own(caller, taskId);
    const containerId = speaksFor(caller, named);
    if (record === undefined || containerId === undefined || isTerminalTask(record.status)) return 'refused';
    const { foreign } = this.#parts;
    if (record.status === 'RUNNING') {
      if (holds(record, containerId)) return 'started';
      return (await foreign.startAgain(record, containerId)) ? 'started' : 'refused';
    }
    return (await foreign.start(record, containerId)) ? 'started' : 'refused';
  }

  /**
   * Ends the current attempt. A terminal task is `unchanged` (but for a late COMPLETE
   * of the last attempt); a wrong container or superseded attempt is refused.
   */
  async endTask(caller: Caller, request: EndRequest): Promise<EndOutcome> {
    const status = TASK_STATUSES.find((known) => known === request.taskStatus);
    const record = await this.#own(caller, request.taskId);
    const containerId = speaksFor(caller, request.containerId);
    if (record === undefined || status === undefined || containerId === undefined) return 'refused';
    if (!holds(record, containerId)) return 'refused';
    if (isTerminalTask(record.status)) {
      // Only an attempt can be late: a task that never had one stays as it ended.
      if (status !== 'COMPLETE' || record.status === 'COMPLETE' || record.attempt === 0) return 'unchanged';
      await this.#record(record, status, request);
      return 'ended';
    }
    if (!isFinal(status) && status !== 'RETRY') return 'refused';
    const attempt = this.#parts.attempts.current(record.taskId);
    if (attempt !== undefined) return await this.#endAttempt(attempt, status, request);
    const job = await this.#parts.queues.read(record.queue, record.taskId);
    // A waiting task has no attempt that this request could end.
    if (job !== undefined || record.status !== 'RUNNING') return 'refused';
    if (status === 'RETRY' && (await this.#parts.foreign.retry(record))) return 'ended';
    await this.#record(record, status === 'RETRY' ? 'ERROR' : status, request);
    return 'ended';
  }

  async #endAttempt(attempt: Attempt, status: FinalStatus | 'RETRY', request: EndRequest): Promise<EndOutcome> {
    const body = request.result.length > 0 ? Buffer.from(request.result) : undefined;
    const durationMs = request.durationSeconds * 1000;
    const { completion } = this.#parts;
    if (request.containerHostname !== '') attempt.containerHostname = hostnameOf(request);
    if (attempt.container !== undefined) {
      attempt.container.keepWarmMs = request.keepWarmSeconds < 0 ? Infinity : request.keepWarmSeconds * 1000;
    }
    if (status === 'RETRY') await completion.ended(attempt, 'retry', body, durationMs);
    else await completion.finish(attempt, endedByRunner(status), body ?? Buffer.from('null'), durationMs);
    return 'ended';
  }

  async #record(record: TaskRecord, status: FinalStatus, request: EndRequest): Promise<void> {
    const text = request.result.length > 0 ? resultTextOf(request.result) : 'null';
    const isLate = isTerminalTask(record.status);
    const ending = endedByRunner(status);
    await this.#parts.leases.drop(record.taskId);
    await this.#parts.changes.applied(record.status, ENDED_BY[status], {
      ...record,
      status,
      rank: RANK[status] as RecordRank,
      endedAtMs: this.#parts.clock.nowMs(),
      durationMs: request.durationSeconds * 1000,
      ...(request.containerHostname === '' ? {} : { containerHostname: hostnameOf(request) }),
      failureReason: failureReasonOf(ending),
      ...(await this.#parts.completion.kept(text)),
    });
    if (!isLate) this.#parts.completion.answer(record.taskId, { status, reason: ending.reason, body: text });
  }

  // ---- StopTasks ----------------------------------------------------------------------------------------------------

  /** Stops tasks in order, up to the first failure; terminal ones count as stopped. */
  async stopTasks(caller: Caller, taskIds: readonly string[]): Promise<StopOutcome> {
    for (const taskId of taskIds) {
      const record = await this.#own(caller, taskId);
      if (record === undefined) return { kind: 'refused', reason: 'unknown' };
      if (isTerminalTask(record.status)) continue;
      if (!(await this.#cancel(record, CANCELLED))) return { kind: 'refused', reason: 'not_cancelled' };
    }
    return { kind: 'stopped' };
  }

  /** Cancels a task whose caller left, wherever it is. */
  async cancel(taskId: TaskId, ending: Ending): Promise<void> {
    const record = await this.#parts.records.read(taskId);
    if (record !== undefined && !isTerminalTask(record.status)) await this.#cancel(record, ending);
  }

  /**
   * Cancels a task. A waiting one is taken out of its queue. An attempt here is revoked, and
   * its handler told to stop. An attempt elsewhere is ended with the token that holds it.
   */
  async #cancel(record: TaskRecord, ending: Ending): Promise<boolean> {
    const { queues, attempts, completion, records, changes } = this.#parts;
    for (let tries = 0; tries < CANCEL_TRIES; tries += 1) {
      const attempt = attempts.current(record.taskId);
      if (attempt !== undefined) return await this.#revoke(attempt, ending);
      const job = await queues.read(record.queue, record.taskId);
      if (job === undefined) {
        const now = await records.read(record.taskId);
        if (now === undefined || isTerminalTask(now.status)) return true;
        await changes.applied(now.status, ENDED_BY[ending.status], {
          ...now,
          status: ending.status,
          rank: RANK[ending.status] as RecordRank,
          endedAtMs: this.#parts.clock.nowMs(),
          failureReason: failureReasonOf(ending),
          result: completion.answerOf(ending).body,
        });
        completion.answerAs(record.taskId, ending);
        return true;
      }
      if (await completion.takeOut(record.queue, job, ending)) return true;
      if (await this.#endHeld(record.queue, job, ending)) return true;
    }
    return false;
  }

  /**
   * Ends a task that some attempt holds, perhaps at another replica, under the attempt's token, and tells its replica.
   * @returns false: no attempt holds the task any more
   */
  async #endHeld(queue: QueueName, job: TaskJob, ending: Ending): Promise<boolean> {
    const { queues, attempts, completion, records, leases } = this.#parts;
    const lock: LockToken | undefined = await queues.lockOf(queue, job.taskId);
    if (lock === undefined) return false;
    const fence = await queues.fail(queue, job.taskId, lock, failureReasonOf(ending));
    if (fence.kind !== 'done') return false;
    // The task was fetched and sent here meanwhile, so its handler is told to stop.
    const begun = attempts.current(job.taskId);
    if (begun !== undefined) return await this.#revoke(begun, ending);
    this.#parts.revokeElsewhere?.(job.taskId, lock, ending);
    // The end carries the number of the attempt that holds the task, because that attempt may also report that it runs.
    const now = await records.read(job.taskId);
    const lease = await leases.read(job.taskId);
    const known = now === undefined ? job.attempts + 1 : now.status === 'RUNNING' ? now.attempt : now.attempt + 1;
    const attempt = Math.max(lease?.attempt ?? 0, known);
    await completion.endQueued(queue, job, ending, { status: now?.status ?? 'PENDING', attempt });
    return true;
  }

  /** Stops the handler of an attempt here whose task another replica ended. */
  revokedElsewhere(taskId: TaskId, lock: LockToken, ending: Ending): void {
    const attempt = this.#parts.attempts.current(taskId);
    if (attempt?.lock === lock) void this.#revoke(attempt, ending);
  }

  #revoke(attempt: Attempt, ending: Ending): Promise<boolean> {
    const ranMs = this.#parts.clock.nowMs() - attempt.sentAtMs;
    return this.#parts.completion.revoke(attempt, 'cancelled', ending, ranMs);
  }

  // ---- deployments --------------------------------------------------------------------------------------------------

  async stopped(queue: QueueName, _stubId: StubId): Promise<void> {
    await this.#answerCallers(queue, DEPLOYMENT_STOPPED);
    await this.#parts.stops.stopAll(queue, 'user_stop');
    this.#queueChanged.tell(queue);
  }

  async deleted(queue: QueueName, _stubId: StubId): Promise<void> {
    await this.#answerCallers(queue, DEPLOYMENT_DELETED);
    await this.#parts.stops.stopAll(queue, 'user_stop');
    let after: TaskId | undefined;
    do {
      const open = await this.#parts.openTasks(queue, BATCH, after);
      for (const taskId of open) {
        const record = await this.#parts.records.read(taskId);
        // Rows lag behind tasks that ended a moment ago.
        if (record !== undefined && !isTerminalTask(record.status)) await this.#cancel(record, DEPLOYMENT_DELETED);
      }
      after = open.at(-1);
    } while (after !== undefined);
    this.#queueChanged.tell(queue);
    await this.#forget(queue);
  }

  /**
   * Deletes a queue to which nothing is added any more. Jobs that another replica still
   * takes out or ends are left to it; then a few small keys stay, and no task is lost.
   */
  async #forget(queue: QueueName): Promise<void> {
    const { queues, log } = this.#parts;
    try {
      if (totalOf(await queues.depth(queue)) === 0) await queues.obliterate(queue);
    } catch (error) {
      log.info({ err: error, queue }, 'the queue of a deleted deployment still has its settings in Redis');
    }
  }

  async scaledToZero(queue: QueueName, _stubId: StubId): Promise<void> {
    await this.#parts.stops.stopAll(queue, 'user_stop');
    this.#queueChanged.tell(queue);
  }

  /** Answers the callers who wait here, after a deployment was stopped or deleted at any replica. */
  async answerStopped(queue: QueueName): Promise<void> {
    await this.#answerCallers(queue, DEPLOYMENT_STOPPED);
  }

  /**
   * Answers the queue's synchronous callers at once, whether their tasks
   * wait or run. Several such calls for one queue run one after another.
   */
  async #answerCallers(queue: QueueName, ending: Ending): Promise<void> {
    const before = this.#answering.get(queue);
    const mine =
      before === undefined ? this.#answerAll(queue, ending) : before.then(() => this.#answerAll(queue, ending));
    this.#answering.set(queue, mine);
    try {
      await mine;
    } finally {
      if (this.#answering.get(queue) === mine) this.#answering.delete(queue);
    }
  }

  async #answerAll(queue: QueueName, ending: Ending): Promise<void> {
    for (const waiting of [...this.#parts.replies.of(queue)]) {
      const attempt = this.#parts.attempts.current(waiting.taskId);
      try {
        if (attempt !== undefined) await this.#revoke(attempt, ending);
        else if (!(await this.#parts.completion.takeOut(queue, waiting.job, ending))) {
          // The task was fetched this very moment, or it runs on a machine linked to another replica.
          const now = this.#parts.attempts.current(waiting.taskId);
          if (now !== undefined) await this.#revoke(now, ending);
          else await this.#endHeld(queue, waiting.job, ending);
        }
      } catch (error) {
        this.#parts.log.warn(
          { err: error, taskId: waiting.taskId },
          'a caller of a stopped deployment is answered without its record',
        );
      }
      this.#parts.completion.answerAs(waiting.taskId, ending);
    }
    await this.#endServed(queue, ending);
  }

  /**
   * Revokes attempts that run here for callers of other replicas,
   * so that those hear the reason instead of a lost container.
   */
  async #endServed(queue: QueueName, ending: Ending): Promise<void> {
    const served = [...this.#parts.attempts.all()].filter((attempt) => attempt.queue === queue && attempt.job.sync);
    await Promise.all(served.map((attempt) => this.#revoke(attempt, ending)));
  }

  async #own(caller: Caller, taskId: string): Promise<TaskRecord | undefined> {
    if (!isUuid(taskId)) return undefined;
    const record = await this.#parts.records.read(taskId.toLowerCase() as TaskId);
    if (record?.workspaceId !== caller.workspaceId) return undefined;
    return caller.container === undefined || caller.container.stubId === record.stubId ? record : undefined;
  }
}

/**
 * Container that a call is about; a container's own credential
 * may name that container alone. undefined: it named another.
 */
function speaksFor(caller: Caller, named: string): string | undefined {
  if (caller.container === undefined) return named;
  return named === '' || named === caller.container.containerId ? caller.container.containerId : undefined;
}

const endedByRunner = (status: FinalStatus): Ending =>
  status === 'COMPLETE' ? COMPLETED : { status, reason: 'ended_by_runner' };

const isFinal = (status: TaskStatus): status is FinalStatus => status in ENDED_BY;

/** Whether that container holds the task's current attempt; an empty id means any container. */
function holds(record: TaskRecord, containerId: string): boolean {
  return containerId === '' || record.containerId === null || record.containerId === containerId;
}

/** Host name of the request, cut at the longest possible length. */
const hostnameOf = (request: EndRequest): string => request.containerHostname.slice(0, 253);
