// The attempts of a task that containers had, from its record. Pure.
import { isTerminalTask } from '#shared/domain/status.ts';
import type { ExplainedAttempt } from '#shared/api/explain.ts';
import { timestampOf } from '#shared/api/fields.ts';
import { errorLineOf, errorOf } from '#shared/domain/task-failures.ts';
import type { TaskRecord } from './task-record.ts';

/** The error of a task that failed, as one line; empty: it has none, or did not end. */
export function errorLine({ status, failureReason }: TaskRecord, result: string | undefined): string {
  if (!isTerminalTask(status) || status === 'COMPLETE') return '';
  return errorLineOf(errorOf(result), failureReason);
}

export interface KnownAttempt {
  readonly attempt: number;
  readonly containerId: string;
  /** Empty: not known. */
  readonly machineId: string;
  readonly startedAtMs: number | null;
  readonly endedAtMs: number | null;
  /** running, complete, or why it ended. */
  readonly outcome: string;
  readonly error: string;
}

/**
 * The earlier attempts, and the last one. Those that their containers never began are left out.
 * @param past - the earlier ones, as its job or its record has them
 * @param machineId - of the last one
 */
export function attemptsOf(
  record: TaskRecord,
  result: string | undefined,
  past: TaskRecord['past'] = record.past ?? [],
  machineId = '',
): readonly KnownAttempt[] {
  const { attempt, containerId, startedAtMs, endedAtMs, status, failureReason } = record;
  const attempts = past.map((one) => ({ ...one, error: one.error ?? '' }));
  const isKnown = past.some((one) => one.attempt === attempt);
  const ended = isTerminalTask(status);
  // A task that ended while it waited may name the container that it waited for.
  if (attempt === 0 || isKnown || containerId === null || (ended && startedAtMs === null)) return attempts;
  const outcome = ended ? failureReason || status.toLowerCase() : 'running';
  return [
    ...attempts,
    { attempt, containerId, machineId, startedAtMs, endedAtMs, outcome, error: errorLine(record, result) },
  ];
}

/** An attempt as answers have it. */
export const attemptRecord = (one: KnownAttempt): ExplainedAttempt => ({
  attempt: one.attempt,
  container_id: one.containerId,
  machine_id: one.machineId,
  started_at: timestampOf(one.startedAtMs),
  ended_at: timestampOf(one.endedAtMs),
  outcome: one.outcome,
  error: one.error,
});
