// Admission of calls: limits, rates, quotas and keys. Then an asynchronous task is committed (commit-first.ts), and a
// synchronous one enters the line of this replica (tasks/lines/).
import type { InstanceId, TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import { newId } from '#shared/domain/ids.ts';
import type { StubKind } from '#shared/domain/status.ts';
import type { Clock } from '#shared/clock.ts';
import { Listeners } from '#shared/listeners.ts';
import type { Log } from '#shared/log.ts';
import type { ReservedTokens } from '../../cluster/reserved-tokens.ts';
import type { Target } from '../../domain/stub-config.ts';
import { flowOf, priorityProblem } from '../../domain/flow.ts';
import type { TaskFlow } from '../../domain/flow.ts';
import { whyNotKept } from '../../domain/task-inputs.ts';
import type { RedisMemory } from '../../stores/queues/redis-memory.ts';
import type { WorkspaceLimits } from '../../workspaces/identity/limits.ts';
import type { Rates } from '../../workspaces/identity/rates.ts';
import type { Completion } from '../completion/completion.ts';
import type { TaskBodies } from '../dispatch/bodies.ts';
import type { Dispatcher } from '../dispatch/dispatcher.ts';
import type { Finished, Replies, Waiting } from '../dispatch/replies.ts';
import type { Lines } from '../lines/lines.ts';
import type { TaskMetrics } from '../metrics.ts';
import type { Changes } from '../records/changes.ts';
import type { TaskJob } from '../../stores/queues/jobs.ts';
import type { Callers } from './callers.ts';
import type { Call, Submission } from './calls.ts';
import { mayHaveTask } from './calls.ts';
import type { CommitFirst } from './commit-first.ts';
import { FlowAdmission } from './flow-admission.ts';
import type { Idempotency, KeyClaim } from './idempotency.ts';
import type { QueueQuota } from './queue-quota.ts';
import { Singles } from './singles.ts';
import type { GivenInput } from './singles.ts';
import { recordOf } from '../records/recording.ts';
import { isInline } from '../dispatch/bodies.ts';
import type { TaskRecords } from '../records/records.ts';

/** Seconds after which a call that a nearly full Redis refused may come again: it empties as tasks end. */
const RETRY_AFTER_S = 5;

const NOTHING_RESERVED = (): void => undefined;

/** An accepted task whose end no caller awaits. */
const ACCEPTED = {
  kind: 'accepted' as const,
  finished: new Promise<never>(() => undefined) as Promise<Finished>,
  callerLeft: (): void => undefined,
};

export interface SubmissionsParts {
  readonly callers: Pick<Callers, 'left'>;
  readonly asynchronous: Pick<CommitFirst, 'refusal' | 'accept'>;
  readonly flow: Pick<FlowAdmission, 'admit'>;
  /** Claims of keys that have one task. Absent: calls of such deployments are refused. */
  readonly singles?: Pick<Singles, 'submit'> | undefined;
  /** Calls with a key. Absent: they are refused. */
  readonly idempotency?: Pick<Idempotency, 'submit'> | undefined;
  readonly lines: Pick<Lines, 'enter'>;
  readonly records: Pick<TaskRecords, 'isOverloaded'>;
  readonly changes: Pick<Changes, 'accept'>;
  readonly completion: Pick<Completion, 'dropInput'>;
  readonly dispatcher: Pick<Dispatcher, 'wakeLine'>;
  readonly replies: Pick<Replies, 'wait' | 'size'>;
  readonly bodies: Pick<TaskBodies, 'storeInput' | 'dropInput'>;
  /** Most bytes of an input that outlives its task. */
  readonly maxKeptInputBytes: number;
  readonly instance: InstanceId;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Pick<TaskMetrics, 'throttled'>;
  /** Whether the deployment still takes tasks. */
  readonly isActive: (target: Target) => boolean | Promise<boolean>;
  /**
   * Reason why no machine can ever serve the target: the call
   * is refused with that sentence. Absent: nothing is refused.
   */
  readonly refusalOf?: ((target: Target) => string | undefined) | undefined;
  /** Limits of the workspace, at once when they are known. Absent: only its stubs' own limits hold. */
  readonly limitsOf?: ((workspaceId: WorkspaceId) => WorkspaceLimits | Promise<WorkspaceLimits>) | undefined;
  /** Quota on the bytes of a workspace's queued inputs; absent: none. */
  readonly queueQuota?: Pick<QueueQuota, 'counts' | 'hasRoom' | 'reserve' | 'waits' | 'added'> | undefined;
  /** Room of Redis for new tasks; absent: it always has room. */
  readonly redisMemory?: Pick<RedisMemory, 'refuses' | 'added'> | undefined;
  /** Tokens that open calls to models reserve; absent: none are counted. */
  readonly reservedTokens?: Pick<ReservedTokens, 'of' | 'reserve'> | undefined;
  /** Limits on the rate of calls; absent: none. */
  readonly rates?: Pick<Rates, 'take'> | undefined;
}

export class Submissions {
  readonly #parts: SubmissionsParts;
  readonly #depth = new Listeners<[Target, number]>();
  constructor(parts: SubmissionsParts) {
    this.#parts = parts;
  }

  /** Told when a queue grew by a synchronous task. */
  onDepth(listener: (target: Target, depth: number) => void): void {
    this.#depth.add(listener);
  }

  submit(target: Target, call: Call): Promise<Submission> {
    const refused = this.#refusalOf(target);
    if (refused !== undefined) return Promise.resolve(refused);
    const problem = priorityProblem(target.config.flow, call.priority);
    if (problem !== undefined)
      return Promise.resolve({ kind: 'bad_flow', code: 'invalid_flow_priority', why: problem });
    const flow = flowOf(target.config.flow, call, call.input);
    if (typeof flow === 'string') return Promise.resolve({ kind: 'bad_flow', code: 'invalid_flow_key', why: flow });
    return this.#limited(target, flow === undefined ? call : { ...call, flow });
  }

  #limited(target: Target, call: Call): Promise<Submission> {
    // Unreadable limits stop no call.
    const limits = this.#parts.limitsOf?.(target.workspaceId);
    if (!(limits instanceof Promise)) return this.#paced(target, call, limits, false);
    return limits.catch(() => undefined).then((read) => this.#paced(target, call, read, true));
  }

  /** Reason why no call of that kind is taken now; undefined: calls are taken. */
  #refusalOf(target: Target): Submission | undefined {
    const { records, redisMemory, refusalOf } = this.#parts;
    if (records.isOverloaded()) return { kind: 'unavailable', reason: 'records_behind' };
    if (!target.sync && redisMemory?.refuses() === true) return this.#redisFull();
    const detail = refusalOf?.(target);
    if (detail !== undefined) return { kind: 'unavailable', reason: 'not_servable', detail };
    return target.sync ? undefined : this.#parts.asynchronous.refusal();
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
    const quota = this.#parts.queueQuota;
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
    if (this.#parts.idempotency === undefined) return Promise.resolve({ kind: 'unavailable', reason: 'keys_not_kept' });
    return this.#parts.idempotency.submit(target, call, idempotency, (keyed, claim) =>
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
    claim?: KeyClaim,
  ): Promise<Submission> {
    const { flow } = call;
    if (flow === undefined) return await this.#admit(target, call, limits, taskId, hasWaited, claim);
    const { singles, clock } = this.#parts;
    const admit = (changed: TaskFlow, waited: boolean, isLate?: () => boolean): Promise<Submission> =>
      this.#admit(target, { ...call, flow: changed }, limits, taskId, waited, claim, isLate);
    const alone = (paced: TaskFlow, waited: boolean): Promise<Submission> => {
      if (!Singles.holdFor(target)) return admit(paced, waited);
      if (singles === undefined) return Promise.resolve({ kind: 'unavailable', reason: 'keys_not_kept' });
      const inputFor = (of: TaskId): Promise<GivenInput> => this.#inputFor(target, call, of);
      return singles.submit({ target, flow: paced, taskId, inputFor }, (isLate) =>
        admit(gathered(target, paced, clock.nowMs()), true, isLate),
      );
    };
    if (!FlowAdmission.asks(target)) return await alone(flow, hasWaited);
    const admitted = await this.#parts.flow.admit(target, flow);
    if ('kind' in admitted) return admitted;
    const submission = await alone(admitted.flow, true);
    if (!mayHaveTask(submission)) await admitted.giveBack();
    return submission;
  }

  /** The input of the call, as the job of that task has it. */
  async #inputFor(target: Target, call: Call, taskId: TaskId): Promise<GivenInput> {
    return {
      ...(await this.#parts.bodies.storeInput(call.input, taskId)),
      ...this.#forgets(target, call),
      ...(call.query === undefined ? {} : { query: mutableQuery(call.query) }),
    };
  }

  /**
   * Accepts a call that its flow control lets in.
   * @param isLate - asked before the commit: whether the claim of its key may lapse before
   */
  async #admit(
    target: Target,
    call: Call,
    limits: WorkspaceLimits | undefined,
    taskId: TaskId,
    hasWaited: boolean,
    claim?: KeyClaim,
    isLate?: () => boolean,
  ): Promise<Submission> {
    const { flow } = call;
    const stored = await this.#inputFor(target, call, taskId);
    const inputBytes = stored.input?.length ?? 0;
    const dropStored = (): void => void this.#parts.bodies.dropInput(stored.inputObjectId).catch(() => undefined);
    if ((hasWaited || stored.inputObjectId !== undefined) && !(await this.#parts.isActive(target))) {
      dropStored();
      return { kind: 'unavailable', reason: 'deployment_stopped' };
    }
    if (claim?.isFresh() === false || isLate?.() === true) {
      dropStored();
      return { kind: 'unavailable', reason: 'queued_too_late', retryAfterSeconds: 1 };
    }
    const { config } = target;
    const maxPendingTasks = Math.min(config.maxPendingTasks, limits?.tasks.max_pending_tasks ?? Infinity);
    const job: TaskJob = {
      ...this.newJob(target, taskId),
      ...stored,
      ...(flow === undefined || target.sync ? {} : { flow }),
      ...(call.rerunOf === undefined ? {} : { rerunOf: call.rerunOf }),
      ...(call.redrivenFrom === undefined ? {} : { redrivenFrom: call.redrivenFrom }),
      ...(call.callbackUrl === undefined ? {} : { callbackUrl: call.callbackUrl }),
      ...(call.putBy === undefined ? {} : { putBy: call.putBy }),
      ...(call.serving === undefined ? {} : { serving: call.serving }),
      ...(call.calledBy === undefined ? {} : { calledBy: call.calledBy }),
      // The caller's replica keeps the limit of a streamed call: it ends with the response's head.
      ...(call.onStreamed === undefined ? {} : { stream: true, timeoutMs: 0 }),
    };
    call.onStreamed?.(taskId);
    const admitted = target.sync
      ? this.#enter(target, call, job, maxPendingTasks)
      : ((await this.#parts.asynchronous.accept(target, job, maxPendingTasks, claim)) ?? ACCEPTED);
    if (admitted.kind !== 'accepted') return admitted;
    const { finished, callerLeft } = admitted;
    if (target.sync) this.#parts.queueQuota?.waits(target.workspaceId, inputBytes, finished);
    else {
      this.#parts.queueQuota?.added(target.workspaceId, inputBytes);
      this.#parts.redisMemory?.added(inputBytes);
    }
    return { kind: 'accepted', taskId, finished, callerLeft, ...(target.sync ? {} : { isAsync: true }) };
  }

  /** Lets a synchronous task wait, whose caller waits here; it is sent in this tick where a slot is free. */
  #enter(
    target: Target,
    call: Call,
    job: TaskJob,
    maxPendingTasks: number,
  ): Exclude<Submission, { kind: 'accepted' }> | typeof ACCEPTED {
    const { lines, replies, changes, completion, dispatcher, metrics, callers } = this.#parts;
    const { taskId } = job;
    const endReservation = this.#reserve(target, call, maxPendingTasks);
    const depth = endReservation && lines.enter(target.queue, job, maxPendingTasks);
    if (depth === undefined) {
      endReservation?.();
      completion.dropInput(job);
      if (endReservation !== undefined) metrics.throttled.inc({ resource: 'pending_tasks' });
      return { kind: 'queue_full', maxPendingTasks };
    }
    const { onItem } = call;
    const waiting: Waiting = { taskId, queue: target.queue, job, ...(onItem === undefined ? {} : { onItem }) };
    const finished = replies.wait(waiting, target.config.ttlSeconds * 1000);
    if (call.serving !== undefined) void finished.finally(endReservation);
    changes.accept(recordOf(job, target.queue, 'PENDING', 0));
    dispatcher.wakeLine(target.queue);
    this.#depth.tell(target, depth);
    return { kind: 'accepted', finished, callerLeft: () => callers.left(waiting) };
  }

  /** Why the input of the call goes with the end of its task; empty: it is kept. */
  #forgets({ config }: Target, { input }: Call): Pick<TaskJob, 'forgetsInput'> {
    const { maxKeptInputBytes } = this.#parts;
    const why = whyNotKept({ keepInputs: config.keepInputs !== false, input }, maxKeptInputBytes);
    return why === undefined ? {} : { forgetsInput: why };
  }

  /**
   * Reserves the tokens of a call to a model until its caller is answered.
   * @returns undefined: with these tokens the open calls would need more than their bound, as far as is known here
   */
  #reserve({ queue, config }: Target, { serving }: Call, maxPendingTasks: number): (() => void) | undefined {
    const { reservedTokens, metrics } = this.#parts;
    if (serving === undefined || reservedTokens === undefined) return NOTHING_RESERVED;
    // Without settings of the stub, the share of a stream is the context of the model.
    const contextLength = config.serving?.llm.contextLength ?? serving.tokensPerStream;
    // A lone call is let in, however long: its engine judges its length.
    const open = reservedTokens.of(queue);
    if (open > 0 && open + serving.tokens > maxPendingTasks * contextLength) {
      metrics.throttled.inc({ resource: 'reserved_tokens' });
      return undefined;
    }
    return reservedTokens.reserve(queue, serving.tokens);
  }

  #redisFull(): Submission {
    this.#parts.metrics.throttled.inc({ resource: 'redis_memory' });
    return { kind: 'unavailable', reason: 'redis_nearly_full', retryAfterSeconds: RETRY_AFTER_S };
  }

  #queueBytesReached(limit: number): Submission {
    this.#parts.metrics.throttled.inc({ resource: 'queue_bytes' });
    return { kind: 'queue_bytes_reached', limit };
  }

  /** Job of a new task, without its input. */
  newJob(target: Target, taskId: TaskId): TaskJob {
    const { config } = target;
    const nowMs = this.#parts.clock.nowMs();
    return {
      v: 1,
      taskId,
      workspaceId: target.workspaceId,
      stubId: target.stubId,
      deploymentId: target.deploymentId,
      kind: target.kind as StubKind,
      sync: target.sync,
      replica: this.#parts.instance,
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
   * Seconds to wait when the workspace calls too often; undefined:
   * the call may go on, at once where there is no such limit.
   */
  #tooOften(workspaceId: WorkspaceId, limits: WorkspaceLimits | undefined): undefined | Promise<number | undefined> {
    const perMinute = limits?.rate.invoke_per_minute ?? null;
    return perMinute === null ? undefined : this.#parts.rates?.take(workspaceId, 'invoke', perMinute);
  }
}

/** Flow control of the first task of its key where calls of a key are gathered: it waits for others. */
function gathered({ config }: Target, flow: TaskFlow, nowMs: number): TaskFlow {
  const { debounce, debounceMax = Infinity } = config.flow ?? {};
  if (debounce === undefined) return flow;
  return { ...flow, isGathered: true, atMs: nowMs + Math.min(debounce, debounceMax) * 1000 };
}

function mutableQuery(query: Readonly<Record<string, readonly string[]>>): Record<string, string[]> {
  return Object.fromEntries(Object.entries(query).map(([name, values]) => [name, [...values]]));
}
