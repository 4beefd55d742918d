// Withdrawal of tasks that were not accepted although their job, or their row, may exist: an add or a commit
// that timed out may have happened. None of them runs later unseen. The task leaves its queue and its row says
// CANCELLED, or, where a container has it already, it gets its row. A task whose key was accepted with its row goes
// back to its queue, because other callers with the key may have its id. Each withdrawal is tried until the stores
// answer or the process ends. Admission is closed meanwhile (commit-gate.ts), which bounds their number.
import type { QueueName } from '#shared/domain/ids.ts';
import { backoffMs, sleep } from '#shared/backoff.ts';
import type { Clock } from '#shared/clock.ts';
import { isTerminalTask } from '#shared/domain/status.ts';
import type { Log } from '#shared/log.ts';
import type { TaskJob } from '../../stores/queues/jobs.ts';
import { encodeTaskJob } from '../../stores/queues/jobs.ts';
import type { TaskQueues } from '../../stores/queues/task-queues.ts';
import type { AcceptedTask } from '../../stores/store/queries/tasks.ts';
import type { Completion } from '../completion/completion.ts';
import type { Changes } from '../records/changes.ts';
import { finalOf, recordOf } from '../records/recording.ts';
import type { TaskRecords } from '../records/records.ts';
import type { GroupCommit } from './accepting.ts';
import type { KeyClaim } from './idempotency.ts';
import type { IdempotencyKeys } from './idempotency-keys.ts';

const BACKOFF = { baseMs: 200, capMs: 10_000, floorMs: 50 };
/** Most withdrawals under way: as many as the commits that may wait for the database (accepting.ts). */
const MOST_UNDER_WAY = 10_000;

interface Refused {
  readonly claim: KeyClaim | undefined;
  /** Queues the task again if its row turns out to be committed; absent: nobody began to commit it. */
  readonly queueAgain?: () => Promise<void>;
}

/** Commits of rows, with the keys of their calls. */
export interface Commits {
  /** Group commit for rows of asynchronous tasks, before their ids are returned. */
  readonly accepting: Pick<GroupCommit<AcceptedTask>, 'commit'>;
  readonly idempotencyKeys?: Pick<IdempotencyKeys, 'commit' | 'release' | 'releaseUncommitted'> | undefined;
}

/**
 * Commits the row of an asynchronous task, with its key.
 * @returns false: the key is another task's by now, or gone, and nothing is written
 * @throws when the row is not written
 */
export async function commitOf(
  { accepting, idempotencyKeys }: Commits,
  task: AcceptedTask,
  claim: KeyClaim | undefined,
): Promise<boolean> {
  if (claim === undefined) {
    await accepting.commit(task);
    return true;
  }
  const { workspaceId, scope, key } = claim;
  return (await idempotencyKeys?.commit({ ...task, key: { workspaceId, scope, key } })) === true;
}

export interface WithdrawalsParts extends Commits {
  readonly queues: Pick<TaskQueues, 'read' | 'remove'>;
  readonly records: Pick<TaskRecords, 'read'>;
  readonly changes: Pick<Changes, 'applied'>;
  readonly completion: Pick<Completion, 'dropInput'>;
  readonly clock: Clock;
  readonly log: Log;
  readonly signal: AbortSignal;
}

export class Withdrawals {
  readonly #parts: WithdrawalsParts;
  #underWay = 0;

  constructor(parts: WithdrawalsParts) {
    this.#parts = parts;
  }

  /**
   * Withdraws a task.
   * @returns when the first try is over: where Redis answers, the job has left its queue or a container has it
   */
  async withdraw(queue: QueueName, job: TaskJob, refused: Refused): Promise<void> {
    // The key of a task that may run stays: the settled withdrawal later decides about it.
    if (refused.claim !== undefined) refused.claim.isWithdrawn = true;
    if (this.#underWay >= MOST_UNDER_WAY) {
      this.#parts.log.error({ taskId: job.taskId }, 'a task that was not accepted is not taken out: too many are');
      return;
    }
    this.#underWay += 1;
    const one = new Withdrawal(this.#parts, queue, job, refused);
    const isOut = await one.leaveQueue();
    void this.#untilOver(one, isOut).finally(() => (this.#underWay -= 1));
  }

  async #untilOver(one: Withdrawal, isOut: boolean): Promise<void> {
    const { signal, log } = this.#parts;
    for (let tries = 1; ; tries += 1) {
      try {
        if (isOut || tries > 1) {
          await one.settle();
          return;
        }
      } catch (error) {
        log.info({ err: error, taskId: one.taskId }, 'a task that was not accepted could not be taken out yet');
      }
      if (!(await sleep(backoffMs(tries, BACKOFF), signal))) return;
    }
  }
}

class Withdrawal {
  readonly #parts: WithdrawalsParts;
  readonly #queue: QueueName;
  readonly #job: TaskJob;
  readonly #refused: Refused;
  /** True once nobody can fetch the job any more. A later try, after a failure behind this step, must know that. */
  #removed = false;

  constructor(parts: WithdrawalsParts, queue: QueueName, job: TaskJob, refused: Refused) {
    this.#parts = parts;
    this.#queue = queue;
    this.#job = job;
    this.#refused = refused;
  }

  get taskId(): string {
    return this.#job.taskId;
  }

  /** Removes the job from its queue. @returns false: Redis does not answer */
  async leaveQueue(): Promise<boolean> {
    try {
      this.#removed ||= await this.#parts.queues.remove(this.#queue, this.#job.taskId);
      return true;
    } catch {
      return false;
    }
  }

  /** Writes the task's row or its end. @throws when a store does not answer */
  async settle(): Promise<void> {
    const { queues, records, changes, idempotencyKeys, clock, completion } = this.#parts;
    const [queue, job, { claim, queueAgain }] = [this.#queue, this.#job, this.#refused];
    this.#removed ||= await queues.remove(queue, job.taskId);
    if (queueAgain === undefined) {
      if (this.#removed) completion.dropInput(job);
      // A container may have the task: then the key stays the task's.
      if (claim !== undefined && (this.#removed || !(await this.#isKnown()))) await idempotencyKeys?.release(claim);
      return;
    }
    const known = await records.read(job.taskId);
    const isUntouched = known === undefined || (known.attempt === 0 && !isTerminalTask(known.status));
    // An earlier removal may have happened although its answer was lost.
    if (this.#removed || (isUntouched && (await queues.read(queue, job.taskId)) === undefined)) {
      if (claim !== undefined && (await idempotencyKeys?.releaseUncommitted(claim)) === false)
        return await queueAgain();
      // The task is over, whether or not its row is there, or comes yet.
      const record = finalOf(job, queue, 0, 'CANCELLED', clock.nowMs(), { failureReason: 'not_accepted' });
      await changes.applied(known?.status ?? 'PENDING', 'cancel', record);
      completion.dropInput(job);
      return;
    }
    // A container has the task, or had it: the task gets its row, with the job for a rebuild.
    const task = { record: recordOf(job, queue, 'PENDING', 0), job: encodeTaskJob(job) };
    // A key that stands for another task, or is gone, never comes back to this one: the row is written without it.
    if (!(await commitOf(this.#parts, task, claim))) await commitOf(this.#parts, task, undefined);
  }

  async #isKnown(): Promise<boolean> {
    const { queues, records } = this.#parts;
    const { taskId } = this.#job;
    return (await queues.read(this.#queue, taskId)) !== undefined || (await records.read(taskId)) !== undefined;
  }
}
