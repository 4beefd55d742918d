// The life of a task on this replica: accepted, queued, sent, ended, answered. Called by the invoke surface (submit), by the dispatcher (a claim) and by fleet/ (what agents say).
// What must stay true: BullMQ's fenced call decides who ends an attempt; our record is written in the same tick and follows its answer; a synchronous task never runs twice;
// every caller is answered exactly once.
import type { ContainerId, InstanceId, MachineId, QueueName, TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import type { AttemptToken } from '#shared/domain/ids.ts';
import { isUuid, newId } from '#shared/domain/ids.ts';
import type { StubKind } from '#shared/domain/status.ts';
import { isTerminalTask } from '#shared/domain/status.ts';
import type { Clock } from '#shared/clock.ts';
import { sleep } from '#shared/backoff.ts';
import { messageOf } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import type { Target } from '../deployments/stub-config.ts';
import type { Claim, Dispatcher } from '../dispatch/dispatcher.ts';
import type { Lease, Leases } from '../dispatch/leases.ts';
import { precheck } from '../dispatch/precheck.ts';
import type { Verdict } from '../dispatch/precheck.ts';
import type { Replies, Waiting } from '../dispatch/replies.ts';
import type { ReadyContainer, SlotTable } from '../dispatch/slots.ts';
import type { DueTimes } from '../queues/due.ts';
import type { TaskJob } from '../queues/jobs.ts';
import { encodeTaskJob } from '../queues/jobs.ts';
import type { HeldLock, TaskQueues } from '../queues/task-queues.ts';
import type { GroupCommit } from './accepting.ts';
import type { Attempt } from './attempts.ts';
import { Attempts } from './attempts.ts';
import type { Bodies } from './bodies.ts';
import type { QueuedEnding } from './ender.ts';
import { Ender } from './ender.ts';
import type { TaskMetrics } from './metrics.ts';
import { errorBody, recordOf } from './recording.ts';
import type { TaskRecord, TaskRecords } from './records.ts';
import type { AttemptResult, LiveReport, TaskGraces } from './reports.ts';
import { GRACES, Reports } from './reports.ts';
import { endingOf } from './state.ts';
import type { Call, Submission, TaskFilter, TaskService } from './task-service.ts';

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
const LOCK_MS = 120_000;
const RENEW_EVERY_MS = 30_000;
/** A longer timer would fire at once. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;
/** A container whose agent refused a task gets none for so long, so that the two do not play ball. */
const REFUSED_PAUSE_MS = 100;
/** A task whose input cannot be read is tried so often. */
const INPUT_TRIES = 3;

export interface TaskServiceParts {
  readonly queues: TaskQueues;
  readonly records: TaskRecords;
  readonly leases: Leases;
  readonly slots: SlotTable;
  readonly bodies: Bodies;
  /** Rows of asynchronous tasks, before their ids are returned. */
  readonly accepting: GroupCommit;
  readonly due: DueTimes;
  readonly replies: Replies;
  readonly instance: InstanceId;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: TaskMetrics;
  readonly graces?: TaskGraces;
  /** Is another replica's presence known? */
  readonly isAlive: (replica: InstanceId) => boolean;
  /** Whether the deployment still takes tasks. */
  readonly isActive: (target: Target) => boolean | Promise<boolean>;
  /** A queue grew or an attempt ended: the autoscaler may care. */
  readonly onDepth: (target: Target, depth: number) => void;
  readonly onAttemptEnded: (queue: QueueName, containerId: ContainerId) => void;
  readonly listRows: (workspaceId: WorkspaceId, filter: TaskFilter) => Promise<readonly TaskRecord[]>;
}

export class Tasks implements TaskService {
  readonly attempts = new Attempts();
  readonly ender: Ender;
  readonly #reports: Reports;
  readonly #parts: TaskServiceParts;
  readonly #graces: TaskGraces;
  #dispatcher: Dispatcher | undefined;
  readonly #abort = new AbortController();

  constructor(parts: TaskServiceParts) {
    this.#parts = parts;
    this.#graces = parts.graces ?? GRACES;
    const { signal } = this.#abort;
    this.ender = new Ender({
      ...parts,
      attempts: this.attempts,
      dispatcher: () => this.#dispatch,
      signal,
      onAttemptEnded: (attempt) => parts.onAttemptEnded(attempt.queue, attempt.containerId),
    });
    this.#reports = new Reports({
      ...parts,
      attempts: this.attempts,
      ender: this.ender,
      signal,
      graces: this.#graces,
      maxResultBytes: parts.bodies.maxResultBytes,
      pause: (container) => this.#pause(container),
      armLimit: (attempt) => this.#armLimit(attempt),
    });
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
    if (records.isOverloaded()) return { kind: 'unavailable', text: 'task records cannot be written fast enough' };
    const nowMs = clock.nowMs();
    const taskId = newId<TaskId>();
    const stored = await this.#parts.bodies.storeInput(call.input);
    // Storing a large input takes a moment, in which the deployment may have been stopped: whoever stopped it has answered its callers already.
    if (stored.inputObjectId !== undefined && !(await this.#parts.isActive(target))) {
      void this.#parts.bodies.dropInput(stored.inputObjectId).catch(() => undefined);
      return { kind: 'unavailable', text: 'deployment stopped' };
    }
    const { config } = target;
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
      timeoutMs: config.timeoutSeconds * 1000,
      deadlineMs: nowMs + config.ttlSeconds * 1000,
      createdAtMs: nowMs,
      attempts: 0,
      retries: target.sync ? 0 : config.retries,
      retriesUsed: 0,
    };
    // The caller waits before the job can be seen: somebody's fetch may bring it back before our own add is answered.
    const waiting: Waiting = { taskId, queue: target.queue, job };
    const finished = target.sync ? replies.wait(waiting, config.ttlSeconds * 1000) : NEVER;
    let depth: number;
    let undone = false;
    try {
      await queues.open(target.queue);
      const adding = queues.add(target.queue, job);
      // Where a slot is free the fetch leaves with the add, right behind it: one round trip less. Above the bound it finds an older task, or this one runs already.
      if (target.sync) process.nextTick(() => this.#dispatch.wake(target.queue, taskId));
      depth = (await adding).depth;
      if (depth > config.maxPendingTasks) undone = await queues.remove(target.queue, taskId);
    } catch (error) {
      this.#parts.log.warn({ err: error, queue: target.queue }, 'task could not be queued');
      replies.abandon(taskId);
      this.#dispatch.forget(target.queue, taskId);
      void this.#withdraw(target.queue, job);
      return { kind: 'unavailable', text: 'the task queue does not answer' };
    }
    if (undone) {
      replies.abandon(taskId);
      this.#dispatch.forget(target.queue, taskId);
      this.ender.dropInput(job);
      return { kind: 'queue_full', maxPendingTasks: config.maxPendingTasks };
    }
    const record = recordOf(job, target.queue, 'PENDING', 0);
    if (!target.sync && !(await this.#commit(target.queue, job, record))) {
      return { kind: 'unavailable', text: 'the task could not be recorded' };
    }
    if (target.sync) records.appendSoon(record);
    else void records.append(record);
    this.#parts.metrics.waiting.set(replies.size);
    // Again, in case that fetch was answered before the add was: it costs nothing while one is under way.
    if (this.attempts.current(taskId) === undefined) this.#dispatch.wake(target.queue, taskId);
    this.#parts.onDepth(target, depth);
    return { kind: 'accepted', taskId, finished, callerLeft: () => void this.#callerLeft(waiting) };
  }

  /** An asynchronous task's row, before its id is returned: from then on nothing loses it. */
  async #commit(queue: QueueName, job: TaskJob, record: TaskRecord): Promise<boolean> {
    try {
      await this.#parts.accepting.commit({ record, job: encodeTaskJob(job) });
      return true;
    } catch (error) {
      this.#parts.log.warn({ err: error, queue }, 'task could not be recorded');
      void this.#withdraw(queue, job);
      return false;
    }
  }

  get #dispatch(): Dispatcher {
    if (this.#dispatcher === undefined) throw new Error('the dispatcher is not attached');
    return this.#dispatcher;
  }

  /** An add that failed or timed out may still have happened: take it out. Where that fails too, its fetch finds nobody waiting and cancels it. */
  async #withdraw(queue: QueueName, job: TaskJob): Promise<void> {
    try {
      if (await this.#parts.queues.remove(queue, job.taskId)) this.ender.dropInput(job);
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
      await this.ender.takeOut(waiting.queue, waiting.job, CALLER_LEFT);
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
      this.ender.answer(waiting.taskId, 'TIMEOUT', 504, errorBody(WAIT_LIMIT.text));
    });
  }

  async #waitLimit(waiting: Waiting): Promise<void> {
    const { queues, records, replies } = this.#parts;
    if (await this.ender.takeOut(waiting.queue, waiting.job, WAIT_LIMIT)) return;
    // Somebody holds it, or it is not there any more: ended elsewhere with the answer lost on the way, or lost with the data of Redis.
    const record = await records.read(waiting.taskId);
    if (record !== undefined && isTerminalTask(record.status)) {
      await this.ender.answerFrom(record);
      return;
    }
    const held = (await queues.read(waiting.queue, waiting.taskId)) !== undefined;
    const runsHere = this.attempts.current(waiting.taskId) !== undefined;
    if (held || runsHere || !replies.has(waiting.taskId)) return;
    await this.ender.endTakenOut(waiting.queue, waiting.job, WAIT_LIMIT);
  }

  /** A start of this queue failed by the user's cause and nothing else serves it: its waiting callers are told why. */
  async failWaiting(queue: QueueName, lastLines: string): Promise<number> {
    const ending: QueuedEnding = { status: 'ERROR', httpStatus: 500, text: lastLines, failureReason: 'start_failed' };
    let failed = 0;
    for (const waiting of [...this.#parts.replies.of(queue)]) {
      try {
        if (await this.ender.takeOut(queue, waiting.job, ending, { result: errorBody(lastLines) })) failed += 1;
      } catch (error) {
        this.#parts.log.warn({ err: error, taskId: waiting.taskId }, 'a waiting task could not be failed');
      }
    }
    return failed;
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
    if ((claim.starts > 1 || job.attempts > 0) && (await this.#endedBefore(claim))) return;
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
    // Reading its input took a moment, in which it may have been stopped.
    if (job.inputObjectId !== undefined && (await this.#parts.queues.lockOf(claim.queue, job.taskId)) !== claim.lock) {
      this.#dispatch.release(container, clock.nowMs());
      return;
    }
    const attempt = this.#newAttempt(claim, link.machineId);
    void leases
      .write(leaseOf(attempt))
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
    const running: TaskRecord = {
      ...recordOf(job, claim.queue, 'RUNNING', attempt.number),
      containerId: container.containerId,
      startedAtMs: attempt.sentAtMs,
    };
    // Nobody knows a synchronous task's id before its answer.
    if (job.sync) this.#parts.records.appendSoon(running);
    else void this.#parts.records.append(running);
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
    await this.ender.answerFrom(record);
    // Last: whatever fails above gives the job back, and the slot with it.
    this.#dispatch.release(claim.container, this.#parts.clock.nowMs());
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
      slotFreed: false,
      limit: undefined,
    };
    this.#armLimit(attempt);
    this.attempts.add(attempt);
    return attempt;
  }

  #armLimit(attempt: Attempt): void {
    const { timeoutMs } = attempt.job;
    if (timeoutMs === 0) return;
    const leftMs = attempt.sentAtMs + timeoutMs + this.#graces.limitMs - this.#parts.clock.nowMs();
    // Beyond the longest timer it is looked at again.
    const again = (): void => (leftMs > LONGEST_TIMER_MS ? this.#armLimit(attempt) : this.#limitPassed(attempt));
    attempt.limit = setTimeout(again, Math.min(Math.max(0, leftMs), LONGEST_TIMER_MS));
    attempt.limit.unref();
  }

  /** The agent should have ended it long ago. Its slot is not free before the agent says so. */
  #limitPassed(attempt: Attempt): void {
    if (attempt.ending !== undefined) return;
    const { job } = attempt;
    void this.ender.revoke(attempt, 'timeout', endingOf('timeout', job), job.timeoutMs);
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
    await this.ender.endQueued(queue, job, { ...verdict, text: verdict.errorText }, job.attempts + claim.starts);
  }

  // ---- what agents say ----------------------------------------------------------------------------------------------------------

  started(taskId: TaskId, token: AttemptToken): void {
    this.#reports.started(taskId, token);
  }

  get maxResultBytes(): number {
    return this.#parts.bodies.maxResultBytes;
  }

  /** True once the agent may forget the result. */
  result(machineId: MachineId, result: AttemptResult): Promise<boolean> {
    return this.#reports.result(machineId, result);
  }

  refused(taskId: TaskId, token: AttemptToken, reason: string): Promise<void> {
    return this.#reports.refused(taskId, token, reason);
  }

  containerReady(container: ReadyContainer): void {
    this.#reports.containerReady(container);
  }

  machineReported(
    machineId: MachineId,
    agentInstance: string,
    running: readonly LiveReport[],
  ): Promise<{ adopted: LiveReport[]; refused: LiveReport[] }> {
    return this.#reports.machineReported(machineId, agentInstance, running);
  }

  containerGone(containerId: ContainerId): Promise<void> {
    return this.#reports.containerGone(containerId);
  }

  machineLost(machineId: MachineId): Promise<void> {
    return this.#reports.machineLost(machineId);
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
        await this.#parts.leases.renew(held.map((one) => one.taskId));
        if (lost.length > 0) await this.#keepLeases(lost);
      } catch (error) {
        this.#parts.log.warn({ err: error, reason: messageOf(error) }, 'locks not renewed, trying again in 30 s');
      }
    }
  }

  /** Redis may have come back without its data: the lease says that they run all the same, so that nobody queues them again. */
  async #keepLeases(lost: readonly HeldLock[]): Promise<void> {
    this.#parts.log.warn({ count: lost.length }, 'locks could not be renewed');
    const running = lost.map(({ taskId }) => this.attempts.current(taskId)).filter((attempt) => attempt !== undefined);
    await Promise.all(running.map((attempt) => this.#parts.leases.restore(leaseOf(attempt))));
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

  resultText(record: TaskRecord): Promise<string | undefined> {
    return this.ender.resultText(record);
  }
}

function leaseOf(attempt: Attempt): Lease {
  const { lock, containerId, machineId, queue, job } = attempt;
  return { lock, attempt: attempt.number, containerId, machineId, queue, job, startedAtMs: attempt.sentAtMs };
}

/** What nobody waits for. */
const NEVER = new Promise<never>(() => undefined);

function mutableQuery(query: Readonly<Record<string, readonly string[]>>): Record<string, string[]> {
  return Object.fromEntries(Object.entries(query).map(([name, values]) => [name, [...values]]));
}
