// The line in a task's log that says how the scheduler ended it. The machine tells of ends of processes and exceptions
// of handlers, where they happen. Pure.
import type { TaskRecord } from './task-record.ts';

const SAYS: Readonly<Record<string, string>> = {
  lost: 'the task was lost: its container, or the machine of it, went away',
  job_lost: 'the task was lost: its queue does not have it any more',
  poison_task: 'the task was given up: its containers ended while they ran it',
  execution_timeout: 'the task ran out of time',
  request_cancelled: 'the task was cancelled',
  replaced: 'the task was cancelled: a later call of the same key replaced it',
  caller_gone: 'the task was cancelled: its caller is gone',
  deployment_stopped: 'the task was cancelled: its deployment was stopped',
  deployment_deleted: 'the task was cancelled: its deployment was deleted',
  expired: 'the task expired before a container took it',
  result_not_stored: 'the result of the task could not be stored',
};
/** Reasons that end many tasks at once: those that no container had have nothing in any log. */
const OF_MANY: ReadonlySet<string> = new Set(['deployment_stopped', 'deployment_deleted', 'caller_gone']);

/** @returns undefined: another part tells of the end, or the task was nowhere that a log could tell of */
export function endLineOf(record: TaskRecord): string | undefined {
  const { rank, status, failureReason, attempt, sync } = record;
  const says = rank === 3 && status !== 'COMPLETE' ? SAYS[failureReason] : undefined;
  // A caller who waited has the answer.
  if (says === undefined || (attempt === 0 && (sync || OF_MANY.has(failureReason)))) return undefined;
  return `longshore: ${says} (${status})`;
}
