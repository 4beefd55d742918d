// Way of a task to its container, once it has a slot: the check whether it may still run, its input, the lease of an
// asynchronous one, its frame on the link, and the steps taken when one of these is missing.
import type { InstanceId } from '#shared/domain/ids.ts';
import { sleep } from '#shared/backoff.ts';
import type { Clock } from '#shared/clock.ts';
import type { Log } from '#shared/log.ts';
import type { TaskBodies } from './bodies.ts';
import type { Dispatcher } from './dispatcher.ts';
import type { EarlierJobs } from './earlier-jobs.ts';
import type { Lease, Leases } from './leases.ts';
import { precheck } from './precheck.ts';
import type { Replies } from './replies.ts';
import type { ReadyContainer, RunOrder, SlotTable, TaskLink } from './slots.ts';
import { failureReasonOf, INPUT_LOST } from '../../domain/endings.ts';
import type { Ending } from '../../domain/endings.ts';
import type { RedisData } from '../../stores/queues/redis-data.ts';
import type { TaskQueues } from '../../stores/queues/task-queues.ts';
import type { Completion } from '../completion/completion.ts';
import { encodeFacts } from '../lines/facts.ts';
import type { Lines } from '../lines/lines.ts';
import { mayStillSend } from '../lines/owner.ts';
import type { GracePeriods } from '../maintenance/grace-periods.ts';
import type { TaskMetrics } from '../metrics.ts';
import type { Changes } from '../records/changes.ts';
import type { Attempt, Attempts, Claim } from './attempts.ts';
import { untilRequeued } from '../completion/requeue.ts';
import { recordOf } from '../records/recording.ts';
import type { TaskRecord } from '../records/task-record.ts';
import { endingOf } from '../state.ts';

/** Longest delay of a timer in milliseconds; a longer one would fire at once. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;
/**
 * Pause of a container whose agent refused a task, in milliseconds,
 * so that task and refusal do not alternate without end.
 */
const REFUSED_PAUSE_MS = 100;
/** Most tries for a task whose input cannot be read. */
const INPUT_TRIES = 3;
/** Interval at which a lease that Redis did not take is written again, as long as its attempt runs. */
const LEASE_AGAIN_MS = 500;

export interface SenderParts {
  readonly queues: Pick<TaskQueues, 'fail' | 'lockOf' | 'giveBack'>;
  readonly lines: Pick<Lines, 'order' | 'return' | 'sent'>;
  readonly leases: Pick<Leases, 'read' | 'write' | 'dropOf'>;
  readonly changes: Pick<Changes, 'apply'>;
  readonly completion: Pick<Completion, 'endQueued' | 'revoke'>;
  readonly attempts: Pick<Attempts, 'current' | 'find' | 'has' | 'add' | 'remove' | 'size'>;
  readonly earlier: Pick<EarlierJobs, 'isNew' | 'look'>;
  readonly dispatcher: Pick<Dispatcher, 'release' | 'wake'>;
  readonly slots: Pick<SlotTable, 'pause'>;
  readonly replies: Pick<Replies, 'isWaiting'>;
  readonly bodies: Pick<TaskBodies, 'loadInput'>;
  /** Whether Redis has the data that this process knows. Absent: it always has. */
  readonly redisData?: Pick<RedisData, 'isSure' | 'sure' | 'brokenAtMs'> | undefined;
  readonly instance: InstanceId;
  readonly graces: Pick<GracePeriods, 'limitMs' | 'freshMs' | 'againMs'>;
  /** Milliseconds since this process last stood still. */
  readonly sinceStallMs: () => number;
  readonly clock: Clock;
  readonly metrics: Pick<TaskMetrics, 'dispatch' | 'queueWait'>;
  readonly log: Log;
  /** Aborted when the process stops: attempts go on in their containers. */
  readonly signal: AbortSignal;
}

export class Sender {
  readonly #parts: SenderParts;

  constructor(parts: SenderParts) {
    this.#parts = parts;
  }

  /** Sends a task for which the dispatcher took a slot. */
  begin(claim: Claim): void {
    const failed = (error: unknown): void => {
      const { taskId, sync } = claim.job;
      this.#parts.log.warn({ err: error, taskId }, 'a task could not be sent, giving it back');
      if (sync) {
        // A task that comes back is sent again in this tick, where a container takes it.
        this.pause(claim.container);
        this.#return(claim);
      }
      // The lease may be written, even where Redis gave no answer.
      else void this.#giveBack(claim, true, true);
    };
    try {
      if (claim.job.sync) void this.#beginOfLine(claim)?.catch(failed);
      else void this.#begin(claim).catch(failed);
    } catch (error) {
      failed(error);
    }
  }

  /** Sends a job of a queue in Redis, after the checks whether it may still run. */
  async #begin(claim: Claim): Promise<void> {
    const { clock, redisData, attempts, earlier, log } = this.#parts;
    const fetchedAt = clock.monotonicMs();
    const { job } = claim;
    const { taskId } = job;
    // On a connection that was not checked yet, the data may be older than what this process has seen.
    if (redisData?.isSure === false) await redisData.sure();
    const sureAtMs = performance.now();
    const isNew = earlier.isNew(claim);
    const standing = attempts.has(taskId) ? 'runs' : isNew ? 'waits' : await earlier.look(taskId);
    if (standing === 'unknown') {
      log.info({ taskId }, 'nobody can tell now whether a task runs, giving it back');
      await this.#giveBack(claim, true);
      return;
    }
    if (standing !== 'waits') {
      await this.#takeOut(claim, standing);
      return;
    }
    const verdict = precheck(job, { nowMs: clock.nowMs(), callerWaits: false });
    if (verdict.kind === 'finish') {
      await this.#finishFetched(claim, verdict);
      return;
    }
    const input = await this.#inputOf(claim);
    if (input === undefined) {
      await this.#finishFetched(claim, INPUT_LOST);
      return;
    }
    const { link } = claim.container;
    if (link === undefined || !claim.container.accepting) {
      await this.#giveBack(claim, false);
      return;
    }
    const isUnbroken = (sinceMs: number): boolean => redisData === undefined || redisData.brokenAtMs < sinceMs;
    const isFirst = isNew && this.#isFresh(claim.askedAtMs) && isUnbroken(claim.askedAtMs);
    // The reads above took a moment, in which the task may have been stopped, and this process may have stood still.
    const isSure = isFirst && job.inputObjectId === undefined;
    if (!isSure && !(await this.#isStillHeld(claim))) {
      this.#parts.dispatcher.release(claim, clock.nowMs());
      return;
    }
    if (!isUnbroken(sureAtMs)) {
      // Redis may have come back older since, without the data just read.
      await this.#giveBack(claim, false, true);
      return;
    }
    this.#handOver(claim, link);
    if (claim.container.link !== link || !claim.container.accepting) {
      await this.#giveBack(claim, false);
      return;
    }
    void this.#writeLease(claim);
    if (link.run(orderOf(claim, input))) this.#sent(claim, fetchedAt);
    else await this.#giveBack(claim, true);
  }

  /**
   * Sends a task of the line in this tick, unless its input must be read. The task is this replica's: of a caller here,
   * or offered by the replica of its caller.
   */
  #beginOfLine(claim: Claim): void | Promise<void> {
    const { replies, clock, instance } = this.#parts;
    const { job, container } = claim;
    const { link } = container;
    // The caller's replica decides how long a task waits that it offered.
    const isOwn = job.replica === instance;
    const verdict = isOwn && precheck(job, { nowMs: clock.nowMs(), callerWaits: replies.isWaiting(job.taskId) });
    if (verdict !== false && verdict.kind === 'finish') return this.#finishFetched(claim, verdict);
    if (job.inputObjectId === undefined) return this.#sendOfLine(claim, link, job.input ?? '');
    return this.#inputOf(claim).then((input) =>
      input === undefined ? this.#finishFetched(claim, INPUT_LOST) : this.#sendOfLine(claim, link, input),
    );
  }

  #sendOfLine(claim: Claim, link: TaskLink | undefined, input: string): void {
    const { lines, clock, instance, sinceStallMs } = this.#parts;
    const { job, container, lock, askedAtMs } = claim;
    // The task was given back, or ended, while its input was read.
    if (lines.order(job.taskId)?.lock !== lock) {
      this.#parts.dispatcher.release(claim, clock.nowMs());
      return;
    }
    const ageMs = performance.now() - askedAtMs;
    const isOwn = job.replica === instance;
    // After this process stood still, the leader may have ended the task: its row is read first.
    const mayBeOver = isOwn && sinceStallMs() < ageMs;
    const isLate = !isOwn && !mayStillSend(ageMs, sinceStallMs());
    // A new link of the machine begins with a report, and this claim's slot was one of the link before.
    if (mayBeOver || isLate || link === undefined || container.link !== link || !container.accepting) {
      this.#return(claim, mayBeOver);
      return;
    }
    const { queue, number: attempt } = claim;
    this.#handOver(claim, link);
    const facts = encodeFacts(job, { attempt, queue, sentAtMs: claim.sentAtMs });
    if (!link.run({ ...orderOf(claim, input), facts })) {
      this.pause(container);
      this.#return(claim);
      return;
    }
    lines.sent(job.taskId);
    try {
      this.#sent(claim, askedAtMs);
    } catch (error) {
      this.#parts.log.error({ err: error, taskId: job.taskId }, 'a task was sent, and its start is not recorded');
    }
  }

  /** Returns a task of the line that was not sent. @param mayBeOver - its row must be read before it is sent */
  #return(claim: Claim, mayBeOver = false): void {
    const { lines, attempts, dispatcher, clock } = this.#parts;
    attempts.remove(claim);
    lines.return(claim.job.taskId, claim.lock, mayBeOver);
    dispatcher.release(claim, clock.nowMs());
  }

  /** Makes the claim an attempt of this replica, before its order leaves. */
  #handOver(claim: Claim, link: TaskLink): void {
    const { clock, attempts } = this.#parts;
    claim.agentInstance = link.agentInstance;
    claim.sessionEpoch = link.sessionEpoch;
    claim.sentAtMs = clock.nowMs();
    claim.handedOverAtMs = claim.seenAtMs = clock.monotonicMs();
    this.armLimit(claim);
    attempts.add(claim);
  }

  /** Notes that the order left. @param fetchedAtMs - since when the task was on its way; monotonic milliseconds */
  #sent(claim: Claim, fetchedAtMs: number): void {
    const { clock, metrics, changes } = this.#parts;
    const { job, container, queue } = claim;
    container.served = true;
    metrics.dispatch.observe((clock.monotonicMs() - fetchedAtMs) / 1000);
    metrics.queueWait.observe({ stub_type: job.kind }, Math.max(0, claim.sentAtMs - job.createdAtMs) / 1000);
    const running: TaskRecord = {
      ...recordOf(job, queue, 'RUNNING', claim.number),
      containerId: container.containerId,
      startedAtMs: claim.sentAtMs,
    };
    if (changes.apply(claim.status, 'start', running)) claim.status = 'RUNNING';
  }

  /** Removes a job from its queue that came back: its task has ended, or an attempt of some replica will end it. */
  async #takeOut(claim: Claim, standing: 'runs' | 'ended'): Promise<void> {
    const { queues, dispatcher, clock, log } = this.#parts;
    const { taskId } = claim.job;
    log.warn({ taskId, standing }, 'a job came back although its task runs or has ended, taking it out');
    await queues.fail(claim.queue, taskId, claim.lock, standing);
    // The slot is released last: an error above gives back the job and the slot together.
    dispatcher.release(claim, clock.nowMs());
  }

  #isFresh(sinceMs: number): boolean {
    return performance.now() - sinceMs < this.#parts.graces.freshMs;
  }

  /**
   * Whether the claim still holds the task, as of a moment ago: not
   * stopped, and not given back for a process that seemed dead.
   */
  async #isStillHeld({ queue, job, lock }: Claim): Promise<boolean> {
    for (;;) {
      const askedAtMs = performance.now();
      if ((await this.#parts.queues.lockOf(queue, job.taskId)) !== lock) return false;
      if (this.#isFresh(askedAtMs)) return true;
    }
  }

  /**
   * Writes the lease before the task is sent. Where Redis does not take it, it is
   * written while the attempt runs, because a job without a lease counts as never sent.
   */
  async #writeLease(attempt: Attempt): Promise<void> {
    const { leases, attempts, signal, log } = this.#parts;
    const { taskId } = attempt.job;
    try {
      await leases.write(leaseOf(attempt));
      return;
    } catch (error) {
      log.warn({ err: error, taskId }, 'lease not written, trying again');
    }
    while (await sleep(LEASE_AGAIN_MS, signal)) {
      if (attempts.current(taskId) !== attempt || attempt.ending !== undefined) return;
      try {
        // The lease of an earlier attempt may still stand there.
        if (((await leases.read(taskId))?.attempt ?? 0) < attempt.number) await leases.write(leaseOf(attempt));
        return;
      } catch (error) {
        log.debug({ err: error, taskId }, 'lease not written yet');
      }
    }
  }

  /** Input of the task; undefined: it cannot be read after several tries. */
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

  /**
   * Starts the execution limit here, too, with a grace beyond the agent's own.
   * For an attempt that another process sent, the limit starts at the take-over.
   */
  armLimit(attempt: Attempt): void {
    const { timeoutMs } = attempt.job;
    if (timeoutMs === 0) return;
    const leftMs = attempt.handedOverAtMs + timeoutMs + this.#parts.graces.limitMs - this.#parts.clock.monotonicMs();
    // A limit beyond the longest timer is checked again when that timer fires.
    const again = (): void => (leftMs > LONGEST_TIMER_MS ? this.armLimit(attempt) : this.#limitPassed(attempt));
    attempt.limit = setTimeout(again, Math.min(Math.max(0, leftMs), LONGEST_TIMER_MS));
    attempt.limit.unref();
  }

  /**
   * Ends an attempt that its agent should have ended long ago. The slot stays taken until the agent
   * confirms. After a stall of this process the agent's report may be unread, so it gets the grace again.
   */
  #limitPassed(attempt: Attempt): void {
    if (attempt.ending !== undefined) return;
    const { graces, sinceStallMs } = this.#parts;
    if (sinceStallMs() < graces.limitMs) {
      attempt.limit = setTimeout(() => this.#limitPassed(attempt), graces.limitMs);
      attempt.limit.unref();
      return;
    }
    const { job } = attempt;
    void this.#parts.completion.revoke(attempt, 'timeout', endingOf('timeout', job), job.timeoutMs);
  }

  /**
   * Gives a job back to its queue in Redis.
   * @param pause - the container did not take the task: nothing is sent there for a moment
   * @param isLeased - the task's lease may be written
   */
  async #giveBack(claim: Claim, pause: boolean, isLeased = false): Promise<void> {
    const { attempts, leases, queues, dispatcher, clock } = this.#parts;
    const { job, queue, container } = claim;
    const wasAdded = attempts.find(job.taskId, claim.token) !== undefined;
    if (wasAdded) attempts.remove(claim);
    if (pause) this.pause(container);
    const back = async (): Promise<void> => {
      if (wasAdded || isLeased) await leases.dropOf(job.taskId, claim.lock);
      await queues.giveBack(queue, job.taskId, claim.lock);
    };
    await untilRequeued(claim, back, this.#parts);
    dispatcher.release(claim, clock.nowMs());
    dispatcher.wake(queue);
  }

  /** Stops sending to a container for a moment, because it did not take a task. */
  pause(container: ReadyContainer): void {
    this.#parts.slots.pause(container, REFUSED_PAUSE_MS, () => this.#parts.dispatcher.wake(container.queue));
  }

  async #finishFetched(claim: Claim, ending: Ending): Promise<void> {
    const { job, queue } = claim;
    const fence = await this.#parts.queues.fail(queue, job.taskId, claim.lock, failureReasonOf(ending));
    this.#parts.dispatcher.release(claim, this.#parts.clock.nowMs());
    if (fence.kind !== 'done') return;
    const from = { status: 'PENDING', attempt: claim.number } as const;
    await this.#parts.completion.endQueued(queue, job, ending, from);
  }
}

const orderOf = ({ job, token, container }: Claim, input: string): RunOrder => ({
  taskId: job.taskId,
  token,
  containerId: container.containerId,
  timeoutMs: job.timeoutMs,
  query: job.query,
  input,
  ...(job.stream === true ? { stream: true } : {}),
});

export function leaseOf(attempt: Attempt): Lease {
  const { lock, containerId, machineId, agentInstance, queue, job, number, sentAtMs } = attempt;
  return { lock, attempt: number, containerId, machineId, agentInstance, queue, job, startedAtMs: sentAtMs };
}
