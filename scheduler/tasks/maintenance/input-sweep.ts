// Sweep of inputs above 64 KiB, which lie in the object store under the id of their task and go when
// it ends, or with its kept input. In rare cases no process knows of an input any more.
// Examples: an external runner ended the task, its job was lost, or the store did not answer when the
// input was to be dropped. Now and then
// the leader removes inputs that are older than the grace and whose task has ended or was never known.
import type { TaskId } from '#shared/domain/ids.ts';
import { isTerminalTask } from '#shared/domain/status.ts';
import type { Clock } from '#shared/clock.ts';
import type { Log } from '#shared/log.ts';
import type { TaskRecords } from '../records/records.ts';

export interface InputSweepParts {
  /** All inputs in the store, with the time each was written; in any order. */
  readonly inputs: () => AsyncIterable<{ readonly taskId: TaskId; readonly writtenAtMs: number }>;
  readonly remove: (taskId: TaskId) => Promise<void>;
  /** Whether the input outlives its task. */
  readonly isKept: (taskId: TaskId) => Promise<boolean>;
  /** Reads Redis first, then the database; undefined: unknown. */
  readonly records: Pick<TaskRecords, 'read'>;
  readonly clock: Clock;
  readonly log: Log;
  readonly graceMs?: number;
}

/** Milliseconds an input is spared: far beyond the time between its write and the record of its task. */
const GRACE_MS = 3600_000;

export class InputSweep {
  readonly #parts: InputSweepParts;

  constructor(parts: InputSweepParts) {
    this.#parts = parts;
  }

  /** Runs one round. @returns how many inputs were removed @throws when a store does not answer */
  async round(signal?: AbortSignal): Promise<number> {
    const { inputs, remove, isKept, records, clock, log } = this.#parts;
    const writtenBeforeMs = clock.nowMs() - (this.#parts.graceMs ?? GRACE_MS);
    let removed = 0;
    for await (const { taskId, writtenAtMs } of inputs()) {
      if (signal?.aborted === true) break;
      if (writtenAtMs > writtenBeforeMs) continue;
      const record = await records.read(taskId);
      if (record !== undefined && (!isTerminalTask(record.status) || (record.endedAtMs ?? 0) > writtenBeforeMs))
        continue;
      if (await isKept(taskId)) continue;
      await remove(taskId);
      removed += 1;
    }
    if (removed > 0) log.info({ removed }, 'inputs of tasks that are over were removed');
    return removed;
  }
}
