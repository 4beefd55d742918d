// All changes of tasks' statuses. The table in state.ts is asked first; a transition that it does
// not list is refused, counted and logged. Every start, end, retry or return of a task passes here.
// The record's own guard (mayReplace) then orders the reports of several processes on one task.
import { withDeadline } from '#shared/backoff.ts';
import type { TaskId } from '#shared/domain/ids.ts';
import type { TaskStatus } from '#shared/domain/status.ts';
import { Listeners } from '#shared/listeners.ts';
import type { Log } from '#shared/log.ts';
import type { TaskMetrics } from '../metrics.ts';
import type { TaskRecord } from './task-record.ts';
import type { TaskRecords } from './records.ts';
import type { TaskEvent } from '../state.ts';
import { moveOf } from '../state.ts';

/** Longest wait for a record to be written; longer than it takes until one is spilled. */
const WAIT_MS = 5_000;

export class Changes {
  readonly #records: Pick<TaskRecords, 'append' | 'safe'>;
  readonly #metrics: Pick<TaskMetrics, 'refused'>;
  readonly #log: Log;
  readonly #changed = new Listeners<[TaskRecord]>();

  constructor(parts: {
    readonly records: Pick<TaskRecords, 'append' | 'safe'>;
    readonly metrics: Pick<TaskMetrics, 'refused'>;
    readonly log: Log;
  }) {
    this.#records = parts.records;
    this.#metrics = parts.metrics;
    this.#log = parts.log;
  }

  /** Told of each new record of a task. */
  onChange(listener: (record: TaskRecord) => void): void {
    this.#changed.add(listener);
  }

  /** Records a new task. */
  accept(record: TaskRecord): void {
    this.#write(record);
  }

  /**
   * Writes the task's new record, if the table allows all the events in turn.
   * @param from - its status as far as is known here; CLAIMED counts as PENDING
   * @returns false: refused, nothing is written
   */
  apply(from: TaskStatus, events: TaskEvent | readonly TaskEvent[], record: TaskRecord): boolean {
    if (!this.#mayBecome(from, typeof events === 'string' ? [events] : events, record)) return false;
    this.#write(record);
    return true;
  }

  /**
   * Like {@link apply}; the record goes out at once. Resolves when the database or the spill has it, or, while neither
   * takes it, after a moment: whoever waits for the change goes on all the same.
   */
  async applied(from: TaskStatus, events: TaskEvent | readonly TaskEvent[], record: TaskRecord): Promise<boolean> {
    if (!this.#mayBecome(from, typeof events === 'string' ? [events] : events, record)) return false;
    const late = (): Error => new Error('no store takes the record');
    await withDeadline(this.#records.append(record, true), WAIT_MS, late).catch((error: unknown) => {
      this.#log.error({ err: error, taskId: record.taskId }, 'a change of a task takes effect before it is written');
    });
    this.#changed.tell(record);
    return true;
  }

  /**
   * Resolves when the database or the spill has the task's records, as far as this process has some.
   * @returns false: this process ends without that
   */
  safe(taskId: TaskId): Promise<boolean> {
    return this.#records.safe(taskId);
  }

  /**
   * Checks the events against the table, one after the other; refusals are counted and logged.
   * @throws TypeError when the record's status is not the one they lead to
   */
  #mayBecome(from: TaskStatus, events: readonly TaskEvent[], record: TaskRecord): boolean {
    let status: TaskStatus = from;
    for (const event of events) {
      const next = moveOf(status, event);
      if (next === undefined) return this.#refuse(status, event, record);
      status = next;
    }
    if (status === record.status) return true;
    throw new TypeError(`task ${record.taskId} cannot be recorded as ${record.status}: it is ${status}`);
  }

  #write(record: TaskRecord): void {
    void this.#records.append(record);
    this.#changed.tell(record);
  }

  #refuse(from: TaskStatus, event: TaskEvent, record: TaskRecord): false {
    this.#metrics.refused.inc({ from, event });
    this.#log.warn({ taskId: record.taskId, from, event, attempt: record.attempt }, 'a change of a task was refused');
    return false;
  }
}
