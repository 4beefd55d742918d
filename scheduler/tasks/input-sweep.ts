// Inputs above 64 KiB lie in the object store under the id of their task and go when it ends. In rare cases nobody is left who knows of them: a runner that is not ours ended the task, its job was lost, the
// store did not answer when it was to be refused. The leader looks for them now and then: an input older than the grace whose task has ended or was never known goes.
import type { TaskId } from '#shared/domain/ids.ts';
import { repeat } from '#shared/backoff.ts';
import { isTerminalTask } from '#shared/domain/status.ts';
import type { Clock } from '#shared/clock.ts';
import type { Log } from '#shared/log.ts';
import type { TaskRecords } from './records.ts';

export interface InputSweepParts {
  /** Every input that is kept, with the time it was written; in any order. */
  readonly inputs: () => AsyncIterable<{ readonly taskId: TaskId; readonly writtenAtMs: number }>;
  readonly remove: (taskId: TaskId) => Promise<void>;
  /** Redis first, then the database; undefined: unknown. */
  readonly records: Pick<TaskRecords, 'read'>;
  readonly clock: Clock;
  readonly log: Log;
  readonly isLeader: () => boolean;
  readonly graceMs?: number;
}

const EVERY_MS = 3600_000;
/** Far beyond the time between an input being written and its task being recorded. */
const GRACE_MS = 3600_000;

export class InputSweep {
  readonly name = 'input sweep';
  readonly #parts: InputSweepParts;
  readonly #abort = new AbortController();

  constructor(parts: InputSweepParts) {
    this.#parts = parts;
  }

  start(): void {
    const { isLeader, log } = this.#parts;
    const round = (): unknown => isLeader() && this.round();
    void repeat(EVERY_MS, this.#abort.signal, round, (error) =>
      log.warn({ err: error }, 'inputs without a task not looked for, trying again in an hour'),
    );
  }

  stop(): void {
    this.#abort.abort();
  }

  /** @returns how many inputs went @throws when a store does not answer */
  async round(): Promise<number> {
    const { inputs, remove, records, clock, log } = this.#parts;
    const writtenBeforeMs = clock.nowMs() - (this.#parts.graceMs ?? GRACE_MS);
    let removed = 0;
    for await (const { taskId, writtenAtMs } of inputs()) {
      if (this.#abort.signal.aborted) break;
      if (writtenAtMs > writtenBeforeMs) continue;
      const record = await records.read(taskId);
      if (record !== undefined && !isTerminalTask(record.status)) continue;
      await remove(taskId);
      removed += 1;
    }
    if (removed > 0) log.info({ removed }, 'inputs of tasks that are over were removed');
    return removed;
  }
}
