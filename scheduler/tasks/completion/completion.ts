// End of tasks, each exactly once: the fence decides (BullMQ's, or the order's in tasks/lines/), then the record is
// made. The caller of a result is answered at once, because the agent repeats a result whose record is lost with this
// process. Any other end is written before its caller is told. Every end of a task passes here: results, losses,
// limits, cancels, deployments that stop.
// Invariant: an attempt's slot is freed once, when its agent confirmed the end or can no longer do so.
import type { AttemptToken, ContainerId, QueueName, TaskId } from '#shared/domain/ids.ts';
import { isTerminalTask } from '#shared/domain/status.ts';
import { sleep } from '#shared/backoff.ts';
import type { Clock } from '#shared/clock.ts';
import { Listeners } from '#shared/listeners.ts';
import type { Log } from '#shared/log.ts';
import type { EndReason, Ending, Presentation } from '../../domain/endings.ts';
import { failureReasonOf, reasonOfRecord, RESULT_NOT_STORED } from '../../domain/endings.ts';
import type { TaskJob } from '../../stores/queues/jobs.ts';
import type { RedisData } from '../../stores/queues/redis-data.ts';
import type { Fence, TaskQueues } from '../../stores/queues/task-queues.ts';
import type { Attempt, Attempts } from '../dispatch/attempts.ts';
import type { TaskBodies } from '../dispatch/bodies.ts';
import type { Dispatcher } from '../dispatch/dispatcher.ts';
import type { LastAttempts } from '../dispatch/last-attempts.ts';
import type { Finished, Replies } from '../dispatch/replies.ts';
import type { Order } from '../lines/lines.ts';
import type { GracePeriods } from '../maintenance/grace-periods.ts';
import type { TaskMetrics } from '../metrics.ts';
import type { Changes } from '../records/changes.ts';
import type { FailedInputs } from '../inputs/failed-inputs.ts';
import { errorBody, finalOf, inputStateOf } from '../records/recording.ts';
import type { TaskRecord } from '../records/task-record.ts';
import type { TaskRecords } from '../records/records.ts';
import { resultTextOf } from './result-text.ts';
import type { ReturningParts } from './returning.ts';
import { Returning } from './returning.ts';
import type { AttemptOutcome } from '../state.ts';
import { ENDED_BY, verdictOf } from '../state.ts';

export interface CompletionParts extends Omit<ReturningParts, 'freeSlot' | 'ended'> {
  readonly queues: ReturningParts['queues'] & Pick<TaskQueues, 'complete' | 'fail' | 'remove'>;
  readonly records: Pick<TaskRecords, 'read'>;
  readonly lastAttempts: Pick<LastAttempts, 'write'>;
  readonly changes: Pick<Changes, 'apply' | 'applied' | 'safe'>;
  readonly bodies: Pick<TaskBodies, 'storeResult' | 'resultText' | 'dropInput'>;
  readonly failedInputs: Pick<FailedInputs, 'of'>;
  /** Fixed texts for callers of the reasons why tasks end. */
  readonly textOf: Presentation['textOf'];
  readonly replies: Pick<Replies, 'settle' | 'deliver' | 'has' | 'size'>;
  readonly attempts: ReturningParts['attempts'] &
    Pick<Attempts, 'recording' | 'revoke' | 'isRevoked' | 'takeRevoked' | 'size'>;
  readonly dispatcher: Pick<Dispatcher, 'release' | 'forget' | 'wake'>;
  readonly graces: Pick<GracePeriods, 'againMs' | 'endMs'>;
  /** Absent: Redis never loses data. */
  readonly redisData?: Pick<RedisData, 'brokenAtMs'> | undefined;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Pick<TaskMetrics, 'finished' | 'execution' | 'retries'>;
}

/** Reasons of failures that show a container at work. */
const HANDLED: ReadonlySet<EndReason> = new Set(['handler_error', 'invalid_request_payload']);

export class Completion {
  readonly #parts: CompletionParts;
  readonly #returning: Returning;
  readonly #attemptEnded = new Listeners<[QueueName, ContainerId]>();

  constructor(parts: CompletionParts) {
    this.#parts = parts;
    const freeSlot = (attempt: Attempt): void => this.#freeSlot(attempt, undefined);
    const ended = (attempt: Attempt): void => this.#tellEnded(attempt);
    this.#returning = new Returning({ ...parts, freeSlot, ended });
  }

  /** Told when a container has one attempt less. */
  onAttemptEnded(listener: (queue: QueueName, containerId: ContainerId) => void): void {
    this.#attemptEnded.add(listener);
  }

  #tellEnded(attempt: Attempt): void {
    this.#attemptEnded.tell(attempt.queue, attempt.containerId);
  }

  // ---- attempts -----------------------------------------------------------------------------------------------------

  /** Ends an attempt whose outcome nobody will report. @param died - its container is gone, and was not told to stop */
  lost(attempt: Attempt, died: boolean): Promise<boolean> {
    this.#remember(attempt);
    return this.#ended(attempt, 'lost', undefined, 0, died, false);
  }

  /** Ends an attempt as its agent reports. @returns false: not written; the agent keeps the result */
  ended(attempt: Attempt, outcome: AttemptOutcome, body: Buffer | undefined, durationMs: number): Promise<boolean> {
    const stopping = attempt.container?.leaving ?? false;
    return this.#ended(attempt, outcome, body, durationMs, outcome === 'exited' && !stopping, true);
  }

  async #ended(
    attempt: Attempt,
    outcome: AttemptOutcome,
    body: Buffer | undefined,
    durationMs: number,
    died: boolean,
    isRepeated: boolean,
  ): Promise<boolean> {
    const { job } = attempt;
    const diedOn = died ? withOne(job.diedOn ?? [], attempt.containerId) : job.diedOn;
    const verdict = verdictOf(outcome, {
      sync: job.sync,
      timeoutMs: job.timeoutMs,
      retries: job.retries,
      retriesUsed: job.retriesUsed,
      losses: job.losses ?? 0,
      stopping: attempt.container?.leaving ?? false,
      died: diedOn?.length ?? 0,
    });
    const budget = { ...job, ...(diedOn === undefined ? {} : { diedOn: [...diedOn] }) };
    const text = (): string | undefined => (body === undefined ? undefined : resultTextOf(body));
    switch (verdict.kind) {
      case 'final':
        return await this.finish(attempt, verdict, body, durationMs, isRepeated);
      case 'retry':
        return await (attempt.ending ??= this.#returning.retry(attempt, verdict.failureReason, budget, text()));
      case 'again':
        return await (attempt.ending ??= this.#returning.toQueue(
          attempt,
          verdict.failureReason,
          { ...budget, losses: (job.losses ?? 0) + 1 },
          text(),
        ));
    }
  }

  /**
   * Ends an attempt's task for good, once: a repeated call gets the first one's answer.
   * @param isRepeated - the agent says so again until the returned promise resolves
   * @returns false: not written; the agent keeps the result
   */
  finish(
    attempt: Attempt,
    ending: Ending,
    body: Buffer | undefined,
    durationMs: number,
    isRepeated = false,
  ): Promise<boolean> {
    attempt.ending ??= this.#finish(attempt, ending, body, durationMs, isRepeated);
    return attempt.ending;
  }

  /**
   * Ends an attempt that its agent still works on: the agent is
   * told to stop, and the slot stays taken until it confirms.
   */
  revoke(attempt: Attempt, reason: 'timeout' | 'cancelled', ending: Ending, durationMs: number): Promise<boolean> {
    if (attempt.ending !== undefined) return attempt.ending;
    attempt.container?.link?.cancel(attempt.job.taskId, attempt.token, reason);
    this.#parts.attempts.revoke(attempt);
    this.#remember(attempt);
    return this.finish(attempt, ending, undefined, durationMs);
  }

  /**
   * Counts an attempt as lost although its machine talks: the agent
   * is told to end it, and the slot stays taken until it confirms.
   */
  abandon(attempt: Attempt): Promise<boolean> {
    if (attempt.ending !== undefined) return attempt.ending;
    this.#supersede(attempt);
    return this.lost(attempt, false);
  }

  /**
   * Gives the task of an interruptible container back, like {@link abandon}. It is no loss, and no retry is used.
   */
  preempt(attempt: Attempt): Promise<boolean> {
    if (attempt.ending !== undefined) return attempt.ending;
    const { job } = attempt;
    this.#supersede(attempt);
    this.#remember(attempt);
    attempt.ending = this.#returning.toQueue(attempt, 'preempted', {
      ...job,
      preemptions: (job.preemptions ?? 0) + 1,
    });
    return attempt.ending;
  }

  /** Returns the task of an attempt that did not begin: like {@link abandon}, but no budget is touched. */
  takeBack(attempt: Attempt, failureReason: string): Promise<boolean> {
    if (attempt.ending !== undefined) return attempt.ending;
    this.#supersede(attempt);
    return this.backToQueue(attempt, failureReason);
  }

  /** Tells the agent to end the attempt; the slot stays taken until it confirms. */
  #supersede(attempt: Attempt): void {
    attempt.container?.link?.cancel(attempt.job.taskId, attempt.token, 'superseded');
    this.#parts.attempts.revoke(attempt);
  }

  /** Remembers an attempt that counts as over without its agent's word: its late COMPLETE may still count. */
  #remember(attempt: Attempt): void {
    const { lock, number, machineId, queue, job } = attempt;
    this.#parts.lastAttempts.write(job.taskId, { lock, attempt: number, machineId, queue }).catch((error: unknown) => {
      this.#parts.log.info({ err: error, taskId: job.taskId }, 'a late result of an attempt will not be known again');
    });
  }

  /** Frees the slot of a revoked attempt that the agent says is over. */
  freeRevoked(token: AttemptToken): void {
    const attempt = this.#parts.attempts.takeRevoked(token);
    if (attempt === undefined) return;
    this.#release(attempt);
    this.#tellEnded(attempt);
  }

  /**
   * Leaves an attempt to another replica, which took it over with
   * the link of its machine and decides its end from now on.
   */
  handOver(attempt: Attempt): void {
    this.#parts.attempts.remove(attempt);
    this.#release(attempt);
  }

  /** Returns the task of a send that reached no runner: first in the queue, no budget touched. */
  backToQueue(attempt: Attempt, failureReason: string): Promise<boolean> {
    attempt.ending ??= this.#returning.toQueue(attempt, failureReason, undefined);
    return attempt.ending;
  }

  async #finish(
    attempt: Attempt,
    asked: Ending,
    body: Buffer | undefined,
    durationMs: number,
    isRepeated: boolean,
  ): Promise<boolean> {
    const { job, queue } = attempt;
    const { attempts, changes, metrics, clock, log } = this.#parts;
    const { ending, text, stored } = await this.#storable(job, asked, body);
    const record = finalOf(job, queue, attempt.number, ending.status, clock.nowMs(), {
      failureReason: failureReasonOf(ending),
      containerId: attempt.containerId,
      startedAtMs: attempt.startedAtMs ?? attempt.sentAtMs,
      durationMs,
      ...(attempt.containerHostname === undefined ? {} : { containerHostname: attempt.containerHostname }),
      // An adopted attempt knows its job without the input.
      ...(attempt.adopted ? {} : this.#parts.failedInputs.of(job, ending.status)),
      ...stored,
    });
    // The slot is free now: the next fetch goes out with the completion.
    const fencing = this.#fence(attempt, ending);
    this.#freeSlot(attempt, ending);
    let fence: Fence | undefined;
    try {
      fence = await fencing;
    } catch (error) {
      log.warn({ err: error, taskId: job.taskId }, 'completion not written yet, trying again');
      fence = await this.#fenceAgain(attempt, ending);
    }
    attempts.remove(attempt);
    this.#endInput(job, record);
    if (fence?.kind === 'superseded' && !this.#mayBeSole(attempt)) {
      log.warn({ taskId: job.taskId }, 'a superseded attempt ended; nothing changes');
      attempt.onDecided?.();
      return true;
    }
    const event = ENDED_BY[ending.status];
    if (isRepeated) changes.apply(attempt.status, event, record);
    const written = isRepeated ? undefined : changes.applied(attempt.status, event, record);
    const safe = changes.safe(job.taskId);
    // Until then the lease stands. So a report of the agent would adopt the attempt again.
    attempts.recording(attempt, safe);
    await written;
    if (fence?.kind === 'expired') await this.#takeOutExpired(attempt);
    this.#deliver(job, { status: ending.status, reason: ending.reason, body: text }, attempt.number);
    metrics.finished.inc({ stub_type: job.kind, status: ending.status });
    metrics.execution.observe(
      { stub_type: job.kind, status: ending.status },
      (clock.nowMs() - attempt.sentAtMs) / 1000,
    );
    this.#tellEnded(attempt);
    attempt.onDecided?.();
    return (await safe) && fence !== undefined;
  }

  /**
   * Answer for the caller, and the form in which it is kept. A result
   * that cannot be kept ends its task with an error instead of never.
   */
  async #storable(
    job: TaskJob,
    ending: Ending,
    body: Buffer | undefined,
  ): Promise<{ ending: Ending; text: string; stored: Pick<TaskRecord, 'result' | 'resultObjectId'> }> {
    const isBody = body !== undefined && this.#textOf(ending) === undefined;
    const text = isBody ? resultTextOf(body) : this.answerOf(ending).body;
    try {
      return { ending, text, stored: await this.#parts.bodies.storeResult(text) };
    } catch (error) {
      this.#parts.log.error({ err: error, taskId: job.taskId }, 'a result could not be kept');
      const failed = this.answerOf(RESULT_NOT_STORED).body;
      return { ending: RESULT_NOT_STORED, text: failed, stored: { result: failed } };
    }
  }

  #freeSlot(attempt: Attempt, ending: Ending | undefined): void {
    const { container } = attempt;
    if (container === undefined) return;
    if (ending?.status === 'COMPLETE' || HANDLED.has(ending?.reason ?? 'lost')) container.completed += 1;
    if (!this.#parts.attempts.isRevoked(attempt)) this.#release(attempt);
  }

  /**
   * Releases the slot once, for the first of two events: the end
   * that is written, or the agent's word on a revoked attempt.
   */
  #release(attempt: Attempt): void {
    const { container } = attempt;
    if (container === undefined || attempt.slotFreed) return;
    attempt.slotFreed = true;
    this.#parts.dispatcher.release({ container, job: attempt.job }, this.#parts.clock.nowMs());
  }

  /**
   * Removes the job of an attempt whose lock ran out while it ran: no attempt holds the job,
   * and none may run it again. A job that stays is ended by its record at the next fetch.
   */
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
      : queues.fail(attempt.queue, attempt.job.taskId, attempt.lock, failureReasonOf(ending));
  }

  /**
   * Whether the lock that fenced an end off may be of a replica that only looks at a job that came back: it takes the
   * job out for this attempt. If it has sent a newer attempt all the same, the task's row refuses this end.
   */
  #mayBeSole({ job, isSole, handedOverAtMs }: Attempt): boolean {
    return !job.sync && (isSole || handedOverAtMs <= (this.#parts.redisData?.brokenAtMs ?? -Infinity));
  }

  async #fenceAgain(attempt: Attempt, ending: Ending): Promise<Fence | undefined> {
    const { graces, clock, signal, log } = this.#parts;
    const { taskId } = attempt.job;
    const untilMs = clock.monotonicMs() + graces.endMs;
    while (await sleep(graces.againMs, signal)) {
      try {
        return await this.#fence(attempt, ending);
      } catch (error) {
        if (clock.monotonicMs() < untilMs) continue;
        log.warn({ err: error, taskId }, 'completion could not be written; the agent keeps the result');
        return undefined;
      }
    }
    return undefined;
  }

  // ---- tasks nobody runs --------------------------------------------------------------------------------------------

  /**
   * Writes the record of a task without an attempt, and answers its caller if one is left.
   * @param from - earlier status, and number of the last attempt; a task that is over stays as it ended
   */
  async endQueued(
    queue: QueueName,
    job: TaskJob,
    ending: Ending,
    from: Pick<TaskRecord, 'status' | 'attempt'>,
    extra: Partial<TaskRecord> = {},
  ): Promise<void> {
    const { status } = ending;
    const { changes, clock, metrics } = this.#parts;
    const failureReason = failureReasonOf(ending);
    const record = finalOf(job, queue, from.attempt, status, clock.nowMs(), {
      failureReason,
      ...this.#parts.failedInputs.of(job, status),
      ...extra,
    });
    const answer = this.answerOf(ending);
    if (!(await changes.applied(from.status, ENDED_BY[status], record))) {
      this.#deliver(job, { status: from.status, reason: undefined, body: answer.body }, from.attempt);
      return;
    }
    this.#deliver(job, answer, from.attempt);
    metrics.finished.inc({ stub_type: job.kind, status });
    this.#endInput(job, record);
  }

  /**
   * Takes a waiting task out of its queue and ends it; its record continues the number of its attempts.
   * @returns false: the task is held, or not there
   */
  async takeOut(queue: QueueName, job: TaskJob, ending: Ending, extra: Partial<TaskRecord> = {}): Promise<boolean> {
    if (!(await this.#parts.queues.remove(queue, job.taskId))) return false;
    await this.endTakenOut(queue, job, ending, extra);
    return true;
  }

  /**
   * Ends a task of a line that has a slot, and whose order did not leave.
   * @returns false: somebody else ended it
   */
  async endUnsent({ queue, job, lock, attempt }: Order, ending: Ending): Promise<boolean> {
    const fence = await this.#parts.queues.fail(queue, job.taskId, lock, failureReasonOf(ending));
    if (fence.kind !== 'done') return false;
    await this.endQueued(queue, job, ending, { status: 'PENDING', attempt });
    return true;
  }

  async endTakenOut(queue: QueueName, job: TaskJob, ending: Ending, extra: Partial<TaskRecord> = {}): Promise<void> {
    this.#parts.dispatcher.forget(queue, job.taskId);
    const known = await this.#parts.records.read(job.taskId).catch(() => undefined);
    // The job came back, or the answer was lost: a waiting caller gets the outcome from the record.
    if (known !== undefined && isTerminalTask(known.status)) await this.answerFrom(known);
    await this.endQueued(queue, job, ending, known ?? { status: 'PENDING', attempt: 0 }, extra);
  }

  // ---- callers ------------------------------------------------------------------------------------------------------

  /** Answer to the caller of a task that ended without a result. */
  answerOf(ending: Ending): Finished {
    const { status, reason } = ending;
    return { status, reason, body: errorBody(this.#textOf(ending) ?? failureReasonOf(ending)) };
  }

  /** Text of the failure; undefined: the result of the attempt says it. */
  #textOf({ reason, detail }: Ending): string | undefined {
    return detail ?? this.#parts.textOf(reason);
  }

  /** Answers a caller who waits here, for a task that ended without a result. */
  answerAs(taskId: TaskId, ending: Ending): void {
    this.answer(taskId, this.answerOf(ending));
  }

  /** Answers a caller who waits here. */
  answer(taskId: TaskId, finished: Finished): void {
    this.#parts.replies.settle(taskId, finished);
  }

  /** Answers the task's caller, at whichever replica it waits. */
  #deliver(job: TaskJob, finished: Finished, attempt: number): void {
    if (!job.sync) return;
    this.#parts.replies.deliver(job, finished, attempt);
  }

  /** Answers a caller who still waits here for a task that ended elsewhere. */
  async answerFrom(record: TaskRecord): Promise<void> {
    if (!this.#parts.replies.has(record.taskId) || !isTerminalTask(record.status)) return;
    this.answer(record.taskId, await this.finishedOf(record));
  }

  /** Answer to the caller of a task that is over, from its record. @throws when the result's object cannot be read */
  async finishedOf(record: TaskRecord): Promise<Finished> {
    const body = (await this.#parts.bodies.resultText(record)) ?? errorBody(record.failureReason);
    return { status: record.status, reason: reasonOfRecord(record.failureReason), body };
  }

  /** Drops the input of a task that ended, unless it is kept. */
  #endInput(job: TaskJob, { keptJob }: TaskRecord): void {
    if (job.sync ? keptJob === undefined : inputStateOf(job) !== 'kept') this.dropInput(job);
  }

  dropInput(job: Pick<TaskJob, 'taskId' | 'inputObjectId'>): void {
    if (job.inputObjectId === undefined) return;
    this.#parts.bodies.dropInput(job.inputObjectId).catch((error: unknown) => {
      this.#parts.log.info({ err: error, taskId: job.taskId }, 'the input of a task that ended could not be removed');
    });
  }
}

const withOne = (ids: readonly string[], id: string): readonly string[] => (ids.includes(id) ? ids : [...ids, id]);
