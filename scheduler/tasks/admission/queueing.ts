// Committed tasks on their way to their queues. A task's row is committed first; its job is added in the same tick,
// and nobody waits for that. An add that Redis does not take is repeated until it does: an id that is there already
// changes nothing. A job that may come late says so, and its fetch looks at the task's row. When this process dies, the
// leader adds what is missing (maintenance/missing-jobs.ts). Invariants: a task that was begun here counts as not added
// until its add is answered, so a mark in Redis never says too much. MOST_WAITING and MOST_BYTES bound the memory.
import type { InstanceId, QueueName, TaskId } from '#shared/domain/ids.ts';
import { backoffMs, repeat, sleep } from '#shared/backoff.ts';
import type { Clock } from '#shared/clock.ts';
import type { Log } from '#shared/log.ts';
import type { AddedMarks } from '../../stores/queues/added-marks.ts';
import type { TaskJob } from '../../stores/queues/jobs.ts';
import type { TaskQueues } from '../../stores/queues/task-queues.ts';
import type { Dispatcher } from '../dispatch/dispatcher.ts';
import type { GracePeriods } from '../maintenance/grace-periods.ts';
import type { Changes } from '../records/changes.ts';
import type { TaskRecords } from '../records/records.ts';

/** Most tasks that wait for Redis, and the bytes of their inputs; beyond them nothing is accepted. */
export const MOST_WAITING = 10_000;
export const MOST_BYTES = 64 * 1024 ** 2;
const BACKOFF = { baseMs: 100, capMs: 1_000, floorMs: 50 };
/** Adds that go out together when Redis is back. */
const TOGETHER = 500;
/** Milliseconds between two marks. */
const MARK_MS = 1_000;
/** Longest time for which a stop waits for adds; a part may take 15 s to stop. */
const STOP_MS = 10_000;

interface Waiting {
  readonly queue: QueueName;
  readonly job: TaskJob;
  readonly onAdded: (() => void) | undefined;
  isUnderWay: boolean;
}

export interface QueueingParts {
  readonly queues: Pick<TaskQueues, 'add' | 'remove'>;
  readonly records: Pick<TaskRecords, 'ended'>;
  readonly changes: Pick<Changes, 'onChange'>;
  /** Whether no other process ever ends tasks. */
  readonly isAlone?: boolean | undefined;
  readonly dispatcher: Pick<Dispatcher, 'wake'>;
  /** Absent: the leader looks at every task of this process when it is gone. */
  readonly marks?: Pick<AddedMarks, 'write'> | undefined;
  readonly instance: InstanceId;
  readonly graces: Pick<GracePeriods, 'freshMs'>;
  readonly clock: Clock;
  readonly log: Log;
  readonly mostWaiting?: number;
  readonly stopMs?: number;
}

/** A task that may be committed and is not known to be in its queue. */
interface Begun {
  /** When it was accepted. */
  readonly createdAtMs: number;
  /** The same, monotonic. */
  readonly sinceMs: number;
  /** Whether its end was written here. */
  isOver: boolean;
}

export class Queueing {
  readonly name = 'queueing';
  readonly #parts: QueueingParts;
  readonly #abort = new AbortController();
  readonly #begun = new Map<TaskId, Begun>();
  /** Committed tasks whose add was not answered yet, in the order of their commits. */
  readonly #waiting = new Map<TaskId, Waiting>();
  /** Tasks that were added and may have ended before. */
  #unchecked: Waiting[] = [];
  #bytes = 0;
  #repeating: Promise<void> | undefined;
  /** Tasks begun in all, and how many of them the last mark covers. */
  #begins = 0;
  #marked = 0;

  constructor(parts: QueueingParts) {
    this.#parts = parts;
    if (parts.isAlone !== true) return;
    parts.changes.onChange(({ taskId, rank }) => {
      const begun = this.#begun.get(taskId);
      if (begun !== undefined) begun.isOver ||= rank >= 3;
    });
  }

  start(): void {
    const { log } = this.#parts;
    const failed = (error: unknown): void => log.debug({ err: error }, 'added tasks not marked, trying again');
    void repeat(MARK_MS, this.#abort.signal, () => this.mark(), failed);
  }

  /** Tries the adds that wait until they are made or the time is over: then the leader makes them. */
  async stop(): Promise<void> {
    const { stopMs = STOP_MS, log } = this.#parts;
    const untilMs = performance.now() + stopMs;
    while (this.#waiting.size > 0 && performance.now() < untilMs) {
      await this.#sendAll();
      if (this.#waiting.size > 0 && !(await sleep(BACKOFF.baseMs, this.#abort.signal))) break;
    }
    this.#abort.abort();
    if (this.#waiting.size > 0) log.warn({ tasks: this.#waiting.size }, 'the leader queues what Redis has not taken');
    await this.mark().catch(() => undefined);
  }

  /** Number of committed tasks whose add was not answered yet. */
  get size(): number {
    return this.#waiting.size;
  }

  /** Whether another task may be committed. */
  hasRoom(): boolean {
    const { mostWaiting = MOST_WAITING } = this.#parts;
    return this.#waiting.size < mostWaiting && this.#bytes < MOST_BYTES;
  }

  /** A task is about to be committed. It ends with {@link add} or {@link drop}. */
  begin({ taskId, createdAtMs }: Pick<TaskJob, 'taskId' | 'createdAtMs'>): void {
    this.#begun.set(taskId, { createdAtMs, sinceMs: this.#parts.clock.monotonicMs(), isOver: false });
    this.#begins += 1;
  }

  /** The task is not committed, or over. */
  drop(taskId: TaskId): void {
    this.#begun.delete(taskId);
  }

  /** Adds the job of a committed task. @param onAdded - called when it is in its queue */
  add(queue: QueueName, job: TaskJob, onAdded?: () => void): void {
    const { clock, graces } = this.#parts;
    const { sinceMs = -Infinity } = this.#begun.get(job.taskId) ?? {};
    // A leader that took this process for dead meanwhile may have added the job, and it may have run.
    const isLate = clock.monotonicMs() - sinceMs > graces.freshMs;
    if (sinceMs === -Infinity) this.begin(job);
    const waiting: Waiting = { queue, job: isLate ? { ...job, isFromRow: true } : job, onAdded, isUnderWay: false };
    this.#waiting.set(job.taskId, waiting);
    this.#bytes += bytesOf(job);
    // While Redis is away, tasks stay in the order of their commits.
    if (this.#repeating === undefined) void this.#send(waiting).then((isIn) => isIn || this.#repeat());
  }

  /** Tells in Redis how far the jobs of this process have come. */
  async mark(): Promise<void> {
    const { marks, instance, clock } = this.#parts;
    if (marks === undefined || this.#marked === this.#begins) return;
    const begins = this.#begins;
    const isIdle = this.#begun.size === 0;
    let atMs = clock.nowMs();
    for (const { createdAtMs } of this.#begun.values()) atMs = Math.min(atMs, createdAtMs);
    await marks.write(instance, atMs);
    if (isIdle) this.#marked = begins;
  }

  /** Repeats the adds that wait, later each time, until none waits. */
  #repeat(): void {
    this.#repeating ??= this.#untilAdded().finally(() => {
      this.#repeating = undefined;
      // A task may have come behind the last look.
      if (this.#waiting.size > 0 && !this.#abort.signal.aborted) this.#repeat();
    });
  }

  async #untilAdded(): Promise<void> {
    for (let tries = 0; await sleep(backoffMs(tries, BACKOFF), this.#abort.signal); tries += 1) {
      const { size } = this.#waiting;
      if (await this.#sendAll()) return;
      if (this.#waiting.size < size) tries = 0;
    }
  }

  /** Sends what waits, in order, and what comes meanwhile. @returns false: some is left */
  async #sendAll(): Promise<boolean> {
    const failed = new Set<Waiting>();
    for (;;) {
      const idle = this.#waiting.values().filter((waiting) => !waiting.isUnderWay && !failed.has(waiting));
      const some = [...idle.take(TOGETHER)];
      if (some.length === 0) return failed.size === 0;
      const taken = await Promise.all(some.map((waiting) => this.#send(waiting, true)));
      // Where Redis takes nothing of a whole batch, it is away; one that fails alone holds up nobody.
      if (!taken.some(Boolean)) return false;
      for (const [at, isIn] of taken.entries()) if (!isIn) failed.add(some[at] as Waiting);
    }
  }

  /** @returns whether the job is in its queue */
  async #send(waiting: Waiting, isRepeated = false): Promise<boolean> {
    const { queues, dispatcher, log } = this.#parts;
    const { queue, job } = waiting;
    waiting.isUnderWay = true;
    try {
      await queues.add(queue, isRepeated ? { ...job, isFromRow: true } : job);
    } catch (error) {
      if (this.#repeating === undefined) log.warn({ err: error, queue }, 'a committed task is not queued yet');
      return false;
    } finally {
      waiting.isUnderWay = false;
    }
    if (!this.#waiting.delete(job.taskId)) return true;
    this.#bytes -= bytesOf(job);
    const { isOver = false } = this.#begun.get(job.taskId) ?? {};
    this.#begun.delete(job.taskId);
    if (isOver) this.#takeOut([waiting]);
    else if (!isRepeated && this.#parts.isAlone !== true) this.#check(waiting);
    dispatcher.wake(queue, job.taskId);
    waiting.onAdded?.();
    return true;
  }

  /**
   * Takes a job out again whose task was ended elsewhere between its commit and its add: whoever ended it found no job.
   * The jobs of a turn are looked at together. The fetch of a repeated one looks by itself.
   */
  #check(waiting: Waiting): void {
    if (this.#unchecked.push(waiting) > 1) return;
    setImmediate(() => {
      const some = this.#unchecked;
      this.#unchecked = [];
      this.#parts.records.ended(some.map(({ job }) => job.taskId)).then(
        (ended) => this.#takeOut(some.filter(({ job }) => ended.includes(job.taskId))),
        (error: unknown) => {
          this.#parts.log.info({ err: error }, 'nobody has looked whether a task ended before it was queued');
        },
      );
    });
  }

  #takeOut(ended: readonly Waiting[]): void {
    for (const { queue, job } of ended) {
      this.#parts.queues.remove(queue, job.taskId).catch((error: unknown) => {
        this.#parts.log.info({ err: error, taskId: job.taskId }, 'the job of a task that ended may be in its queue');
      });
    }
  }
}

/** Bytes that a waiting job keeps in memory, about. */
const bytesOf = ({ input = '' }: TaskJob): number => input.length;
