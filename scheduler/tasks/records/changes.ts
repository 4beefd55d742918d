// All changes of tasks' statuses. The table in state.ts is asked first; a transition that it does
// not list is refused, counted and logged. Every start, end, retry or return of a task passes here.
// The record's own guard (mayReplace) then orders the reports of several processes on one task.
import type { TaskStatus } from '#shared/domain/status.ts';
import { Listeners } from '#shared/listeners.ts';
import type { Log } from '#shared/log.ts';
import type { TaskMetrics } from '../metrics.ts';
import type { TaskRecord } from './task-record.ts';
import type { TaskRecords } from './records.ts';
import type { TaskEvent } from '../state.ts';
import { moveOf } from '../state.ts';

export class Changes {
  readonly #records: Pick<TaskRecords, 'append' | 'appendSoon'>;
  readonly #metrics: Pick<TaskMetrics, 'refused'>;
  readonly #log: Log;
  readonly #changed = new Listeners<[TaskRecord]>();

  constructor(parts: {
    readonly records: Pick<TaskRecords, 'append' | 'appendSoon'>;
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

  /**
   * Records a new task.
   * @param soon - nobody knows its id yet: a newer record may replace this one before it is written
   */
  accept(record: TaskRecord, soon: boolean): void {
    this.#write(record, soon);
  }

  /**
   * Writes the task's new record, if the table allows all the events in turn.
   * @param from - its status as far as is known here; CLAIMED counts as PENDING
   * @param soon - nobody knows its id yet: a newer record may replace this one before it is written
   * @returns false: refused, nothing was written
   */
  apply(from: TaskStatus, events: TaskEvent | readonly TaskEvent[], record: TaskRecord, soon = false): boolean {
    if (!this.#mayBecome(from, typeof events === 'string' ? [events] : events, record)) return false;
    this.#write(record, soon);
    return true;
  }

  /** Like {@link apply}; resolves when Redis has the record or keeps it for another try. */
  async applied(from: TaskStatus, event: TaskEvent, record: TaskRecord): Promise<boolean> {
    if (!this.#mayBecome(from, [event], record)) return false;
    await this.#records.append(record);
    this.#changed.tell(record);
    return true;
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

  #write(record: TaskRecord, soon: boolean): void {
    if (soon) this.#records.appendSoon(record);
    else void this.#records.append(record);
    this.#changed.tell(record);
  }

  #refuse(from: TaskStatus, event: TaskEvent, record: TaskRecord): false {
    this.#metrics.refused.inc({ from, event });
    this.#log.warn({ taskId: record.taskId, from, event, attempt: record.attempt }, 'a change of a task was refused');
    return false;
  }
}
