// Tasks of this replica's local queue that another replica serves: their callers wait here, but no container here has
// room for them. The script that lets a task in also publishes it to the receiver; only the task's result answers that
// message. The origin takes back a forwarded task that the receiver returned, or that it heard nothing of for a second.
// The script for that is atomic: a task whose attempt has a lease stays where it is. Once a forwarded task was taken
// back, lease-forwarded-tasks.lua refuses to write a lease for it, whatever state the receiver is in. A forwarded task
// is remembered only until then; a sent attempt is treated like any other.
import type { InstanceId, QueueName, TaskId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { TaskJob } from '../../stores/queues/jobs.ts';
import type { Bus } from '../../cluster/bus.ts';
import { entryOf } from './entries.ts';
import type { LocalTask } from './local-queue.ts';
import { localTask } from './local-queue.ts';
import { isLetIn } from './store.ts';
import type { LocalQueueStore } from './store.ts';

/** Access to the other replicas that forwarding needs. */
export interface ForwardingPeers {
  readonly instance: InstanceId;
  readonly bus: Pick<Bus, 'on' | 'publish'>;
  readonly channelOf: (replica: InstanceId) => string;
  /** Replica with room for a task of that queue, beyond its present forwarded tasks; undefined: none is known. */
  readonly receiverOf: (queue: QueueName, forwardedTo: (replica: InstanceId) => number) => InstanceId | undefined;
  /** Job of a task whose caller waits here. */
  readonly jobOf: (taskId: TaskId) => TaskJob | undefined;
  /** False while Redis may lack leases of attempts that were sent. Absent: Redis never lacks them. */
  readonly mayTakeBack?: () => boolean;
  /** Milliseconds of silence until a forwarded task is taken back; tests shorten it. */
  readonly silentMs?: number;
}

/** Callbacks into the local queue, for tasks that are forwarded or received. */
export interface ForwardingParts extends ForwardingPeers {
  readonly store: LocalQueueStore;
  readonly log: Log;
  /** Called when another replica forwards that task. @returns false: there is no room for it */
  readonly onReceived: (queue: QueueName, job: TaskJob) => boolean;
  /** Whether this local queue has the task. */
  readonly isHere: (taskId: TaskId) => boolean;
  /** Called when a forwarded task is this local queue's again. */
  readonly onBack: (task: LocalTask) => void;
}

interface Forwarded {
  readonly task: LocalTask;
  readonly to: InstanceId;
  /** Time at which the task is taken back if nothing is heard of it; monotonic milliseconds. */
  dueMs: number;
  returning: Promise<void> | undefined;
}

/**
 * Message on a replica's own channel: tasks forwarded to it (published
 * by admit-local-tasks.lua), or a task that it forwarded and gets back.
 */
interface ForwardingMessage {
  readonly queue: QueueName;
  readonly lent?: readonly unknown[];
  readonly back?: TaskId;
}

const SILENT_MS = 1_000;
const CHECK_MS = 250;
/** Time for which a replica that had no room, or was silent, gets no task of that queue. */
const PAUSE_REFUSED_MS = 100;
const PAUSE_SILENT_MS = 3_000;
const MOST_PAUSED = 10_000;
/**
 * Most bytes of input that are forwarded. Larger tasks go through the
 * queue, so that a replica that listens to many others keeps up.
 */
const MOST_INPUT = 16 * 1024;

export class Forwarding {
  readonly #parts: ForwardingParts;
  /** Forwarded tasks by task, the oldest first. */
  readonly #forwarded = new Map<TaskId, Forwarded>();
  readonly #counts = new Map<string, number>();
  readonly #paused = new Map<string, number>();
  #timer: NodeJS.Timeout | undefined;

  constructor(parts: ForwardingParts) {
    this.#parts = parts;
    parts.bus.on(parts.channelOf(parts.instance), (message) => this.#heard(message as ForwardingMessage));
  }

  get #silentMs(): number {
    return this.#parts.silentMs ?? SILENT_MS;
  }

  // ---- forwarding ---------------------------------------------------------------------------------------------------

  /** Replica to which that task may be forwarded; undefined: none. */
  receiverFor(queue: QueueName, job: TaskJob): InstanceId | undefined {
    if ((job.input?.length ?? 0) > MOST_INPUT) return undefined;
    return this.#parts.receiverOf(queue, (replica) => {
      const key = keyOf(queue, replica);
      return this.#isPaused(key) ? Number.POSITIVE_INFINITY : (this.#counts.get(key) ?? 0);
    });
  }

  /** Records a forwarded task before the task is let in and its receiver told. */
  forward(task: LocalTask, to: InstanceId): void {
    const dueMs = performance.now() + this.#silentMs;
    this.#forwarded.set(task.job.taskId, { task, to, dueMs, returning: undefined });
    const key = keyOf(task.queue, to);
    this.#counts.set(key, (this.#counts.get(key) ?? 0) + 1);
    this.#timer ??= setInterval(() => this.#checkSilent(), Math.min(CHECK_MS, this.#silentMs)).unref();
  }

  has(taskId: TaskId): boolean {
    return this.#forwarded.has(taskId);
  }

  get(taskId: TaskId): LocalTask | undefined {
    return this.#forwarded.get(taskId)?.task;
  }

  /** Resolves when it is known who has the task; undefined: it is not being taken back. */
  returning(taskId: TaskId): Promise<void> | undefined {
    return this.#forwarded.get(taskId)?.returning;
  }

  /** Forgets a forwarded task that ended, was not let in, or belongs to another replica. */
  forget(taskId: TaskId): void {
    const forwarded = this.#forwarded.get(taskId);
    if (forwarded === undefined) return;
    this.#forwarded.delete(taskId);
    const key = keyOf(forwarded.task.queue, forwarded.to);
    const left = (this.#counts.get(key) ?? 1) - 1;
    if (left > 0) this.#counts.set(key, left);
    else this.#counts.delete(key);
  }

  *all(): Iterable<LocalTask> {
    for (const { task } of this.#forwarded.values()) yield task;
  }

  /** Writes the entries of forwarded tasks again, with their mark, after Redis lost its data. */
  async restore(): Promise<void> {
    const { store } = this.#parts;
    const standing = [...this.#forwarded.values()].filter(({ task }) => task.entering === undefined);
    await Promise.all(standing.map(({ task, to }) => store.restore(task.queue, [task.job], to)));
  }

  close(): void {
    clearInterval(this.#timer);
  }

  // ---- back ---------------------------------------------------------------------------------------------------------

  #checkSilent(): void {
    if (this.#parts.mayTakeBack?.() === false) return;
    const nowMs = performance.now();
    for (const forwarded of this.#forwarded.values()) {
      if (forwarded.dueMs > nowMs) break;
      if (forwarded.returning !== undefined) continue;
      forwarded.returning = this.#takeBack(forwarded, PAUSE_SILENT_MS);
    }
    if (this.#forwarded.size > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  /**
   * Takes a forwarded task back. A task that was sent stays with its receiver and is forgotten here.
   * @param pauseMs - how long nothing is forwarded to the receiver of a task that comes back
   */
  async #takeBack(forwarded: Forwarded, pauseMs: number): Promise<void> {
    const { task, to } = forwarded;
    const { taskId } = task.job;
    try {
      // A task that is not let in is handled by the code that entered it.
      if (task.entering !== undefined && !(await isLetIn(task.entering))) return;
      const isBack = await this.#isBack(task);
      if (this.#forwarded.get(taskId) !== forwarded) return;
      this.forget(taskId);
      if (!isBack) return;
      this.#pause(keyOf(task.queue, to), pauseMs);
      this.#parts.onBack(task);
    } catch (error) {
      this.#parts.log.info({ err: error, taskId }, 'a forwarded task is not taken back yet, trying again');
      this.#tryAgain(forwarded);
    }
  }

  async #isBack(task: LocalTask, mustBeForwarded = false): Promise<boolean> {
    const askedAtMs = performance.now();
    if (!(await this.#parts.store.takeBack(task.queue, task.job, mustBeForwarded))) return false;
    task.knownAtMs = askedAtMs;
    // The forwarded run counts as a start, so that the next fetch checks whether the task is over.
    task.starts += 1;
    return true;
  }

  /** Moves the task behind the others, because they are looked at in order of their due time. */
  #tryAgain(forwarded: Forwarded): void {
    const { taskId } = forwarded.task.job;
    if (this.#forwarded.get(taskId) !== forwarded) return;
    forwarded.returning = undefined;
    forwarded.dueMs = performance.now() + this.#silentMs;
    this.#forwarded.delete(taskId);
    this.#forwarded.set(taskId, forwarded);
  }

  /**
   * Takes in a task that no replica seems to have, and whose caller waits here.
   * @returns false: it is not ours, or was sent
   */
  async recover(queue: QueueName, taskId: TaskId): Promise<boolean> {
    const job = this.#parts.jobOf(taskId);
    if (job === undefined || this.#forwarded.has(taskId) || this.#parts.isHere(taskId)) return false;
    const task = localTask(queue, job);
    // An entry without the mark of a forwarded task was left behind on the way to the queue: its task is a job.
    if (!(await this.#isBack(task, true))) return false;
    this.#parts.onBack(task);
    return true;
  }

  #isPaused(key: string): boolean {
    const untilMs = this.#paused.get(key);
    if (untilMs === undefined) return false;
    if (performance.now() < untilMs) return true;
    this.#paused.delete(key);
    return false;
  }

  #pause(key: string, ms: number): void {
    if (this.#paused.size >= MOST_PAUSED) this.#paused.clear();
    this.#paused.set(key, performance.now() + ms);
  }

  // ---- receiving ----------------------------------------------------------------------------------------------------

  /** Tells the origin that there is no room for the task here, or that it could not be sent. */
  giveBack(queue: QueueName, { taskId, replica }: Pick<TaskJob, 'taskId' | 'replica'>): void {
    this.#parts.bus.publish(this.#parts.channelOf(replica), { queue, back: taskId } satisfies ForwardingMessage);
  }

  #heard({ queue, lent = [], back }: ForwardingMessage): void {
    if (back !== undefined) this.#refused(queue, back);
    for (const entry of lent) {
      const job = entryOf(entry);
      if (!this.#parts.onReceived(queue, job)) this.giveBack(queue, job);
    }
  }

  #refused(queue: QueueName, taskId: TaskId): void {
    const forwarded = this.#forwarded.get(taskId);
    if (forwarded !== undefined) {
      forwarded.returning ??= this.#takeBack(forwarded, PAUSE_REFUSED_MS);
      return;
    }
    // The task is forgotten as a forwarded one, because the task counted as sent, but the agent did not take it.
    this.recover(queue, taskId).catch((error: unknown) => {
      this.#parts.log.info({ err: error, taskId }, 'a task that was given back is found by the sweep');
    });
  }
}

const keyOf = (queue: QueueName, replica: InstanceId): string => `${queue} ${replica}`;
