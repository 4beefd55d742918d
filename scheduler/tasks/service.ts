// The life of a task on this replica: accepted, queued, sent, ended, answered. Called by the invoke surface (submit), by the dispatcher (a claim) and by fleet/ (what agents say).
// What must stay true: BullMQ's fenced call decides who ends an attempt; our record is written in the same tick and follows its answer; a synchronous task never runs twice;
// every caller is answered exactly once.
import type {
  AttemptToken,
  ContainerId,
  InstanceId,
  MachineId,
  QueueName,
  TaskId,
  WorkspaceId,
} from '#shared/domain/ids.ts';
import { attemptHashOf, isUuid, newId, sha256Hex } from '#shared/domain/ids.ts';
import type { StubKind, TaskStatus } from '#shared/domain/status.ts';
import { isTerminalTask } from '#shared/domain/status.ts';
import type { Clock } from '#shared/clock.ts';
import { sleep } from '#shared/backoff.ts';
import { AppError, messageOf } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import type { Target } from '../deployments/stub-config.ts';
import type { Claim, Dispatcher } from '../dispatch/dispatcher.ts';
import type { Leases } from '../dispatch/leases.ts';
import { precheck } from '../dispatch/precheck.ts';
import type { Verdict } from '../dispatch/precheck.ts';
import type { Replies, Waiting } from '../dispatch/replies.ts';
import type { ReadyContainer, SlotTable } from '../dispatch/slots.ts';
import type { Fence, TaskQueues } from '../queues/task-queues.ts';
import type { TaskRow } from '../store/queries/tasks.ts';
import type { TaskJob } from '../queues/jobs.ts';
import type { Attempt } from './attempts.ts';
import { Attempts } from './attempts.ts';
import type { TaskMetrics } from './metrics.ts';
import type { TaskRecord, TaskRecords } from './records.ts';
import type { AttemptOutcome, Ending } from './state.ts';
import { endingOfSync, RANK } from './state.ts';
import type { Bodies } from './bodies.ts';
import type { Call, Finished, Submission, TaskFilter, TaskService } from './task-service.ts';

/** What an agent says of an attempt's end. */
export interface AttemptResult {
  readonly taskId: TaskId;
  readonly token: AttemptToken;
  readonly containerId: ContainerId;
  readonly outcome: AttemptOutcome;
  readonly durationMs: number;
  /** undefined: larger than a result may be. */
  readonly body: Buffer | undefined;
}

export interface LiveReport {
  readonly taskId: TaskId;
  readonly token: AttemptToken;
  readonly containerId: ContainerId;
}

/** How a task ends that no container has. */
interface QueuedEnding {
  readonly status: TaskStatus;
  readonly httpStatus: number;
  readonly text: string;
  readonly failureReason: string;
}
const CALLER_LEFT: QueuedEnding = {
  status: 'CANCELLED',
  httpStatus: 499,
  text: 'caller left',
  failureReason: 'request_cancelled',
};
const WAIT_LIMIT: QueuedEnding = {
  status: 'TIMEOUT',
  httpStatus: 504,
  text: 'Timed out waiting for a backend container',
  failureReason: 'wait_limit',
};
const INPUT_LOST = {
  kind: 'finish',
  status: 'ERROR',
  httpStatus: 500,
  errorText: 'the input of the task could not be read',
  failureReason: 'input_lost',
} as const satisfies Verdict;
const RESULT_NOT_STORED: Ending = { status: 'ERROR', httpStatus: 500, failureReason: 'result_not_stored' };
/** For a caller whose answer was lost on the way and is read from the record. */
const HTTP_STATUS: Readonly<Record<TaskStatus, number>> = {
  PENDING: 500,
  RUNNING: 500,
  RETRY: 500,
  COMPLETE: 200,
  ERROR: 500,
  CANCELLED: 503,
  TIMEOUT: 504,
  EXPIRED: 504,
};

const LOCK_MS = 120_000;
const RENEW_EVERY_MS = 30_000;
/** A container whose agent refused a task gets none for so long, so that the two do not play ball. */
const REFUSED_PAUSE_MS = 100;
/** A task whose input cannot be read is tried so often. */
const INPUT_TRIES = 3;
const FINISH_TRIES = 60;
const FINISH_RETRY_MS = 500;

export interface TaskGraces {
  /** Beyond the execution limit, before the scheduler ends the task by itself. */
  readonly limitMs: number;
  /** How long a reconnected agent may take to name what it still has: unacknowledged results come right after its report. */
  readonly reportMs: number;
  readonly restartedAgentMs: number;
}
const GRACES: TaskGraces = { limitMs: 10_000, reportMs: 2_000, restartedAgentMs: 10_000 };

export interface TaskServiceParts {
  readonly queues: TaskQueues;
  readonly records: TaskRecords;
  readonly leases: Leases;
  readonly slots: SlotTable;
  readonly bodies: Bodies;
  readonly replies: Replies;
  readonly instance: InstanceId;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: TaskMetrics;
  readonly graces?: TaskGraces;
  /** Is another replica's presence known? */
  readonly isAlive: (replica: InstanceId) => boolean;
  /** A queue grew or an attempt ended: the autoscaler may care. */
  readonly onDepth: (target: Target, depth: number) => void;
  readonly onAttemptEnded: (queue: QueueName, containerId: ContainerId) => void;
  readonly listRows: (workspaceId: WorkspaceId, filter: TaskFilter) => Promise<readonly TaskRecord[]>;
}

export class Tasks implements TaskService {
  readonly attempts = new Attempts();
  readonly #parts: TaskServiceParts;
  readonly #graces: TaskGraces;
  #dispatcher: Dispatcher | undefined;
  readonly #abort = new AbortController();

  constructor(parts: TaskServiceParts) {
    this.#parts = parts;
    this.#graces = parts.graces ?? GRACES;
  }

  /** The dispatcher and the service know each other; main.ts ties the knot. */
  attach(dispatcher: Dispatcher): void {
    this.#dispatcher = dispatcher;
  }

  start(): void {
    void this.#renewLoop();
  }

  /** Answers everybody who still waits; attempts go on in their containers and are adopted by whoever comes next. */
  stop(): void {
    this.#abort.abort();
    for (const attempt of this.attempts.all()) clearTimeout(attempt.limit);
    this.#parts.replies.settleAll({ status: 'CANCELLED', httpStatus: 503, body: errorBody('scheduler is stopping') });
  }

  async submit(target: Target, call: Call): Promise<Submission> {
    const { queues, records, clock, replies } = this.#parts;
    if (!target.sync) throw new AppError('not_implemented', `tasks of kind ${target.kind} cannot be put yet`);
    if (records.isOverloaded()) return { kind: 'unavailable', text: 'task records cannot be written fast enough' };
    const nowMs = clock.nowMs();
    const taskId = newId<TaskId>();
    const stored = await this.#parts.bodies.storeInput(call.input);
    const job: TaskJob = {
      v: 1,
      taskId,
      workspaceId: target.workspaceId,
      stubId: target.stubId,
      deploymentId: target.deploymentId,
      kind: target.kind as StubKind,
      sync: target.sync,
      replica: this.#parts.instance,
      ...stored,
      ...(call.query === undefined ? {} : { query: mutableQuery(call.query) }),
      timeoutMs: target.config.timeoutSeconds * 1000,
      deadlineMs: nowMs + target.config.ttlSeconds * 1000,
      createdAtMs: nowMs,
      attempts: 0,
      retries: 0,
      retriesUsed: 0,
    };
    // The caller waits before the job can be seen: somebody's fetch may bring it back before our own add is answered.
    const waiting: Waiting = { taskId, queue: target.queue, job };
    const finished = replies.wait(waiting, target.config.ttlSeconds * 1000);
    let depth: number;
    let undone = false;
    try {
      await queues.open(target.queue);
      depth = (await queues.add(target.queue, job)).depth;
      if (depth > target.config.maxPendingTasks) undone = await queues.remove(target.queue, taskId);
    } catch (error) {
      this.#parts.log.warn({ err: error, queue: target.queue }, 'task could not be queued');
      replies.abandon(taskId);
      void this.#withdraw(target.queue, job);
      return { kind: 'unavailable', text: 'the task queue does not answer' };
    }
    if (undone) {
      replies.abandon(taskId);
      this.#dropInput(job);
      return { kind: 'queue_full', maxPendingTasks: target.config.maxPendingTasks };
    }
    void records.append(recordOf(job, target.queue, 'PENDING', 0));
    this.#parts.metrics.waiting.set(replies.size);
    this.#dispatch.wake(target.queue, taskId);
    this.#parts.onDepth(target, depth);
    return { kind: 'accepted', taskId, finished, callerLeft: () => void this.#callerLeft(waiting) };
  }

  get #dispatch(): Dispatcher {
    if (this.#dispatcher === undefined) throw new Error('the dispatcher is not attached');
    return this.#dispatcher;
  }

  /** An add that failed or timed out may still have happened: take it out. Where that fails too, its fetch finds nobody waiting and cancels it. */
  async #withdraw(queue: QueueName, job: TaskJob): Promise<void> {
    try {
      if (await this.#parts.queues.remove(queue, job.taskId)) this.#dropInput(job);
    } catch (error) {
      this.#parts.log.info(
        { err: error, taskId: job.taskId },
        'a task that was not accepted could not be taken out yet',
      );
    }
  }

  async #callerLeft(waiting: Waiting): Promise<void> {
    try {
      if (!this.#parts.replies.has(waiting.taskId)) return;
      // Not taken out: a container has it, it runs on and is recorded.
      if (!(await this.#parts.queues.remove(waiting.queue, waiting.taskId))) return;
      await this.#endTakenOut(waiting, CALLER_LEFT);
    } catch (error) {
      this.#parts.log.info({ err: error, taskId: waiting.taskId }, 'a caller left; its task goes on');
    }
  }

  /** The wait limit of a caller ran out: TIMEOUT when no container has the task; else its execution limit decides. Asked again every few seconds until it is answered. */
  waitLimitReached(waiting: Waiting): void {
    // What runs here answers by itself.
    if (this.attempts.current(waiting.taskId) !== undefined) return;
    void this.#waitLimit(waiting).catch((error: unknown) => {
      this.#parts.log.warn(
        { err: error, taskId: waiting.taskId },
        'wait limit could not be carried out, answering all the same',
      );
      this.#answer(waiting.taskId, 'TIMEOUT', 504, errorBody(WAIT_LIMIT.text));
    });
  }

  async #waitLimit(waiting: Waiting): Promise<void> {
    const { queues, records, replies } = this.#parts;
    if (await queues.remove(waiting.queue, waiting.taskId)) {
      await this.#endTakenOut(waiting, WAIT_LIMIT);
      return;
    }
    // Somebody holds it, or it is not there any more: ended elsewhere with the answer lost on the way, or lost with the data of Redis.
    const record = await records.read(waiting.taskId);
    if (record !== undefined && isTerminalTask(record.status)) {
      await this.#answerFrom(record);
      return;
    }
    const held = (await queues.read(waiting.queue, waiting.taskId)) !== undefined;
    const runsHere = this.attempts.current(waiting.taskId) !== undefined;
    if (held || runsHere || !replies.has(waiting.taskId)) return;
    await this.#endTakenOut(waiting, WAIT_LIMIT);
  }

  /** A start of this queue failed by the user's cause and nothing else serves it: its waiting callers are told why. */
  async failWaiting(queue: QueueName, lastLines: string): Promise<number> {
    const ending: QueuedEnding = { status: 'ERROR', httpStatus: 500, text: lastLines, failureReason: 'start_failed' };
    let failed = 0;
    for (const waiting of [...this.#parts.replies.of(queue)]) {
      try {
        if (!(await this.#parts.queues.remove(queue, waiting.taskId))) continue;
        await this.#endTakenOut(waiting, ending, { result: errorBody(lastLines) });
        failed += 1;
      } catch (error) {
        this.#parts.log.warn({ err: error, taskId: waiting.taskId }, 'a waiting task could not be failed');
      }
    }
    return failed;
  }

  /** Ends a task that was taken out of its queue: the record goes on from the attempts it had, then its caller is answered. */
  async #endTakenOut(waiting: Waiting, ending: QueuedEnding, extra: Partial<TaskRecord> = {}): Promise<void> {
    const { job, queue } = waiting;
    this.#dispatch.forget(queue, waiting.taskId);
    let attempt = 0;
    try {
      attempt = (await this.#parts.records.read(waiting.taskId))?.attempt ?? 0;
    } finally {
      await this.#endQueued(queue, job, ending, attempt, extra);
    }
  }

  /** The dispatcher fetched a job for a free slot. */
  begin(claim: Claim): void {
    void this.#begin(claim).catch((error: unknown) => {
      this.#parts.log.error(
        { err: error, taskId: claim.job.taskId },
        'a fetched task could not be sent, giving it back',
      );
      void this.#giveBack(claim, true);
    });
  }

  async #begin(claim: Claim): Promise<void> {
    const { clock, leases } = this.#parts;
    const fetchedAt = clock.monotonicMs();
    const { job } = claim;
    // A job that comes again may have ended meanwhile: its lock ran out before its end reached the queue, or Redis came back older.
    if (claim.starts > 1 && (await this.#endedBefore(claim))) return;
    // A first fetch cannot meet a lease; a later one of a synchronous task must not run what was sent before.
    const leaseSeen = claim.starts > 1 && job.sync ? (await leases.read(job.taskId)) !== undefined : false;
    const callerWaits = this.#callerWaits(job);
    const verdict = precheck(job, { nowMs: clock.nowMs(), callerWaits, leaseSeen });
    if (verdict.kind === 'finish') {
      await this.#finishFetched(claim, verdict);
      return;
    }
    const input = await this.#inputOf(claim);
    if (input === undefined) {
      await this.#finishFetched(claim, INPUT_LOST);
      return;
    }
    const { container } = claim;
    const link = container.link;
    if (link === undefined || !container.accepting) {
      await this.#giveBack(claim, false);
      return;
    }
    const attempt = this.#newAttempt(claim, link.machineId);
    void leases
      .write({
        lock: claim.lock,
        attempt: attempt.number,
        containerId: container.containerId,
        machineId: container.machineId,
        queue: claim.queue,
        job,
        startedAtMs: attempt.sentAtMs,
      })
      .catch((error: unknown) => this.#parts.log.warn({ err: error, taskId: job.taskId }, 'lease not written'));
    const sent = link.run({
      taskId: job.taskId,
      token: claim.token,
      containerId: container.containerId,
      timeoutMs: job.timeoutMs,
      query: job.query,
      input,
    });
    if (!sent) {
      await this.#giveBack(claim, true);
      return;
    }
    this.#parts.metrics.dispatch.observe((clock.monotonicMs() - fetchedAt) / 1000);
    this.#parts.metrics.queueWait.observe(
      { stub_type: job.kind },
      Math.max(0, attempt.sentAtMs - job.createdAtMs) / 1000,
    );
    this.#parts.metrics.running.set(this.attempts.size);
    void this.#parts.records.append({
      ...recordOf(job, claim.queue, 'RUNNING', attempt.number),
      containerId: container.containerId,
      startedAtMs: attempt.sentAtMs,
    });
  }

  /** undefined: it cannot be read, and was tried often enough. */
  async #inputOf(claim: Claim): Promise<string | undefined> {
    const { job } = claim;
    if (job.inputObjectId === undefined) return job.input ?? '';
    try {
      return await this.#parts.bodies.loadInput(job.inputObjectId);
    } catch (error) {
      if (claim.starts < INPUT_TRIES) throw error;
      this.#parts.log.error({ err: error, taskId: job.taskId }, 'the input of a task cannot be read');
      return undefined;
    }
  }

  async #endedBefore(claim: Claim): Promise<boolean> {
    const { taskId } = claim.job;
    const record = await this.#parts.records.read(taskId);
    if (record === undefined || !isTerminalTask(record.status)) return false;
    await this.#parts.queues.fail(claim.queue, taskId, claim.lock, 'ended before');
    this.#dispatch.release(claim.container, this.#parts.clock.nowMs());
    await this.#answerFrom(record);
    return true;
  }

  /** Here: known exactly. Elsewhere: as far as that replica is present. */
  #callerWaits(job: TaskJob): boolean {
    return job.replica === this.#parts.instance
      ? this.#parts.replies.has(job.taskId)
      : this.#parts.isAlive(job.replica);
  }

  #newAttempt(claim: Claim, machineId: MachineId): Attempt {
    const { job } = claim;
    const attempt: Attempt = {
      job,
      queue: claim.queue,
      token: claim.token,
      lock: claim.lock,
      number: job.attempts + claim.starts,
      machineId,
      containerId: claim.container.containerId,
      container: claim.container,
      agentInstance: claim.container.link?.agentInstance ?? '',
      sentAtMs: this.#parts.clock.nowMs(),
      startedAtMs: null,
      ending: undefined,
      limit: undefined,
    };
    if (job.timeoutMs > 0) {
      attempt.limit = setTimeout(() => this.#limitPassed(attempt), job.timeoutMs + this.#graces.limitMs);
      attempt.limit.unref();
    }
    this.attempts.add(attempt);
    return attempt;
  }

  /** The agent should have ended it long ago. Its slot is not free before the agent says so. */
  #limitPassed(attempt: Attempt): void {
    if (attempt.ending !== undefined) return;
    const { job } = attempt;
    attempt.container?.link?.cancel(job.taskId, attempt.token, 'timeout');
    this.attempts.revoke(attempt);
    void this.#end(attempt, endingOfSync('timeout', { timeoutMs: job.timeoutMs }), undefined, job.timeoutMs);
  }

  /** @param pause - the container did not take it: nothing is sent there for a moment */
  async #giveBack(claim: Claim, pause: boolean): Promise<void> {
    const { job, queue, container } = claim;
    const attempt = this.attempts.find(job.taskId, claim.token);
    if (attempt !== undefined) this.attempts.remove(attempt);
    if (pause) this.#pause(container);
    try {
      if (attempt !== undefined) await this.#parts.leases.drop(job.taskId);
      await this.#parts.queues.giveBack(queue, job.taskId, claim.lock);
    } catch (error) {
      this.#parts.log.warn(
        { err: error, taskId: job.taskId },
        'task not given back; its lock runs out and the scan returns it',
      );
    }
    this.#dispatch.release(container, this.#parts.clock.nowMs());
    this.#dispatch.wake(queue);
  }

  #pause(container: ReadyContainer): void {
    this.#parts.slots.pause(container, REFUSED_PAUSE_MS, () => this.#dispatch.wake(container.queue));
  }

  async #finishFetched(claim: Claim, verdict: Extract<Verdict, { kind: 'finish' }>): Promise<void> {
    const { job, queue } = claim;
    const fence = await this.#parts.queues.fail(queue, job.taskId, claim.lock, verdict.failureReason);
    this.#dispatch.release(claim.container, this.#parts.clock.nowMs());
    if (fence.kind !== 'done') return;
    await this.#endQueued(queue, job, { ...verdict, text: verdict.errorText }, job.attempts + claim.starts);
  }

  /** Ends a task nobody runs: its record, and its caller if one is left. */
  async #endQueued(
    queue: QueueName,
    job: TaskJob,
    ending: QueuedEnding,
    attempt: number,
    extra: Partial<TaskRecord> = {},
  ): Promise<void> {
    const { status, failureReason } = ending;
    await this.#parts.records.append(this.#final(job, queue, attempt, status, { failureReason, ...extra }));
    this.#answer(job.taskId, status, ending.httpStatus, errorBody(ending.text));
    this.#parts.metrics.finished.inc({ stub_type: job.kind, status });
    this.#dropInput(job);
  }

  /** Whoever still waits for a task that ended elsewhere. */
  async #answerFrom(record: TaskRecord): Promise<void> {
    if (!this.#parts.replies.has(record.taskId)) return;
    const body = (await this.resultText(record)) ?? errorBody(record.failureReason);
    this.#answer(record.taskId, record.status, HTTP_STATUS[record.status], body);
  }

  #dropInput(job: TaskJob): void {
    if (job.inputObjectId === undefined) return;
    this.#parts.bodies.dropInput(job.inputObjectId).catch((error: unknown) => {
      this.#parts.log.info({ err: error, taskId: job.taskId }, 'the input of a task that ended could not be removed');
    });
  }

  #final(job: TaskJob, queue: QueueName, attempt: number, status: TaskStatus, extra: Partial<TaskRecord>): TaskRecord {
    return { ...recordOf(job, queue, status, attempt), endedAtMs: this.#parts.clock.nowMs(), ...extra };
  }

  // ---- what agents say ----------------------------------------------------------------------------------------------------------

  started(taskId: TaskId, token: AttemptToken): void {
    const attempt = this.attempts.find(taskId, token);
    if (attempt !== undefined) attempt.startedAtMs = this.#parts.clock.nowMs();
  }

  get maxResultBytes(): number {
    return this.#parts.bodies.maxResultBytes;
  }

  /** True once the agent may forget the result. */
  async result(machineId: MachineId, result: AttemptResult): Promise<boolean> {
    const attempt = this.attempts.find(result.taskId, result.token) ?? (await this.#adopt(machineId, result));
    if (attempt === undefined) {
      this.#freeRevoked(result.token);
      return true; // Superseded, finished or unknown: nobody will ever want it.
    }
    if (result.body === undefined) {
      const text = `result is larger than ${this.maxResultBytes} bytes`;
      const ending: Ending = { status: 'ERROR', httpStatus: 500, errorText: text, failureReason: 'result_too_large' };
      return await this.#end(attempt, ending, undefined, result.durationMs);
    }
    const ending = endingOfSync(result.outcome, { timeoutMs: attempt.job.timeoutMs });
    return await this.#end(attempt, ending, result.body, result.durationMs);
  }

  /** The agent never gave it to a runner process: back to the queue, first in line. */
  async refused(taskId: TaskId, token: AttemptToken, reason: string): Promise<void> {
    const attempt = this.attempts.find(taskId, token);
    if (attempt === undefined) {
      this.#freeRevoked(token);
      return;
    }
    this.#parts.metrics.attemptsLost.inc({ reason: 'refused' });
    this.#parts.log.info({ taskId, containerId: attempt.containerId, reason }, 'agent refused a task, giving it back');
    if (attempt.container !== undefined) this.#pause(attempt.container);
    await this.#backToQueue(attempt);
  }

  /** A container takes tasks (again): what was adopted before it was known here takes its slots. */
  containerReady(container: ReadyContainer): void {
    for (const attempt of this.attempts.ofContainer(container.containerId)) this.#attach(attempt, container);
  }

  #attach(attempt: Attempt, container: ReadyContainer | undefined): void {
    if (attempt.container !== undefined || container === undefined || attempt.ending !== undefined) return;
    attempt.container = container;
    container.inFlight += 1;
  }

  #freeRevoked(token: AttemptToken): void {
    const attempt = this.attempts.takeRevoked(token);
    if (attempt?.container !== undefined) this.#dispatch.release(attempt.container, this.#parts.clock.nowMs());
  }

  /**
   * A machine's task stream (again): what it still runs is adopted under the same token; what it does not know any more is lost, or, when it never reached it, queued again.
   */
  async machineReported(
    machineId: MachineId,
    agentInstance: string,
    running: readonly LiveReport[],
  ): Promise<{ adopted: LiveReport[]; refused: LiveReport[] }> {
    const adopted: LiveReport[] = [];
    const refused: LiveReport[] = [];
    for (const live of running) {
      const known = this.attempts.find(live.taskId, live.token) ?? (await this.#adopt(machineId, live));
      if (known === undefined) refused.push(live);
      else {
        this.#attach(known, this.#parts.slots.get(live.containerId));
        adopted.push(live);
      }
    }
    const reported = new Set(running.map((live) => live.token));
    for (const { token } of [...this.attempts.revokedOf({ machineId })]) {
      if (!reported.has(token)) this.#freeRevoked(token);
    }
    const missing = [...this.attempts.ofMachine(machineId)].filter((attempt) => !reported.has(attempt.token));
    for (const attempt of missing) {
      const sameAgent = attempt.agentInstance === agentInstance;
      void this.#missingAfter(attempt, sameAgent ? this.#graces.reportMs : this.#graces.restartedAgentMs, sameAgent);
    }
    return { adopted, refused };
  }

  async #missingAfter(attempt: Attempt, graceMs: number, neverReached: boolean): Promise<void> {
    const slept = await sleep(graceMs, this.#abort.signal);
    if (!slept || this.attempts.current(attempt.job.taskId) !== attempt || attempt.ending !== undefined) return;
    if (neverReached) await this.#backToQueue(attempt);
    else await this.#lost(attempt, 'agent_restarted');
  }

  /** The container is gone. Its agent's word on its attempts travels on another stream: give it a moment, then count them as lost. */
  async containerGone(containerId: ContainerId): Promise<void> {
    for (const { token } of [...this.attempts.revokedOf({ containerId })]) this.attempts.takeRevoked(token);
    if ([...this.attempts.ofContainer(containerId)].length === 0) return;
    // A scheduler that stops leaves them to whoever comes next.
    if (!(await sleep(this.#graces.reportMs, this.#abort.signal))) return;
    await Promise.all(
      [...this.attempts.ofContainer(containerId)].map((attempt) => this.#lost(attempt, 'container_gone')),
    );
  }

  /** LOST, 90 s without a session. */
  async machineLost(machineId: MachineId): Promise<void> {
    await Promise.all([...this.attempts.ofMachine(machineId)].map((attempt) => this.#lost(attempt, 'machine_lost')));
  }

  async #lost(attempt: Attempt, reason: string): Promise<void> {
    this.#parts.metrics.attemptsLost.inc({ reason });
    await this.#end(attempt, endingOfSync('lost', { timeoutMs: attempt.job.timeoutMs }), undefined, 0);
  }

  async #backToQueue(attempt: Attempt): Promise<void> {
    attempt.ending ??= this.#returnToQueue(attempt);
    await attempt.ending;
  }

  async #returnToQueue(attempt: Attempt): Promise<boolean> {
    const { job, queue } = attempt;
    this.attempts.remove(attempt);
    // Waiting again, in the books too: above this attempt's RUNNING, below the next one's.
    void this.#parts.records.append({
      ...recordOf(job, queue, 'PENDING', attempt.number),
      rank: RANK.RETRY as TaskRecord['rank'],
    });
    try {
      await this.#parts.leases.drop(job.taskId);
      await this.#parts.queues.giveBack(queue, job.taskId, attempt.lock);
    } catch (error) {
      this.#parts.log.warn({ err: error, taskId: job.taskId }, 'task not given back; the scan returns it');
    }
    if (attempt.container !== undefined) this.#dispatch.release(attempt.container, this.#parts.clock.nowMs());
    this.#dispatch.wake(queue, job.taskId);
    return true;
  }

  /** Takes over an attempt that another process of ours sent, if its token is the one that holds the task. */
  async #adopt(machineId: MachineId, live: LiveReport): Promise<Attempt | undefined> {
    const lease = await this.#parts.leases.read(live.taskId);
    if (lease === undefined || attemptHashOf(lease.lock) !== sha256Hex(live.token)) return undefined;
    if (lease.machineId !== machineId) return undefined;
    const held = await this.#parts.queues.lockOf(lease.queue as QueueName, live.taskId);
    if (held !== undefined && held !== lease.lock) return undefined;
    // Its report and its result may have come side by side.
    const adopted = this.attempts.current(live.taskId);
    if (adopted !== undefined) return adopted.token === live.token ? adopted : undefined;
    const attempt: Attempt = {
      job: lease.job,
      queue: lease.queue as QueueName,
      token: live.token,
      lock: lease.lock,
      number: lease.attempt,
      machineId,
      containerId: lease.containerId,
      container: undefined,
      agentInstance: '',
      sentAtMs: lease.startedAtMs,
      startedAtMs: lease.startedAtMs,
      ending: undefined,
      limit: undefined,
    };
    this.#attach(attempt, this.#parts.slots.get(lease.containerId));
    this.attempts.add(attempt);
    this.#parts.log.info({ taskId: live.taskId, containerId: lease.containerId }, 'attempt adopted');
    return attempt;
  }

  /** Ends an attempt, once: whoever ends it again gets the first one's answer. False: not written, the agent keeps the result. */
  #end(attempt: Attempt, ending: Ending, body: Buffer | undefined, durationMs: number): Promise<boolean> {
    attempt.ending ??= this.#finish(attempt, ending, body, durationMs);
    return attempt.ending;
  }

  /** The fenced call and the record in one tick, then the caller. */
  async #finish(attempt: Attempt, asked: Ending, body: Buffer | undefined, durationMs: number): Promise<boolean> {
    const { job, queue } = attempt;
    const { ending, text, stored } = await this.#storable(job, asked, body);
    const record = {
      ...this.#final(job, queue, attempt.number, ending.status, { failureReason: ending.failureReason }),
      containerId: attempt.containerId,
      startedAtMs: attempt.startedAtMs ?? attempt.sentAtMs,
      durationMs,
      ...stored,
    };
    // The slot is free now: the next fetch goes out with the completion.
    const fencing = this.#fence(attempt, ending);
    void this.#parts.records.append(record);
    this.#parts.leases.drop(job.taskId).catch((error: unknown) => {
      this.#parts.log.info({ err: error, taskId: job.taskId }, 'lease not dropped; it runs out by itself');
    });
    this.#freeSlot(attempt, ending);
    let fence: Fence | undefined;
    try {
      fence = await fencing;
    } catch (error) {
      this.#parts.log.warn({ err: error, taskId: job.taskId }, 'completion not written yet, trying again');
      fence = await this.#fenceAgain(attempt, ending, record);
    }
    this.attempts.remove(attempt);
    this.#dropInput(job);
    this.#parts.metrics.running.set(this.attempts.size);
    if (fence?.kind === 'superseded') {
      this.#parts.log.warn({ taskId: job.taskId }, 'a superseded attempt ended; nothing changes');
      return true;
    }
    if (fence?.kind === 'expired') await this.#takeOutExpired(attempt);
    this.#answer(job.taskId, ending.status, ending.httpStatus, text);
    this.#parts.metrics.finished.inc({ stub_type: job.kind, status: ending.status });
    this.#parts.metrics.execution.observe({ stub_type: job.kind, status: ending.status }, durationMs / 1000);
    this.#parts.onAttemptEnded(queue, attempt.containerId);
    return fence !== undefined;
  }

  /** What the caller gets, and where it is kept. A result that cannot be kept ends its task with an error instead of never. */
  async #storable(
    job: TaskJob,
    ending: Ending,
    body: Buffer | undefined,
  ): Promise<{ ending: Ending; text: string; stored: Pick<TaskRecord, 'result' | 'resultObjectId'> }> {
    const text =
      ending.errorText === undefined
        ? (body?.toString('utf8') ?? errorBody(ending.failureReason))
        : errorBody(ending.errorText);
    try {
      return { ending, text, stored: await this.#parts.bodies.storeResult(text) };
    } catch (error) {
      this.#parts.log.error({ err: error, taskId: job.taskId }, 'a result could not be kept');
      const failed = errorBody('result could not be stored');
      return { ending: RESULT_NOT_STORED, text: failed, stored: { result: failed } };
    }
  }

  #freeSlot(attempt: Attempt, ending: Ending): void {
    const { container } = attempt;
    if (container === undefined) return;
    if (ending.status === 'COMPLETE' || ending.failureReason === 'handler_error') container.completed += 1;
    const keepsSlot = ending.failureReason === 'execution_timeout' && this.attempts.isRevoked(attempt);
    if (!keepsSlot) this.#dispatch.release(container, this.#parts.clock.nowMs());
  }

  /** Its lock ran out while it ran: nobody holds the job, and nobody may run it again. Where it stays, its record ends it at the next fetch. */
  async #takeOutExpired(attempt: Attempt): Promise<void> {
    try {
      await this.#parts.queues.remove(attempt.queue, attempt.job.taskId);
    } catch (error) {
      this.#parts.log.info({ err: error, taskId: attempt.job.taskId }, 'a finished job is still in its queue');
    }
  }

  #fence(attempt: Attempt, ending: Ending): Promise<Fence> {
    const { queues } = this.#parts;
    return ending.status === 'COMPLETE'
      ? queues.complete(attempt.queue, attempt.job.taskId, attempt.lock)
      : queues.fail(attempt.queue, attempt.job.taskId, attempt.lock, ending.failureReason);
  }

  async #fenceAgain(attempt: Attempt, ending: Ending, record: TaskRecord): Promise<Fence | undefined> {
    for (let attemptNumber = 0; attemptNumber < FINISH_TRIES; attemptNumber += 1) {
      if (!(await sleep(FINISH_RETRY_MS, this.#abort.signal))) return undefined;
      try {
        const fence = await this.#fence(attempt, ending);
        await this.#parts.records.append(record);
        return fence;
      } catch (error) {
        if (attemptNumber + 1 === FINISH_TRIES) {
          this.#parts.log.error(
            { err: error, taskId: attempt.job.taskId },
            'completion could not be written; the agent keeps the result',
          );
        }
      }
    }
    return undefined;
  }

  #answer(taskId: TaskId, status: TaskStatus, httpStatus: number, body: string): void {
    const finished: Finished = { status, httpStatus, body };
    this.#parts.replies.settle(taskId, finished);
    this.#parts.metrics.waiting.set(this.#parts.replies.size);
  }

  /** Locks and leases of everything that runs, every 30 s, whatever the machines say meanwhile. */
  async #renewLoop(): Promise<void> {
    while (await sleep(RENEW_EVERY_MS, this.#abort.signal)) {
      const held = [...this.attempts.all()].map((attempt) => ({
        queue: attempt.queue,
        taskId: attempt.job.taskId,
        lock: attempt.lock,
      }));
      if (held.length === 0) continue;
      try {
        const lost = await this.#parts.queues.renew(held, LOCK_MS);
        if (lost.length > 0) this.#parts.log.warn({ count: lost.length }, 'locks could not be renewed');
        await this.#parts.leases.renew(held.map((one) => one.taskId));
      } catch (error) {
        this.#parts.log.warn({ err: error, reason: messageOf(error) }, 'locks not renewed, trying again in 30 s');
      }
    }
  }

  // ---- reads --------------------------------------------------------------------------------------------------------------------

  async read(workspaceId: WorkspaceId, taskId: string): Promise<TaskRecord | undefined> {
    if (!isUuid(taskId)) return undefined;
    const record = await this.#parts.records.read(taskId as TaskId);
    return record?.workspaceId === workspaceId ? record : undefined;
  }

  async list(workspaceId: WorkspaceId, filter: TaskFilter): Promise<readonly TaskRecord[]> {
    if (filter.taskIds === undefined) return await this.#parts.listRows(workspaceId, filter);
    const found = await Promise.all(
      filter.taskIds.slice(0, filter.limit).map((taskId) => this.read(workspaceId, taskId)),
    );
    return found
      .filter((record) => record !== undefined)
      .filter((record) => filter.statuses === undefined || filter.statuses.includes(record.status))
      .filter((record) => filter.stubIds === undefined || filter.stubIds.includes(record.stubId))
      .filter(
        (record) =>
          filter.containerIds === undefined ||
          (record.containerId !== null && filter.containerIds.includes(record.containerId)),
      )
      .sort((a, b) => b.createdAtMs - a.createdAtMs);
  }

  async resultText(record: TaskRecord): Promise<string | undefined> {
    if (record.result !== undefined) return record.result;
    return record.resultObjectId === undefined ? undefined : await this.#parts.bodies.loadResult(record.resultObjectId);
  }
}

/** `{"error": text}` as JSON text. */
export function errorBody(text: string): string {
  return JSON.stringify({ error: text });
}

function recordOf(job: TaskJob, queue: QueueName, status: TaskStatus, attempt: number): TaskRecord {
  return {
    taskId: job.taskId,
    workspaceId: job.workspaceId,
    stubId: job.stubId,
    deploymentId: job.deploymentId,
    queue,
    kind: job.kind,
    sync: job.sync,
    status,
    attempt,
    rank: RANK[status] as TaskRecord['rank'],
    containerId: null,
    failureReason: '',
    createdAtMs: job.createdAtMs,
    startedAtMs: null,
    endedAtMs: isTerminalTask(status) ? job.createdAtMs : null,
    durationMs: null,
    deadlineMs: job.deadlineMs,
  };
}

function mutableQuery(query: Readonly<Record<string, readonly string[]>>): Record<string, string[]> {
  return Object.fromEntries(Object.entries(query).map(([name, values]) => [name, [...values]]));
}

/** A row of the database as a record. */
export function recordOfRow(row: TaskRow): TaskRecord {
  const { result, resultObjectId } = row;
  return {
    taskId: row.taskId,
    workspaceId: row.workspaceId,
    stubId: row.stubId,
    deploymentId: row.deploymentId,
    queue: row.queue,
    kind: row.kind as StubKind,
    sync: row.sync,
    status: row.status,
    attempt: row.attempt,
    rank: row.rank as TaskRecord['rank'],
    containerId: row.containerId,
    failureReason: row.failureReason,
    createdAtMs: row.createdAtMs,
    startedAtMs: row.startedAtMs,
    endedAtMs: row.endedAtMs,
    durationMs: row.durationMs,
    deadlineMs: row.deadlineMs ?? 0,
    ...(result === undefined ? {} : { result }),
    ...(resultObjectId === undefined ? {} : { resultObjectId }),
  };
}
