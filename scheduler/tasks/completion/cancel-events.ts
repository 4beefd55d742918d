// Cancels of tasks that a container had, as events: somebody asked, and the attempt was ended. The task's own change is
// an event of its record. They are written by themselves, behind the caller: a cancel never waits for the database. At
// most 32 are under way; further ones are dropped and logged.
import type { Clock } from '#shared/clock.ts';
import type { Log } from '#shared/log.ts';
import type { Db } from '../../stores/store/db.ts';
import { containerFact } from '../../workspaces/events/container-fact.ts';
import type { EventWriter } from '../../workspaces/events/writer.ts';
import type { TaskRecord } from '../records/task-record.ts';

export interface CancelEventsParts {
  readonly db: Db;
  readonly events: Pick<EventWriter, 'transaction'>;
  readonly clock: Pick<Clock, 'nowMs'>;
  readonly log: Log;
}

const MOST_UNDER_WAY = 32;

export class CancelEvents {
  readonly #parts: CancelEventsParts;
  #underWay = 0;

  constructor(parts: CancelEventsParts) {
    this.#parts = parts;
  }

  /**
   * Tells that a task was cancelled. Never throws.
   * @param record - the task before; without a container nothing is told
   */
  cancelled(record: TaskRecord, requestedAtMs: number): void {
    const { log } = this.#parts;
    const { taskId } = record;
    if (record.containerId === null) return;
    if (this.#underWay >= MOST_UNDER_WAY) {
      log.warn({ taskId }, 'a cancel is not told: too many wait for the database');
      return;
    }
    this.#underWay += 1;
    this.#write(record, requestedAtMs)
      .catch((error: unknown) => log.warn({ err: error, taskId }, 'a cancel is not told'))
      .finally(() => (this.#underWay -= 1));
  }

  async #write(record: TaskRecord, requestedAtMs: number): Promise<void> {
    const { db, events, clock } = this.#parts;
    const { taskId, containerId, workspaceId, stubId, deploymentId, attempt } = record;
    if (containerId === null) return;
    const appliedAtMs = Math.max(requestedAtMs, clock.nowMs());
    const subject = { id: containerId, workspaceId, stubId, deploymentId, machineId: null };
    const told = { reason: 'USER', taskId, attrs: { attempt: String(attempt) } };
    await events.transaction(db, (_tx, emit) => {
      emit(containerFact(subject, undefined, 'task.cancel_requested', requestedAtMs, told));
      emit(containerFact(subject, undefined, 'task.cancel_applied', appliedAtMs, told));
      return Promise.resolve();
    });
  }
}
