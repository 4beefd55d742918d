// Tasks of this replica's lane that another replica serves: their callers wait here, but no container here has room for
// them. The script that lets a task in also publishes it to the borrower; only the task's result answers that message.
// The lender takes back a loan that the borrower returned, or that it heard nothing of for a
// second. The script for that is atomic: a task whose attempt has a lease stays where it is. Once
// a loan was taken back, take-loans.lua refuses to write a lease for it, whatever state the
// borrower is in. A loan is remembered only until then; a sent attempt is treated like any other.
import type { InstanceId, QueueName, TaskId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { TaskJob } from '../../stores/queues/jobs.ts';
import type { Bus } from '../../cluster/bus.ts';
import { entryOf } from './entries.ts';
import type { LaneTask } from './lane.ts';
import { laneTask } from './lane.ts';
import { isLetIn } from './store.ts';
import type { LaneStore } from './store.ts';

/** Access to the other replicas that lending needs. */
export interface LendingParts {
  readonly instance: InstanceId;
  readonly bus: Pick<Bus, 'on' | 'say'>;
  readonly channelOf: (replica: InstanceId) => string;
  /** Replica with room for a task of that queue, beyond its present loans; undefined: none is known. */
  readonly borrowerOf: (queue: QueueName, lentTo: (replica: InstanceId) => number) => InstanceId | undefined;
  /** Job of a task whose caller waits here. */
  readonly jobOf: (taskId: TaskId) => TaskJob | undefined;
  /** False while Redis may lack leases of attempts that were sent. Absent: Redis never lacks them. */
  readonly mayTakeBack?: () => boolean;
  /** Milliseconds of silence until a loan is taken back; tests shorten it. */
  readonly silentMs?: number;
}

/** Callbacks into the lane, for tasks that are lent or borrowed. */
export interface LoansParts extends LendingParts {
  readonly store: LaneStore;
  readonly log: Log;
  /** Called when another replica lends that task. @returns false: there is no room for it */
  readonly onBorrowed: (queue: QueueName, job: TaskJob) => boolean;
  /** Whether this lane has the task. */
  readonly isHere: (taskId: TaskId) => boolean;
  /** Called when a lent task is this lane's again. */
  readonly onBack: (task: LaneTask) => void;
}

interface Loan {
  readonly task: LaneTask;
  readonly to: InstanceId;
  /** Time at which the loan is taken back if nothing is heard of it; monotonic milliseconds. */
  dueMs: number;
  returning: Promise<void> | undefined;
}

/**
 * Message on a replica's own channel: tasks lent to it (published
 * by enter-lane.lua), or a task that it lent and gets back.
 */
interface Word {
  readonly queue: QueueName;
  readonly lent?: readonly unknown[];
  readonly back?: TaskId;
}

const SILENT_MS = 1_000;
const LOOK_MS = 250;
/** Time for which a replica that had no room, or was silent, is lent nothing of that queue. */
const SHUT_REFUSED_MS = 100;
const SHUT_SILENT_MS = 3_000;
const MOST_SHUT = 10_000;
/**
 * Most bytes of input that are lent. Larger tasks go through the
 * queue, so that a replica that listens to many others keeps up.
 */
const MOST_INPUT = 16 * 1024;

export class Loans {
  readonly #parts: LoansParts;
  /** Loans by task, the oldest first. */
  readonly #loans = new Map<TaskId, Loan>();
  readonly #counts = new Map<string, number>();
  readonly #shut = new Map<string, number>();
  #timer: NodeJS.Timeout | undefined;

  constructor(parts: LoansParts) {
    this.#parts = parts;
    parts.bus.on(parts.channelOf(parts.instance), (message) => this.#heard(message as Word));
  }

  get #silentMs(): number {
    return this.#parts.silentMs ?? SILENT_MS;
  }

  // ---- lending ------------------------------------------------------------------------------------------------------

  /** Replica that may be lent that task; undefined: none. */
  borrowerFor(queue: QueueName, job: TaskJob): InstanceId | undefined {
    if ((job.input?.length ?? 0) > MOST_INPUT) return undefined;
    return this.#parts.borrowerOf(queue, (replica) => {
      const key = keyOf(queue, replica);
      return this.#isShut(key) ? Number.POSITIVE_INFINITY : (this.#counts.get(key) ?? 0);
    });
  }

  /** Records a loan before the task is let in and its borrower told. */
  lend(task: LaneTask, to: InstanceId): void {
    const dueMs = performance.now() + this.#silentMs;
    this.#loans.set(task.job.taskId, { task, to, dueMs, returning: undefined });
    const key = keyOf(task.queue, to);
    this.#counts.set(key, (this.#counts.get(key) ?? 0) + 1);
    this.#timer ??= setInterval(() => this.#lookAtSilent(), Math.min(LOOK_MS, this.#silentMs)).unref();
  }

  has(taskId: TaskId): boolean {
    return this.#loans.has(taskId);
  }

  get(taskId: TaskId): LaneTask | undefined {
    return this.#loans.get(taskId)?.task;
  }

  /** Resolves when it is known who has the task; undefined: it is not being taken back. */
  returning(taskId: TaskId): Promise<void> | undefined {
    return this.#loans.get(taskId)?.returning;
  }

  /** Forgets the loan of a task that ended, was not let in, or belongs to another replica. */
  forget(taskId: TaskId): void {
    const loan = this.#loans.get(taskId);
    if (loan === undefined) return;
    this.#loans.delete(taskId);
    const key = keyOf(loan.task.queue, loan.to);
    const left = (this.#counts.get(key) ?? 1) - 1;
    if (left > 0) this.#counts.set(key, left);
    else this.#counts.delete(key);
  }

  *all(): Iterable<LaneTask> {
    for (const { task } of this.#loans.values()) yield task;
  }

  /** Writes the entries of lent tasks again, as loans, after Redis lost its data. */
  async restore(): Promise<void> {
    const { store } = this.#parts;
    const standing = [...this.#loans.values()].filter(({ task }) => task.entering === undefined);
    await Promise.all(standing.map(({ task, to }) => store.restore(task.queue, [task.job], to)));
  }

  close(): void {
    clearInterval(this.#timer);
  }

  // ---- back ---------------------------------------------------------------------------------------------------------

  #lookAtSilent(): void {
    if (this.#parts.mayTakeBack?.() === false) return;
    const nowMs = performance.now();
    for (const loan of this.#loans.values()) {
      if (loan.dueMs > nowMs) break;
      if (loan.returning !== undefined) continue;
      loan.returning = this.#takeBack(loan, SHUT_SILENT_MS);
    }
    if (this.#loans.size > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  /**
   * Takes a loan back. A task that was sent stays with its borrower and is forgotten here.
   * @param shutMs - how long the borrower of a task that comes back is lent nothing
   */
  async #takeBack(loan: Loan, shutMs: number): Promise<void> {
    const { task, to } = loan;
    const { taskId } = task.job;
    try {
      // A task that is not let in is handled by the code that entered it.
      if (task.entering !== undefined && !(await isLetIn(task.entering))) return;
      const isBack = await this.#isBack(task);
      if (this.#loans.get(taskId) !== loan) return;
      this.forget(taskId);
      if (!isBack) return;
      this.#shutOut(keyOf(task.queue, to), shutMs);
      this.#parts.onBack(task);
    } catch (error) {
      this.#parts.log.info({ err: error, taskId }, 'a lent task is not taken back yet, trying again');
      this.#tryAgain(loan);
    }
  }

  async #isBack(task: LaneTask, mustBeLent = false): Promise<boolean> {
    const askedAtMs = performance.now();
    if (!(await this.#parts.store.takeBack(task.queue, task.job, mustBeLent))) return false;
    task.knownAtMs = askedAtMs;
    // The loan counts as a start, so that the next fetch checks whether the task is over.
    task.starts += 1;
    return true;
  }

  /** Moves the loan behind the others, because they are looked at in order of their due time. */
  #tryAgain(loan: Loan): void {
    const { taskId } = loan.task.job;
    if (this.#loans.get(taskId) !== loan) return;
    loan.returning = undefined;
    loan.dueMs = performance.now() + this.#silentMs;
    this.#loans.delete(taskId);
    this.#loans.set(taskId, loan);
  }

  /**
   * Takes in a task that no replica seems to have, and whose caller waits here.
   * @returns false: it is not ours, or was sent
   */
  async recover(queue: QueueName, taskId: TaskId): Promise<boolean> {
    const job = this.#parts.jobOf(taskId);
    if (job === undefined || this.#loans.has(taskId) || this.#parts.isHere(taskId)) return false;
    const task = laneTask(queue, job);
    // An entry without a loan mark was left behind on the way to the queue: its task is a job.
    if (!(await this.#isBack(task, true))) return false;
    this.#parts.onBack(task);
    return true;
  }

  #isShut(key: string): boolean {
    const untilMs = this.#shut.get(key);
    if (untilMs === undefined) return false;
    if (performance.now() < untilMs) return true;
    this.#shut.delete(key);
    return false;
  }

  #shutOut(key: string, ms: number): void {
    if (this.#shut.size >= MOST_SHUT) this.#shut.clear();
    this.#shut.set(key, performance.now() + ms);
  }

  // ---- borrowing ----------------------------------------------------------------------------------------------------

  /** Tells the lender that there is no room for the task here, or that it could not be sent. */
  giveBack(queue: QueueName, { taskId, replica }: Pick<TaskJob, 'taskId' | 'replica'>): void {
    this.#parts.bus.say(this.#parts.channelOf(replica), { queue, back: taskId } satisfies Word);
  }

  #heard({ queue, lent = [], back }: Word): void {
    if (back !== undefined) this.#refused(queue, back);
    for (const entry of lent) {
      const job = entryOf(entry);
      if (!this.#parts.onBorrowed(queue, job)) this.giveBack(queue, job);
    }
  }

  #refused(queue: QueueName, taskId: TaskId): void {
    const loan = this.#loans.get(taskId);
    if (loan !== undefined) {
      loan.returning ??= this.#takeBack(loan, SHUT_REFUSED_MS);
      return;
    }
    // The loan is forgotten because the task counted as sent, but the agent did not take it.
    this.recover(queue, taskId).catch((error: unknown) => {
      this.#parts.log.info({ err: error, taskId }, 'a task that was given back is found by the sweep');
    });
  }
}

const keyOf = (queue: QueueName, replica: InstanceId): string => `${queue} ${replica}`;
