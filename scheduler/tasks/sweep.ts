// The leader's slow look at tasks whose row is not final and has not changed for a while: jobs whose lock ran out come back, a synchronous task whose caller's replica is gone ends, a task
// whose job vanished ends. Nothing here is on the way of a task that goes well.
import type { InstanceId } from '#shared/domain/ids.ts';
import type { Clock } from '#shared/clock.ts';
import { sleep } from '#shared/backoff.ts';
import type { Log } from '#shared/log.ts';
import type { QueueName } from '#shared/domain/ids.ts';
import type { Db } from '../store/db.ts';
import type { TaskRow } from '../store/queries/tasks.ts';
import { listOpenTasks } from '../store/queries/tasks.ts';
import type { TaskQueues } from '../queues/task-queues.ts';
import type { TaskRecord, TaskRecords } from './records.ts';
import { RANK } from './state.ts';

const EVERY_MS = 15_000;
const UNCHANGED_MS = 10_000;
/** A job may be on its way between two places for a moment; a row this old without a job has lost it. */
const GONE_AFTER_MS = 60_000;
const BATCH = 500;
/** No stall scan this soon after a start: agents report and locks are renewed first. */
const SILENT_MS = 120_000;

export interface TaskSweepParts {
  readonly db: Db;
  readonly queues: TaskQueues;
  readonly records: TaskRecords;
  readonly clock: Clock;
  readonly log: Log;
  readonly isLeader: () => boolean;
  readonly isAlive: (replica: InstanceId) => boolean;
  /** Jobs came back to that queue. */
  readonly onReturned: (queue: QueueName) => void;
}

export class TaskSweep {
  readonly name = 'task sweep';
  readonly #abort = new AbortController();
  readonly #parts: TaskSweepParts;
  #startedAtMs = 0;

  constructor(parts: TaskSweepParts) {
    this.#parts = parts;
  }

  start(): void {
    this.#startedAtMs = this.#parts.clock.monotonicMs();
    void this.#loop();
  }

  stop(): void {
    this.#abort.abort();
  }

  async #loop(): Promise<void> {
    while (await sleep(EVERY_MS, this.#abort.signal)) {
      if (!this.#parts.isLeader()) continue;
      try {
        await this.round();
      } catch (error) {
        this.#parts.log.warn({ err: error }, 'task sweep failed, trying again later');
      }
    }
  }

  async round(): Promise<void> {
    const { db, clock, queues, onReturned } = this.#parts;
    const open = await listOpenTasks(db, { unchangedSinceMs: clock.nowMs() - UNCHANGED_MS, limit: BATCH });
    for (const row of open) await this.#look(row);
    if (clock.monotonicMs() - this.#startedAtMs < SILENT_MS) return;
    for (const queue of new Set(open.map((row) => row.queue))) {
      const returned = await queues.scanStalled(queue);
      if (returned.length > 0) onReturned(queue);
    }
  }

  async #look(row: TaskRow): Promise<void> {
    const { queues, records, clock } = this.#parts;
    // The row may lag behind what Redis knows already.
    const record = await records.read(row.taskId);
    if (record === undefined || record.rank >= 3) return;
    const job = await queues.read(row.queue, row.taskId);
    if (job === undefined) {
      if (clock.nowMs() - row.createdAtMs < GONE_AFTER_MS) return;
      await this.#finish(record, 'job_lost');
      return;
    }
    if (!job.sync || this.#parts.isAlive(job.replica)) return;
    if (await queues.remove(row.queue, row.taskId)) await this.#finish(record, 'caller_gone');
  }

  async #finish(record: TaskRecord, failureReason: string): Promise<void> {
    const status = failureReason === 'caller_gone' ? 'CANCELLED' : 'ERROR';
    await this.#parts.records.append({
      ...record,
      status,
      rank: RANK[status] as TaskRecord['rank'],
      endedAtMs: this.#parts.clock.nowMs(),
      failureReason,
    });
    this.#parts.log.info({ taskId: record.taskId, status, failureReason }, 'abandoned task ended');
  }
}
