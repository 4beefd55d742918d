// Deadlines of waiting tasks, in a heap on the leader. An asynchronous task that no container has at its
// deadline is EXPIRED, even if its queue is never fetched from. A running task is left alone, and looked
// at again when it comes back. A synchronous task past its wait limit, which its caller's replica did
// not end, is TIMEOUT. The heap holds the tasks due soon, and is read from the rows again and again.
import type { QueueName, TaskId } from '#shared/domain/ids.ts';
import type { Clock } from '#shared/clock.ts';
import { sleep } from '#shared/backoff.ts';
import type { Log } from '#shared/log.ts';
import type { TaskQueues } from '../../stores/queues/task-queues.ts';
import { EXPIRED, WAIT_LIMIT } from '../../domain/endings.ts';
import type { Completion } from '../completion/completion.ts';

export interface Deadline {
  readonly taskId: TaskId;
  readonly queue: QueueName;
  readonly deadlineMs: number;
}

export interface DeadlinesParts {
  /** Waiting tasks with a deadline before that time, the earliest first; at most `limit`. */
  readonly due: (beforeMs: number, limit: number) => Promise<readonly Deadline[]>;
  readonly queues: Pick<TaskQueues, 'read'>;
  readonly completion: Pick<Completion, 'takeOut'>;
  readonly clock: Clock;
  readonly log: Log;
  readonly isLeader: () => boolean;
  readonly reloadMs?: number;
}

const RELOAD_MS = 10_000;
/** Most deadlines held; more are read when these are used up. */
const MOST_HELD = 2_000;
/** Milliseconds until the next try, when a queue does not answer or a row lags. */
const AGAIN_MS = 1_000;

export class Deadlines {
  readonly name = 'deadlines';
  readonly #parts: DeadlinesParts;
  readonly #abort = new AbortController();
  readonly #held = new Map<TaskId, Deadline>();
  #timer: NodeJS.Timeout | undefined;

  constructor(parts: DeadlinesParts) {
    this.#parts = parts;
  }

  start(): void {
    void this.#loop();
  }

  stop(): void {
    this.#abort.abort();
    clearTimeout(this.#timer);
    this.#held.clear();
  }

  /** Notes a task accepted here: one with a short time to live does not wait for the next read of the rows. */
  accepted(deadline: Deadline): void {
    if (!this.#parts.isLeader() || deadline.deadlineMs > this.#parts.clock.nowMs() + this.#reloadMs * 2) return;
    if (this.#held.size >= MOST_HELD) return;
    this.#held.set(deadline.taskId, deadline);
    this.#arm();
  }

  /** Reads the rows again, for the loop, for tests, and for a new leader. */
  async reload(): Promise<void> {
    const { due, clock } = this.#parts;
    const rows = await due(clock.nowMs() + this.#reloadMs * 2, MOST_HELD);
    this.#held.clear();
    for (const row of rows) this.#held.set(row.taskId, row);
    this.#arm();
  }

  get #reloadMs(): number {
    return this.#parts.reloadMs ?? RELOAD_MS;
  }

  async #loop(): Promise<void> {
    do {
      if (!this.#parts.isLeader()) {
        clearTimeout(this.#timer);
        this.#held.clear();
        continue;
      }
      try {
        await this.reload();
      } catch (error) {
        this.#parts.log.warn({ err: error }, 'deadlines of tasks not read, trying again');
      }
    } while (await sleep(this.#reloadMs, this.#abort.signal));
  }

  #arm(atLeastMs = 0): void {
    clearTimeout(this.#timer);
    let earliestMs = Infinity;
    for (const { deadlineMs } of this.#held.values()) earliestMs = Math.min(earliestMs, deadlineMs);
    if (earliestMs === Infinity || this.#abort.signal.aborted) return;
    this.#timer = setTimeout(() => void this.#fire(), Math.max(atLeastMs, 1, earliestMs - this.#parts.clock.nowMs()));
    this.#timer.unref();
  }

  async #fire(): Promise<void> {
    const nowMs = this.#parts.clock.nowMs();
    const due = [...this.#held.values()].filter(({ deadlineMs }) => deadlineMs < nowMs);
    let failed = false;
    for (const deadline of due) {
      if (!this.#parts.isLeader()) return;
      try {
        await this.#expire(deadline);
        this.#held.delete(deadline.taskId);
      } catch (error) {
        this.#parts.log.warn({ err: error, taskId: deadline.taskId }, 'a deadline could not be carried out yet');
        failed = true;
        break;
      }
    }
    this.#arm(failed ? AGAIN_MS : 0);
  }

  async #expire({ queue, taskId }: Deadline): Promise<void> {
    const { queues, completion, log } = this.#parts;
    const job = await queues.read(queue, taskId);
    // The job is gone: its task ended, or it is between two places. The sweep finds lost ones.
    if (job === undefined) return;
    if (await completion.takeOut(queue, job, job.sync ? WAIT_LIMIT : EXPIRED)) log.info({ taskId }, 'task expired');
  }
}
