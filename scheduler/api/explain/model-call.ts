// Explanation of a call of a model that is answered later: a task without a queue of its own, and without containers.
import { timestampOf } from '#shared/api/fields.ts';
import type { Explanation } from '#shared/api/explain.ts';
import { isTerminalTask } from '#shared/domain/status.ts';
import type { TaskRecord } from '../../tasks/records/task-record.ts';

export function explainModelCall(record: TaskRecord): Explanation {
  const { taskId, status } = record;
  const isOver = isTerminalTask(status);
  const deadline = timestampOf(record.deadlineMs);
  const why = record.failureReason === '' ? '' : ` (${record.failureReason})`;
  return {
    kind: 'task',
    id: taskId,
    workspace_id: record.workspaceId,
    state: status,
    since: timestampOf(record.endedAtMs ?? record.startedAtMs ?? record.createdAtMs),
    summary: `call ${taskId} of a model ${summaryOf(record, why)}`,
    waits_for: isOver ? '' : status === 'RUNNING' ? "the model's answer" : 'a scheduler and the model to have room',
    until: isOver || status === 'RUNNING' ? null : deadline,
    details: [],
    next_steps: isOver ? [`\`longshore task get ${taskId}\` shows its answer or its error`] : [],
    leader_answered: true,
    task: {
      status,
      failure_reason: record.failureReason,
      synchronous: false,
      deployment_id: '',
      stub_id: '',
      position: null,
      queue_depth: null,
      created_at: timestampOf(record.createdAtMs),
      started_at: timestampOf(record.startedAtMs),
      ended_at: timestampOf(record.endedAtMs),
      deadline,
      next_retry_at: null,
      retries_used: 0,
      retries: 0,
      losses: 0,
      attempts: [],
      containers: [],
    },
    container: null,
    deployment: null,
    scaling: null,
  };
}

function summaryOf({ status, attempt }: TaskRecord, why: string): string {
  if (isTerminalTask(status)) return `is ${status}${why}, after ${attempt === 1 ? '1 try' : `${attempt} tries`}`;
  if (status === 'RUNNING') return `runs, try ${attempt}`;
  return status === 'RETRY' ? `is tried again${why}` : 'waits';
}
