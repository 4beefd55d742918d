// Results of attempts that were counted as over. A COMPLETE replaces the other final status of its
// task when it comes from the last attempt and none followed; any other result changes nothing.
import type { MachineId } from '#shared/domain/ids.ts';
import { attemptHashOf, sha256Hex } from '#shared/domain/ids.ts';
import { isTerminalTask } from '#shared/domain/status.ts';
import type { Clock } from '#shared/clock.ts';
import type { Log } from '#shared/log.ts';
import type { LastAttempts } from '../dispatch/last-attempts.ts';
import type { AttemptResult } from '../dispatch/attempts.ts';
import type { TaskBodies } from '../dispatch/bodies.ts';
import type { Changes } from '../records/changes.ts';
import type { TaskMetrics } from '../metrics.ts';
import type { TaskRecords } from '../records/records.ts';
import { resultTextOf } from './result-text.ts';
import { RANK } from '../state.ts';

export interface LateParts {
  readonly lastAttempts: Pick<LastAttempts, 'read' | 'drop'>;
  readonly records: Pick<TaskRecords, 'read'>;
  readonly changes: Pick<Changes, 'applied' | 'safe'>;
  readonly bodies: Pick<TaskBodies, 'storeResult'>;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Pick<TaskMetrics, 'late'>;
}

export class LateResults {
  readonly #parts: LateParts;

  constructor(parts: LateParts) {
    this.#parts = parts;
  }

  /**
   * Takes the result of an attempt that this replica does not have.
   * @returns false: not written; the agent keeps the result
   * @throws when Redis or the object store does not answer: the agent keeps the result, too
   */
  async take(machineId: MachineId, result: AttemptResult): Promise<boolean> {
    if (result.outcome !== 'ok' || result.body === undefined) return true;
    const { lastAttempts, changes, metrics, log } = this.#parts;
    const last = await lastAttempts.read(result.taskId);
    if (last === undefined || last.machineId !== machineId) return true;
    if (attemptHashOf(last.lock) !== sha256Hex(result.token)) return true;
    const applied = await this.#apply(result, result.body, last.attempt);
    if (applied && !(await changes.safe(result.taskId))) return false;
    metrics.late.inc({ result: applied ? 'applied' : 'ignored' });
    log.info({ taskId: result.taskId, attempt: last.attempt, applied }, 'a result came after its task had ended');
    if (applied) await lastAttempts.drop(result.taskId);
    return true;
  }

  async #apply(result: AttemptResult, body: Buffer, attempt: number): Promise<boolean> {
    const { records, changes, bodies, clock } = this.#parts;
    const record = await records.read(result.taskId);
    // The task has not ended: another attempt has followed, or will.
    if (record === undefined || !isTerminalTask(record.status) || record.attempt > attempt) return false;
    if (record.status === 'COMPLETE') return false;
    const { result: _text, resultObjectId: _object, ...rest } = record;
    const stored = await bodies.storeResult(resultTextOf(body));
    return await changes.applied(record.status, 'succeed', {
      ...rest,
      status: 'COMPLETE',
      attempt,
      rank: RANK.COMPLETE as 4,
      containerId: result.containerId,
      failureReason: '',
      endedAtMs: clock.nowMs(),
      durationMs: result.durationMs,
      ...stored,
    });
  }
}
