// Changes to tasks from outside: users and external runners start, end and stop tasks.
// Every change passes the same fences as our own runners' changes.
import type { TaskId } from '#shared/domain/ids.ts';
import { isUuid } from '#shared/domain/ids.ts';
import type { TaskStatus } from '#shared/domain/status.ts';
import { isTerminalTask, TASK_STATUSES } from '#shared/domain/status.ts';
import type { Clock } from '#shared/clock.ts';
import type { Leases } from './dispatch/leases.ts';
import type { Targets } from '../workspaces/deployments/targets.ts';
import type { Caller } from '../workspaces/identity/caller.ts';
import type { TaskQueues } from '../stores/queues/task-queues.ts';
import { CANCELLED, COMPLETED, failureReasonOf } from '../domain/endings.ts';
import type { Ending, FinalStatus } from '../domain/endings.ts';
import { DEFERRED_CALLS_QUEUE } from '../domain/inference.ts';
import type { Attempt, Attempts } from './dispatch/attempts.ts';
import type { Changes } from './records/changes.ts';
import type { Cancellation } from './completion/cancellation.ts';
import type { CancelEvents } from './completion/cancel-events.ts';
import type { Completion } from './completion/completion.ts';
import type { TaskBodies } from './dispatch/bodies.ts';
import type { ForeignRuns } from './foreign-runs.ts';
import { resultTextOf } from './completion/result-text.ts';
import type { RecordRank, TaskRecord } from './records/task-record.ts';
import type { TaskRecords } from './records/records.ts';
import { ENDED_BY, RANK } from './state.ts';

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

/** Tasks of one request that are stopped side by side: each waits for a commit. */
const STOPPED_TOGETHER = 50;

export interface TaskActionsParts {
  readonly attempts: Pick<Attempts, 'current'>;
  readonly completion: Pick<Completion, 'ended' | 'finish' | 'answer'>;
  readonly cancellation: Pick<Cancellation, 'cancelRecorded'>;
  readonly changes: Pick<Changes, 'applied'>;
  readonly queues: Pick<TaskQueues, 'read'>;
  readonly records: Pick<TaskRecords, 'read'>;
  readonly bodies: Pick<TaskBodies, 'storeResult'>;
  readonly leases: Pick<Leases, 'drop'>;
  readonly targets: Pick<Targets, 'byQueue'>;
  readonly foreign: Pick<ForeignRuns, 'start' | 'startAgain' | 'retry' | 'ended'>;
  readonly clock: Clock;
  /** Tells of cancelled tasks that a container had; absent: nothing is told. */
  readonly cancels?: Pick<CancelEvents, 'cancelled'>;
}

export class TaskActions {
  readonly #parts: TaskActionsParts;

  constructor(parts: TaskActionsParts) {
    this.#parts = parts;
  }

  // ---- StartTask, EndTask -------------------------------------------------------------------------------------------

  /**
   * Claims and starts in one step (one winner), or repeats the holder's own start.
   * A task that is unknown, foreign, terminal or claimed by another is refused.
   */
  async startTask(caller: Caller, taskId: string, named: string): Promise<StartOutcome> {
    const record = await this.#runnable(caller, taskId);
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
    const record = await this.#runnable(caller, request.taskId);
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
    await this.#parts.foreign.ended(record);
    await this.#parts.changes.applied(record.status, ENDED_BY[status], {
      ...record,
      status,
      rank: RANK[status] as RecordRank,
      endedAtMs: this.#parts.clock.nowMs(),
      durationMs: request.durationSeconds * 1000,
      ...(request.containerHostname === '' ? {} : { containerHostname: hostnameOf(request) }),
      failureReason: failureReasonOf(ending),
      ...(await this.#parts.bodies.storeResult(text)),
    });
    if (!isLate) this.#parts.completion.answer(record.taskId, { status, reason: ending.reason, body: text });
  }

  // ---- StopTasks ----------------------------------------------------------------------------------------------------

  /**
   * Stops tasks, some of them side by side; terminal ones count as stopped. The first failure in order is told, and
   * nothing behind an unknown task is stopped.
   */
  async stopTasks(caller: Caller, taskIds: readonly string[]): Promise<StopOutcome> {
    const all = [...new Set(taskIds)];
    for (let at = 0; at < all.length; at += STOPPED_TOGETHER) {
      const found = await Promise.all(all.slice(at, at + STOPPED_TOGETHER).map((id) => this.#own(caller, id)));
      const unknown = found.indexOf(undefined);
      const known = (unknown === -1 ? found : found.slice(0, unknown)).filter((record) => record !== undefined);
      const stopped = await Promise.all(known.map((record) => this.#stop(record)));
      if (stopped.includes(false)) return { kind: 'refused', reason: 'not_cancelled' };
      if (unknown !== -1) return { kind: 'refused', reason: 'unknown' };
    }
    return { kind: 'stopped' };
  }

  async #stop(record: TaskRecord): Promise<boolean> {
    if (isTerminalTask(record.status)) return true;
    const requestedAtMs = this.#parts.clock.nowMs();
    if (!(await this.#parts.cancellation.cancelRecorded(record, CANCELLED))) return false;
    if (record.status === 'RUNNING') this.#parts.cancels?.cancelled(record, requestedAtMs);
    return true;
  }

  /** A task that a runner of others may start and end: no call of a model. */
  async #runnable(caller: Caller, taskId: string): Promise<TaskRecord | undefined> {
    const record = await this.#own(caller, taskId);
    return record?.queue === DEFERRED_CALLS_QUEUE ? undefined : record;
  }

  async #own(caller: Caller, taskId: string): Promise<TaskRecord | undefined> {
    if (!isUuid(taskId)) return undefined;
    const record = await this.#parts.records.read(taskId.toLowerCase() as TaskId);
    if (record?.workspaceId !== caller.workspaceId) return undefined;
    if (caller.confined?.appId !== undefined) {
      const target = await this.#parts.targets.byQueue(record.queue);
      if (target?.appId !== caller.confined.appId) return undefined;
    }
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
