// From a fetched job to its container: whether it may still run, its input, its lease, its frame on the link; and what becomes of it when one of these is missing.
import type { MachineId } from '#shared/domain/ids.ts';
import { instanceOf } from '#shared/domain/ids.ts';
import { sleep } from '#shared/backoff.ts';
import { isTerminalTask } from '#shared/domain/status.ts';
import type { Claim } from '../dispatch/dispatcher.ts';
import type { Lease } from '../dispatch/leases.ts';
import { precheck, SENT_BEFORE } from '../dispatch/precheck.ts';
import type { Verdict } from '../dispatch/precheck.ts';
import type { ReadyContainer } from '../dispatch/slots.ts';
import type { TaskJob } from '../queues/jobs.ts';
import type { Attempt } from './attempts.ts';
import { untilGivenBack } from './give-back.ts';
import { recordOf } from './recording.ts';
import type { TaskRecord } from './records.ts';
import { endingOf } from './state.ts';
import type { TaskContext } from './task-parts.ts';

const INPUT_LOST = {
  kind: 'finish',
  status: 'ERROR',
  httpStatus: 500,
  errorText: 'the input of the task could not be read',
  failureReason: 'input_lost',
} as const satisfies Verdict;
/** A longer timer would fire at once. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;
/** A container whose agent refused a task gets none for so long, so that the two do not play ball. */
const REFUSED_PAUSE_MS = 100;
/** A task whose input cannot be read is tried so often. */
const INPUT_TRIES = 3;
/** A lease that Redis did not take is written again this often, as long as its attempt runs. */
const LEASE_AGAIN_MS = 500;

export class Sender {
  readonly #tasks: TaskContext;

  constructor(tasks: TaskContext) {
    this.#tasks = tasks;
  }

  /** The dispatcher fetched a job for a free slot. */
  begin(claim: Claim): void {
    void this.#begin(claim).catch((error: unknown) => {
      this.#tasks.log.error(
        { err: error, taskId: claim.job.taskId },
        'a fetched task could not be sent, giving it back',
      );
      // Its lease may be written, also where Redis gave no answer.
      void this.#giveBack(claim, true, true);
    });
  }

  async #begin(claim: Claim): Promise<void> {
    const { clock, leases, doubts } = this.#tasks;
    const fetchedAt = clock.monotonicMs();
    const { job } = claim;
    // On a connection that nobody has looked at the data may be older than what this process has seen.
    if (doubts?.isSure === false) await doubts.sure();
    // A loan is told once, and its entry and lease say whether it stands.
    const isBack = !claim.isLent && (doubts?.mayBeBack(job) ?? false);
    if (isBack) await doubts?.over();
    const sureAtMs = performance.now();
    // A Redis that came back older hands out again what runs.
    const here = this.#tasks.attempts.current(job.taskId);
    if (here !== undefined && here.ending === undefined) {
      await this.#runsHere(claim);
      return;
    }
    // A job that comes again may have ended meanwhile: its lock ran out before its end reached the queue, or Redis came back older.
    if ((claim.starts > 1 || job.attempts > 0 || isBack) && (await this.#endedBefore(claim))) return;
    if (isBack && (await this.#runsElsewhere(claim))) return;
    // A first fetch cannot meet a lease; a later one of a synchronous task must not run what was sent before.
    const leaseSeen = claim.starts > 1 && job.sync ? (await leases.read(job.taskId)) !== undefined : false;
    const waits = this.#callerWaits(job);
    const callerWaits = typeof waits === 'boolean' ? waits : await waits;
    const verdict = precheck(job, { nowMs: clock.nowMs(), callerWaits, leaseSeen });
    if (verdict.kind === 'finish') {
      // Of a lent task its lender decides, which may have taken it back.
      if (claim.isLent) await this.#giveBack(claim, false);
      else await this.#finishFetched(claim, verdict);
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
    const attempt = this.#attemptOf(claim, link.machineId);
    const isUnbroken = (sinceMs: number): boolean => doubts === undefined || doubts.brokenAtMs < sinceMs;
    const isFirst =
      claim.starts === 1 && !claim.isLent && !isBack && this.#isFresh(claim.askedAtMs) && isUnbroken(claim.askedAtMs);
    // Another attempt may have been sent: of a synchronous task one alone may be.
    const asks = job.sync && !isFirst;
    const leasedAtMs = performance.now();
    if (asks && !(await this.#mayLease(claim, attempt))) return;
    if (asks && isBack && (await this.#wasSent(claim))) return;
    // What was read took a moment, in which it may have been stopped; and this process may have stood still.
    const isSure = claim.isLent ? this.#isFresh(leasedAtMs) : isFirst && job.inputObjectId === undefined;
    if (!isSure && !(await this.#isStillHeld(claim))) {
      if (asks) await leases.dropOf(job.taskId, claim.lock);
      this.#tasks.dispatcher().release(container, clock.nowMs());
      return;
    }
    if (!isUnbroken(sureAtMs)) {
      // Redis may have come back older since, without what was just read and written.
      await this.#giveBack(claim, false, true);
      return;
    }
    this.armLimit(attempt);
    this.#tasks.attempts.add(attempt);
    if (container.link !== link || !container.accepting) {
      await this.#giveBack(claim, false);
      return;
    }
    if (!asks) void this.#writeLease(attempt);
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
    this.#tasks.metrics.dispatch.observe((clock.monotonicMs() - fetchedAt) / 1000);
    this.#tasks.metrics.queueWait.observe(
      { stub_type: job.kind },
      Math.max(0, attempt.sentAtMs - job.createdAtMs) / 1000,
    );
    this.#tasks.metrics.running.set(this.#tasks.attempts.size);
    const running: TaskRecord = {
      ...recordOf(job, claim.queue, 'RUNNING', attempt.number),
      containerId: container.containerId,
      startedAtMs: attempt.sentAtMs,
    };
    // Nobody knows a synchronous task's id before its answer.
    if (this.#tasks.changes.apply(attempt.status, 'start', running, job.sync)) attempt.status = 'RUNNING';
  }

  /** An attempt of this process has it, under a lock that Redis forgot: that one goes on, and ends it. */
  async #runsHere(claim: Claim): Promise<void> {
    const { queues, dispatcher, clock, log } = this.#tasks;
    log.warn({ taskId: claim.job.taskId }, 'a job came back while its task runs, taking it out');
    await queues.fail(claim.queue, claim.job.taskId, claim.lock, 'runs already');
    dispatcher().release(claim.container, clock.nowMs());
  }

  /** Its lease is written before it is sent, where the task may be somebody else's. @returns false: it is, and is seen to */
  async #mayLease(claim: Claim, attempt: Attempt): Promise<boolean> {
    const { leases, queues, dispatcher, instance, clock } = this.#tasks;
    if (!claim.isLent) {
      if (await leases.write(leaseOf(attempt))) return true;
      await this.#finishFetched(claim, SENT_BEFORE);
      return false;
    }
    if (await leases.writeLent(leaseOf(attempt), instance)) return true;
    // Taken back by its lender, or ended.
    queues.disown(claim.queue, claim.job.taskId);
    dispatcher().release(claim.container, clock.nowMs());
    return false;
  }

  #isFresh(sinceMs: number): boolean {
    return performance.now() - sinceMs < this.#tasks.graces.freshMs;
  }

  /** Nobody has stopped it, or given it back for a process that seemed dead; as of a moment ago. */
  async #isStillHeld({ queue, job, lock }: Claim): Promise<boolean> {
    for (;;) {
      const askedAtMs = performance.now();
      if ((await this.#tasks.queues.lockOf(queue, job.taskId)) !== lock) return false;
      if (this.#isFresh(askedAtMs)) return true;
    }
  }

  /** On its way before the task is; where Redis does not take it, it is written while the attempt runs, for a job without a lease counts as never sent. */
  async #writeLease(attempt: Attempt): Promise<void> {
    const { leases, attempts, signal, log } = this.#tasks;
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
        // One of an attempt before it may lie there still.
        if (((await leases.read(taskId))?.attempt ?? 0) < attempt.number) await leases.write(leaseOf(attempt));
        return;
      } catch (error) {
        log.debug({ err: error, taskId }, 'lease not written yet');
      }
    }
  }

  /** undefined: it cannot be read, and was tried often enough. */
  async #inputOf(claim: Claim): Promise<string | undefined> {
    const { job } = claim;
    if (job.inputObjectId === undefined) return job.input ?? '';
    try {
      return await this.#tasks.bodies.loadInput(job.inputObjectId);
    } catch (error) {
      if (claim.starts < INPUT_TRIES) throw error;
      this.#tasks.log.error({ err: error, taskId: job.taskId }, 'the input of a task cannot be read');
      return undefined;
    }
  }

  /** After Redis may have come back older: a living replica has an attempt of it, which goes on and ends it. The job leaves its queue. */
  async #runsElsewhere(claim: Claim): Promise<boolean> {
    const { leases, queues, dispatcher, instance, isAlive, clock, log } = this.#tasks;
    const { taskId } = claim.job;
    const lease = await leases.read(taskId);
    const holder = lease && instanceOf(lease.lock);
    if (holder === undefined || holder === instance || !(await isAlive(holder))) return false;
    log.warn({ taskId, replica: holder }, 'a job came back while its task runs at another replica, taking it out');
    await queues.fail(claim.queue, taskId, claim.lock, 'runs elsewhere');
    dispatcher().release(claim.container, clock.nowMs());
    return true;
  }

  /** A synchronous task whose lease is this attempt's now, after Redis may have come back older: whoever had it before has written how it ended, or that it was sent. */
  async #wasSent(claim: Claim): Promise<boolean> {
    const { leases, records } = this.#tasks;
    const { taskId } = claim.job;
    const ended = await this.#endedBefore(claim);
    const isSent = !ended && (await records.read(taskId))?.status === 'RUNNING';
    if (!ended && !isSent) return false;
    await leases.dropOf(taskId, claim.lock);
    if (isSent) await this.#finishFetched(claim, SENT_BEFORE);
    return true;
  }

  async #endedBefore(claim: Claim): Promise<boolean> {
    const { taskId } = claim.job;
    let record = await this.#tasks.records.read(taskId);
    // A Redis that came back older has an older record, too.
    if (record !== undefined && !isTerminalTask(record.status)) {
      record = await this.#tasks.rowOf(taskId).catch(() => undefined);
    }
    if (record === undefined || !isTerminalTask(record.status)) return false;
    await this.#tasks.queues.fail(claim.queue, taskId, claim.lock, 'ended before');
    await this.#tasks.ender.answerFrom(record);
    // Last: whatever fails above gives the job back, and the slot with it.
    this.#tasks.dispatcher().release(claim.container, this.#tasks.clock.nowMs());
    return true;
  }

  /** Here: known exactly. Elsewhere: as far as that replica is present. */
  #callerWaits(job: TaskJob): boolean | Promise<boolean> {
    return job.replica === this.#tasks.instance
      ? this.#tasks.replies.has(job.taskId)
      : this.#tasks.isAlive(job.replica);
  }

  #attemptOf(claim: Claim, machineId: MachineId): Attempt {
    const { job } = claim;
    const handedOverAtMs = this.#tasks.clock.monotonicMs();
    return {
      job,
      queue: claim.queue,
      token: claim.token,
      lock: claim.lock,
      number: job.attempts + claim.starts,
      machineId,
      containerId: claim.container.containerId,
      container: claim.container,
      agentInstance: claim.container.link?.agentInstance ?? '',
      sentAtMs: this.#tasks.clock.nowMs(),
      handedOverAtMs,
      seenAtMs: handedOverAtMs,
      unclaimed: false,
      adopted: false,
      status: 'PENDING',
      startedAtMs: null,
      ending: undefined,
      slotFreed: false,
      limit: undefined,
    };
  }

  /** From now on its execution limit counts here, too, a grace later than at its agent; from the take-over for an attempt that another process sent. */
  armLimit(attempt: Attempt): void {
    const { timeoutMs } = attempt.job;
    if (timeoutMs === 0) return;
    const leftMs = attempt.handedOverAtMs + timeoutMs + this.#tasks.graces.limitMs - this.#tasks.clock.monotonicMs();
    // Beyond the longest timer it is looked at again.
    const again = (): void => (leftMs > LONGEST_TIMER_MS ? this.armLimit(attempt) : this.#limitPassed(attempt));
    attempt.limit = setTimeout(again, Math.min(Math.max(0, leftMs), LONGEST_TIMER_MS));
    attempt.limit.unref();
  }

  /** The agent should have ended it long ago. Its slot is not free before the agent says so. After a stall of this process the agent's word may lie unread: it is given the grace again. */
  #limitPassed(attempt: Attempt): void {
    if (attempt.ending !== undefined) return;
    const { graces, sinceStallMs } = this.#tasks;
    if (sinceStallMs() < graces.limitMs) {
      attempt.limit = setTimeout(() => this.#limitPassed(attempt), graces.limitMs);
      attempt.limit.unref();
      return;
    }
    const { job } = attempt;
    void this.#tasks.ender.revoke(attempt, 'timeout', endingOf('timeout', job), job.timeoutMs);
  }

  /**
   * @param pause - the container did not take it: nothing is sent there for a moment
   * @param isLeased - its lease may be written
   */
  async #giveBack(claim: Claim, pause: boolean, isLeased = claim.isLent): Promise<void> {
    const { job, queue, container } = claim;
    const attempt = this.#tasks.attempts.find(job.taskId, claim.token);
    if (attempt !== undefined) this.#tasks.attempts.remove(attempt);
    if (pause) this.pause(container);
    const back = async (): Promise<void> => {
      // Of a loan it may have been written without an answer.
      if (attempt !== undefined || isLeased) await this.#tasks.leases.dropOf(job.taskId, claim.lock);
      await this.#tasks.queues.giveBack(queue, job.taskId, claim.lock);
    };
    await untilGivenBack(claim, back, this.#tasks);
    this.#tasks.dispatcher().release(container, this.#tasks.clock.nowMs());
    this.#tasks.dispatcher().wake(queue);
  }

  /** The container did not take a task: nothing is sent there for a moment. */
  pause(container: ReadyContainer): void {
    this.#tasks.slots.pause(container, REFUSED_PAUSE_MS, () => this.#tasks.dispatcher().wake(container.queue));
  }

  async #finishFetched(claim: Claim, verdict: Extract<Verdict, { kind: 'finish' }>): Promise<void> {
    const { job, queue } = claim;
    const fence = await this.#tasks.queues.fail(queue, job.taskId, claim.lock, verdict.failureReason);
    this.#tasks.dispatcher().release(claim.container, this.#tasks.clock.nowMs());
    if (fence.kind !== 'done') return;
    const from = { status: 'PENDING', attempt: job.attempts + claim.starts } as const;
    await this.#tasks.ender.endQueued(queue, job, { ...verdict, text: verdict.errorText }, from);
  }
}

export function leaseOf(attempt: Attempt): Lease {
  const { lock, containerId, machineId, agentInstance, queue, job, number, sentAtMs } = attempt;
  return { lock, attempt: number, containerId, machineId, agentInstance, queue, job, startedAtMs: sentAtMs };
}
