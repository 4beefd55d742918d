// Tasks of this replica's lane that another replica serves: their callers wait here, and no container here has room for them. Lending one is a word to the other replica, said in the step that lets the task in;
// nobody answers it but with the task's result. What is given back, or not heard of for a second, is taken back by a script that nothing sent survives: a task whose attempt was leased stays where it is, and
// of one that was taken back no lease can be written any more (take-loans.lua), whatever became of the other replica. A loan is remembered until then, no longer: what was sent is seen to as everywhere.
import type { InstanceId, QueueName, TaskId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { TaskJob } from '../queues/jobs.ts';
import type { Bus } from '../replicas/bus.ts';
import { entryOf } from './entries.ts';
import type { LaneTask } from './lane.ts';
import { laneTask } from './lane.ts';
import { isLetIn } from './store.ts';
import type { LaneStore } from './store.ts';

/** What a lane needs of the other replicas. */
export interface LendingParts {
  readonly instance: InstanceId;
  readonly bus: Pick<Bus, 'on' | 'say'>;
  readonly channelOf: (replica: InstanceId) => string;
  /** A replica with room for a task of that queue, beyond what is lent to it already; undefined: none is known. */
  readonly borrowerOf: (queue: QueueName, lentTo: (replica: InstanceId) => number) => InstanceId | undefined;
  /** Of a caller who waits here. */
  readonly jobOf: (taskId: TaskId) => TaskJob | undefined;
  /** False while Redis may lack the lease of what was sent. Absent: it never does. */
  readonly mayTakeBack?: () => boolean;
  /** Tests shorten it. */
  readonly silentMs?: number;
}

/** What the lane does with tasks that come to it on this way. */
export interface LoansParts extends LendingParts {
  readonly store: LaneStore;
  readonly log: Log;
  /** Another replica lends that task. @returns false: there is no room for it */
  readonly onBorrowed: (queue: QueueName, job: TaskJob) => boolean;
  /** This lane has it. */
  readonly isHere: (taskId: TaskId) => boolean;
  /** It is this lane's again. */
  readonly onBack: (task: LaneTask) => void;
}

interface Loan {
  readonly task: LaneTask;
  readonly to: InstanceId;
  /** When it is taken back if nothing is heard of it; monotonic milliseconds. */
  dueMs: number;
  returning: Promise<void> | undefined;
}

/** On a replica's own channel: tasks lent to it (the word of enter-lane.lua), or one that it lent and gets back. */
interface Word {
  readonly queue: QueueName;
  readonly lent?: readonly unknown[];
  readonly back?: TaskId;
}

const SILENT_MS = 1_000;
const LOOK_MS = 250;
/** Who had no room, or was silent, is lent nothing of that queue for so long. */
const SHUT_REFUSED_MS = 100;
const SHUT_SILENT_MS = 3_000;
const MOST_SHUT = 10_000;
/** Larger ones go through the queue: whoever listens to many replicas must be able to keep up. */
const MOST_INPUT = 16 * 1024;

export class Loans {
  readonly #parts: LoansParts;
  /** The oldest first. */
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

  // ---- lending --------------------------------------------------------------------------------------------------------------------

  /** Who may be lent that task; undefined: nobody. */
  borrowerFor(queue: QueueName, job: TaskJob): InstanceId | undefined {
    if ((job.input?.length ?? 0) > MOST_INPUT) return undefined;
    return this.#parts.borrowerOf(queue, (replica) => {
      const key = keyOf(queue, replica);
      return this.#isShut(key) ? Number.POSITIVE_INFINITY : (this.#counts.get(key) ?? 0);
    });
  }

  /** It is about to be let in, and its borrower told. */
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

  /** Resolves when it is known whose it is; undefined: it is not being taken back. */
  returning(taskId: TaskId): Promise<void> | undefined {
    return this.#loans.get(taskId)?.returning;
  }

  /** It ended, was not let in, or is somebody else's. */
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

  /** Redis lost its data: the entries of what is lent stand there again, as loans. */
  async restore(): Promise<void> {
    const { store } = this.#parts;
    const standing = [...this.#loans.values()].filter(({ task }) => task.entering === undefined);
    await Promise.all(standing.map(({ task, to }) => store.restore(task.queue, [task.job], to)));
  }

  close(): void {
    clearInterval(this.#timer);
  }

  // ---- back -----------------------------------------------------------------------------------------------------------------------

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

  /** What was sent is not taken back, and forgotten here. @param shutMs - for how long its borrower is lent nothing, if it comes back */
  async #takeBack(loan: Loan, shutMs: number): Promise<void> {
    const { task, to } = loan;
    const { taskId } = task.job;
    try {
      // Where it is not let in, whoever entered it sees to it.
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
    // It was handed out, in a way: whoever takes it next looks whether it is over.
    task.starts += 1;
    return true;
  }

  /** Behind the others, which are looked at in their order. */
  #tryAgain(loan: Loan): void {
    const { taskId } = loan.task.job;
    if (this.#loans.get(taskId) !== loan) return;
    loan.returning = undefined;
    loan.dueMs = performance.now() + this.#silentMs;
    this.#loans.delete(taskId);
    this.#loans.set(taskId, loan);
  }

  /** One that nobody seems to have, and whose caller waits here. @returns false: it is not ours, or was sent */
  async recover(queue: QueueName, taskId: TaskId): Promise<boolean> {
    const job = this.#parts.jobOf(taskId);
    if (job === undefined || this.#loans.has(taskId) || this.#parts.isHere(taskId)) return false;
    const task = laneTask(queue, job);
    // One that is not lent is what was left behind on the way to the queue, and a job.
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

  // ---- borrowing ------------------------------------------------------------------------------------------------------------------

  /** There is no room for it here, or it could not be sent: its lender is told. */
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
    // Sent, as far as was known, and not taken by its agent.
    this.recover(queue, taskId).catch((error: unknown) => {
      this.#parts.log.info({ err: error, taskId }, 'a task that was given back is found by the sweep');
    });
  }
}

const keyOf = (queue: QueueName, replica: InstanceId): string => `${queue} ${replica}`;
