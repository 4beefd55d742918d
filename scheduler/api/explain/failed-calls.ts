// Failed calls in explanations: the error of one task, and the recent failures of a deployment. Pure.
import { timestampOf } from '#shared/api/fields.ts';
import type { ExplainedCalls } from '#shared/api/explain.ts';
import { shellWord } from '#shared/shell-word.ts';
import { cureOfTask, isToldByContainer } from '#shared/domain/task-failures.ts';
import type { RecentCalls } from '../../stores/store/queries/recent-calls.ts';
import { errorLine } from '../../tasks/records/attempts-of.ts';
import type { TaskRecord } from '../../tasks/records/task-record.ts';

/** The command that shows what a task wrote, or the container that failed it. */
export function failureLogs({ taskId, containerId, failureReason }: TaskRecord): string {
  return containerId !== null && isToldByContainer(failureReason)
    ? `\`longshore logs --container ${containerId}\` shows what its container wrote`
    : `\`longshore logs --task ${taskId}\` shows what it wrote`;
}

/** The command that shows more of a failed task: one that no container began wrote nothing. */
const lookOf = (record: TaskRecord, name: string): string =>
  record.containerId === null ? unbegunStep(name) : failureLogs(record);

export const unbegunStep = (name: string): string =>
  `no container began it: \`longshore explain ${shellWord(name)}\` says whether its containers have a place now`;

/** Recent calls of a deployment, and the newest one that failed with its result. */
export interface CallsThatEnded {
  readonly calls: RecentCalls;
  /** Undefined: none failed, or its record is gone. */
  readonly last: { readonly record: TaskRecord; readonly result: string | undefined } | undefined;
}

export interface FailedCallTexts {
  readonly section: ExplainedCalls;
  /** Whether the newest call failed that had input as the handler takes it. */
  readonly isFailing: boolean;
  /** `2 of the last 20 calls failed`; empty: none failed. */
  readonly count: string;
  readonly details: readonly string[];
  readonly steps: readonly string[];
}

/** @param name - the deployment's, as commands take it */
export function failedCallTexts({ calls, last }: CallsThatEnded, name: string): FailedCallTexts {
  const { ended, failed } = calls;
  const section: ExplainedCalls = {
    ended,
    failed,
    failing_since: timestampOf(calls.failingSinceMs),
    last_failed: calls.last?.taskId ?? '',
    last_failed_at: timestampOf(calls.last?.endedAtMs),
    last_reason: last?.record.failureReason ?? '',
    last_error: last === undefined ? '' : errorLine(last.record, last.result),
  };
  if (calls.last === undefined) return { section, isFailing: false, count: '', details: [], steps: [] };
  const count = countText(ended, failed);
  const reason = section.last_reason === '' ? '' : ` (${section.last_reason})`;
  const error = section.last_error === '' ? '' : `: ${section.last_error}`;
  const cure = last === undefined ? undefined : cureOfTask(last.record.failureReason, last.result);
  return {
    section,
    isFailing: calls.failingSinceMs !== null,
    count,
    details: [
      failed === 1 ? count : `${count}, the first of them at ${timestampOf(calls.firstFailedAtMs)}`,
      `task ${calls.last.taskId} failed at ${section.last_failed_at}${reason}${error}`,
    ],
    steps: [
      ...(cure === undefined ? [] : [cure]),
      ...(last === undefined ? [] : [lookOf(last.record, name)]),
      `\`longshore task list --deployment ${shellWord(name)} --status ERROR,TIMEOUT,EXPIRED\` lists calls that failed`,
    ],
  };
}

function countText(ended: number, failed: number): string {
  if (ended === 1) return 'the last call failed';
  return failed === ended ? `the last ${ended} calls failed` : `${failed} of the last ${ended} calls failed`;
}
