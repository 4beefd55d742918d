// Acceptance of tasks: the job is added, the depth judged, the row committed where it was promised,
// and only then the id is told. A failure on the way leaves nothing behind that runs unseen.
import type { QueueName, TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import { newId } from '#shared/domain/ids.ts';
import type { StubKind } from '#shared/domain/status.ts';
import type { Target } from '../../domain/stub-config.ts';
import type { Waiting } from '../dispatch/replies.ts';
import type { WorkspaceLimits } from '../../workspaces/identity/limits.ts';
import type { TaskJob } from '../../stores/queues/jobs.ts';
import { encodeTaskJob } from '../../stores/queues/jobs.ts';
import type { Callers } from './callers.ts';
import { CommitGate } from './commit-gate.ts';
import { Idempotency } from './idempotency.ts';
import type { Claim } from './idempotency.ts';
import { recordOf } from '../records/recording.ts';
import { isInline } from '../dispatch/bodies.ts';
import type { TaskRecord } from '../records/records.ts';
import type { TaskContext } from '../task-parts.ts';
import type { Call, Submission } from '../task-service.ts';
import { commitOf, Withdrawals } from './withdrawals.ts';

/**
 * Seconds after which a refused call may come again: a nearly full Redis
 * empties as tasks end, and a probe checks commits at least this often.
 */
const RETRY_AFTER_S = 5;

/** Promise for a task whose end no caller awaits. */
const NEVER = new Promise<never>(() => undefined);

export class Submissions {
  readonly #tasks: TaskContext;
  readonly #callers: Callers;
  readonly #withdrawals: Withdrawals;
  readonly #gate: CommitGate;
  readonly #idempotency: Idempotency | undefined;

  constructor(tasks: TaskContext, callers: Callers) {
    this.#tasks = tasks;
    this.#callers = callers;
    this.#withdrawals = new Withdrawals(tasks);
    const { probeCommit: probe = () => Promise.resolve(), log, signal, idempotencyKeys } = tasks;
    this.#gate = new CommitGate({ probe, log, signal });
    this.#idempotency = idempotencyKeys && new Idempotency(tasks, idempotencyKeys);
  }

  submit(target: Target, call: Call): Promise<Submission> {
    const refused = this.#refusalOf(target);
    if (refused !== undefined) return Promise.resolve(refused);
    // Unreadable limits stop no call.
    const limits = this.#tasks.limitsOf?.(target.workspaceId);
    if (!(limits instanceof Promise)) return this.#paced(target, call, limits, false);
    return limits.catch(() => undefined).then((read) => this.#paced(target, call, read, true));
  }

  /** Reason why no call of that kind is taken now; undefined: calls are taken. */
  #refusalOf(target: Target): Submission | undefined {
    const { records, redisMemory, refusalOf, metrics } = this.#tasks;
    if (records.isOverloaded()) return { kind: 'unavailable', reason: 'records_behind' };
    if (redisMemory?.refuses(target.sync ? 'sync' : 'async') === true) return this.#redisFull();
    const detail = refusalOf?.(target);
    if (detail !== undefined) return { kind: 'unavailable', reason: 'not_servable', detail };
    if (target.sync || !this.#gate.isClosed()) return undefined;
    // The job is queued before its row is committed, so nothing is queued while commits fail.
    metrics.throttled.inc({ resource: 'commits' });
    return { kind: 'unavailable', reason: 'commits_failing', retryAfterSeconds: RETRY_AFTER_S };
  }

  /**
   * @param hasWaited - time has passed since the target was looked up, so its deployment
   * may have stopped: the stop has answered its callers by then, and would miss this one
   */
  #paced(target: Target, call: Call, limits: WorkspaceLimits | undefined, hasWaited: boolean): Promise<Submission> {
    const counted = this.#tooOften(target.workspaceId, limits);
    if (counted === undefined) return this.#withRoom(target, call, limits, hasWaited);
    return counted.then((retryAfterSeconds) =>
      retryAfterSeconds === undefined
        ? this.#withRoom(target, call, limits, true)
        : { kind: 'rate_limited', retryAfterSeconds },
    );
  }

  #withRoom(target: Target, call: Call, limits: WorkspaceLimits | undefined, hasWaited: boolean): Promise<Submission> {
    const quota = this.#tasks.queueQuota;
    // A UTF-16 unit is at most three bytes; an input kept as an object does not count.
    const bytes = isInline(call.input) ? call.input.length : 0;
    if (quota === undefined || !quota.counts(bytes, target.sync)) return this.#keyed(target, call, limits, hasWaited);
    const queueLimit = limits?.bytes.queue ?? Infinity;
    const room = quota.hasRoom(target.workspaceId, bytes, queueLimit);
    const go = (hasRoom: boolean, waited: boolean): Promise<Submission> => {
      if (!hasRoom) return Promise.resolve(this.#queueBytesReached(queueLimit));
      const end = quota.reserve(target.workspaceId, bytes);
      return this.#keyed(target, call, limits, waited).finally(end);
    };
    return room instanceof Promise ? room.then((hasRoom) => go(hasRoom, true)) : go(room, hasWaited);
  }

  #keyed(target: Target, call: Call, limits: WorkspaceLimits | undefined, hasWaited: boolean): Promise<Submission> {
    const { idempotency } = call;
    if (idempotency === undefined) return this.#accept(target, call, limits, newId<TaskId>(), hasWaited);
    if (this.#idempotency === undefined) return Promise.resolve({ kind: 'unavailable', reason: 'keys_not_kept' });
    return this.#idempotency.submit(target, call, idempotency, (keyed, claim) =>
      this.#accept(target, keyed, limits, claim.taskId, true, claim),
    );
  }

  /**
   * @param hasWaited - time has passed since the target was looked up
   * @param claim - the key that is to be this task's
   */
  async #accept(
    target: Target,
    call: Call,
    limits: WorkspaceLimits | undefined,
    taskId: TaskId,
    hasWaited: boolean,
    claim?: Claim,
  ): Promise<Submission> {
    const { queues, clock, replies } = this.#tasks;
    const nowMs = clock.nowMs();
    const stored = await this.#tasks.bodies.storeInput(call.input, taskId);
    const inputBytes = stored.input?.length ?? 0;
    const dropStored = (): void => void this.#tasks.bodies.dropInput(stored.inputObjectId).catch(() => undefined);
    if ((hasWaited || stored.inputObjectId !== undefined) && !(await this.#tasks.isActive(target))) {
      dropStored();
      return { kind: 'unavailable', reason: 'deployment_stopped' };
    }
    if (claim?.isFresh() === false) {
      dropStored();
      return { kind: 'unavailable', reason: 'queued_too_late', retryAfterSeconds: 1 };
    }
    const { config } = target;
    const maxPendingTasks = Math.min(config.maxPendingTasks, limits?.tasks.max_pending_tasks ?? Infinity);
    const job: TaskJob = {
      ...this.jobOf(target, taskId, nowMs),
      ...stored,
      ...(call.query === undefined ? {} : { query: mutableQuery(call.query) }),
      ...(call.callbackUrl === undefined ? {} : { callbackUrl: call.callbackUrl }),
      ...(call.putBy === undefined ? {} : { putBy: call.putBy }),
    };
    // The caller waits before the job can be seen: another fetch may bring the job back before our own add is answered.
    const { onItem } = call;
    const waiting: Waiting = { taskId, queue: target.queue, job, ...(onItem === undefined ? {} : { onItem }) };
    const finished = target.sync ? replies.wait(waiting, config.ttlSeconds * 1000) : NEVER;
    let depth: number;
    let isLent = false;
    let undone = false;
    try {
      await queues.open(target.queue);
      const adding = queues.add(target.queue, job, maxPendingTasks);
      // Where a slot is free, the fetch leaves right behind the add, which saves a round trip. When
      // the queue is above its bound, the fetch finds an older task, or this task runs already.
      if (target.sync) process.nextTick(() => this.#tasks.dispatcher.wakeHere(target.queue, taskId));
      const added = await adding;
      depth = added.depth;
      isLent = added.isLent ?? false;
      if (depth > maxPendingTasks) undone = !added.isIn || (await queues.remove(target.queue, taskId));
    } catch (error) {
      this.#tasks.log.warn({ err: error, queue: target.queue }, 'task could not be queued');
      replies.abandon(taskId);
      this.#tasks.dispatcher.forget(target.queue, taskId);
      void this.#withdrawals.withdraw(target.queue, job, { isCommitting: false, claim });
      return { kind: 'unavailable', reason: 'queue_silent' };
    }
    if (undone) {
      replies.abandon(taskId);
      this.#tasks.dispatcher.forget(target.queue, taskId);
      this.#tasks.completion.dropInput(job);
      this.#tasks.metrics.throttled.inc({ resource: 'pending_tasks' });
      return { kind: 'queue_full', maxPendingTasks };
    }
    const record = recordOf(job, target.queue, 'PENDING', 0);
    if (!target.sync && !(await this.#commit(target.queue, job, record, claim))) {
      return { kind: 'unavailable', reason: 'not_recorded', retryAfterSeconds: RETRY_AFTER_S };
    }
    this.#tasks.changes.accept(record, target.sync);
    if (!target.sync) this.#tasks.onAccepted(job, target.queue);
    if (target.sync) this.#tasks.queueQuota?.waits(target.workspaceId, inputBytes, finished);
    else this.#tasks.queueQuota?.added(target.workspaceId, inputBytes);
    this.#tasks.redisMemory?.added(inputBytes);
    this.#tasks.metrics.waiting.set(replies.size);
    if (isLent) this.#tasks.dispatcher.forget(target.queue, taskId);
    // The second wake-up covers a fetch that was answered before the add; while a fetch is under way it costs nothing.
    else if (this.#tasks.attempts.current(taskId) === undefined) this.#tasks.dispatcher.wake(target.queue, taskId);
    this.#tasks.onDepth(target, depth);
    return {
      kind: 'accepted',
      taskId,
      finished,
      callerLeft: () => this.#callers.left(waiting),
      ...(target.sync ? {} : { isAsync: true }),
    };
  }

  #redisFull(): Submission {
    this.#tasks.metrics.throttled.inc({ resource: 'redis_memory' });
    return { kind: 'unavailable', reason: 'redis_nearly_full', retryAfterSeconds: RETRY_AFTER_S };
  }

  #queueBytesReached(limit: number): Submission {
    this.#tasks.metrics.throttled.inc({ resource: 'queue_bytes' });
    return { kind: 'queue_bytes_reached', limit };
  }

  /** Job of a new task, without its input. */
  jobOf(target: Target, taskId: TaskId, nowMs: number): TaskJob {
    const { config } = target;
    return {
      v: 1,
      taskId,
      workspaceId: target.workspaceId,
      stubId: target.stubId,
      deploymentId: target.deploymentId,
      kind: target.kind as StubKind,
      sync: target.sync,
      replica: this.#tasks.instance,
      timeoutMs: config.timeoutSeconds * 1000,
      deadlineMs: nowMs + config.ttlSeconds * 1000,
      createdAtMs: nowMs,
      attempts: 0,
      retries: target.sync ? 0 : config.retries,
      retriesUsed: 0,
      ...(config.callbackUrl === '' ? {} : { callbackUrl: config.callbackUrl }),
    };
  }

  /**
   * Queues a task whose row its caller has committed. A task that was added before, or is over
   * by now, is left alone. When this throws, the sweep of rows without a job queues the task.
   * @throws AppError `queues_unavailable`
   */
  async queue(target: Target, job: TaskJob): Promise<void> {
    const { queues, records } = this.#tasks;
    await queues.open(target.queue);
    const { depth } = await queues.add(target.queue, job);
    this.#tasks.changes.accept(recordOf(job, target.queue, 'PENDING', 0), false);
    // The deployment may have been deleted since the row was committed, and its tasks with it.
    const known = await records.read(job.taskId);
    if (known !== undefined && known.rank >= 3 && (await queues.remove(target.queue, job.taskId))) return;
    this.#tasks.onAccepted(job, target.queue);
    this.#tasks.dispatcher.wake(target.queue, job.taskId);
    this.#tasks.onDepth(target, depth);
  }

  /**
   * Seconds to wait when the workspace calls too often; undefined:
   * the call may go on, at once where there is no such limit.
   */
  #tooOften(workspaceId: WorkspaceId, limits: WorkspaceLimits | undefined): undefined | Promise<number | undefined> {
    const perMinute = limits?.rate.invoke_per_minute ?? null;
    return perMinute === null ? undefined : this.#tasks.rates?.take(workspaceId, 'invoke', perMinute);
  }

  /** Commits an asynchronous task's row before its id is returned: from then on nothing loses the task. */
  async #commit(queue: QueueName, job: TaskJob, record: TaskRecord, claim: Claim | undefined): Promise<boolean> {
    try {
      const task = { record, job: encodeTaskJob(job) };
      if (await this.#gate.watch(() => commitOf(this.#tasks, task, claim))) return true;
      // The database works, so other calls are let in.
      throw new Error('the idempotency key stands for another task by now');
    } catch (error) {
      this.#tasks.log.warn({ err: error, queue }, 'task could not be recorded');
      // The job leaves its queue before the caller is told, so most refused tasks never run.
      await this.#withdrawals.withdraw(queue, job, { isCommitting: true, claim });
      return false;
    }
  }
}

function mutableQuery(query: Readonly<Record<string, readonly string[]>>): Record<string, string[]> {
  return Object.fromEntries(Object.entries(query).map(([name, values]) => [name, [...values]]));
}
