import type { QueueName } from '#shared/domain/ids.ts';
import type { InputState } from '../../domain/task-inputs.ts';
import type { TaskKind, TaskStatus } from '#shared/domain/status.ts';
import { isTerminalTask } from '#shared/domain/status.ts';
import { errorLineOf, errorOf } from '#shared/domain/task-failures.ts';
import { MOST_PAST, encodeTaskJob } from '../../stores/queues/jobs.ts';
import type { PastAttempt, TaskJob } from '../../stores/queues/jobs.ts';
import type { AcceptedTask, TaskRow } from '../../stores/store/queries/tasks.ts';
import type { Attempt } from '../dispatch/attempts.ts';
import type { RecordRank, TaskRecord } from './task-record.ts';
import { RANK } from '../state.ts';

/** JSON text of `{"error": text}`. */
export function errorBody(text: string): string {
  return JSON.stringify({ error: text });
}

/** Record of a job in that status. */
export function recordOf(job: TaskJob, queue: QueueName, status: TaskStatus, attempt: number): TaskRecord {
  return {
    taskId: job.taskId,
    workspaceId: job.workspaceId,
    stubId: job.stubId,
    deploymentId: job.deploymentId,
    queue,
    kind: job.kind,
    sync: job.sync,
    status,
    attempt,
    rank: RANK[status] as RecordRank,
    containerId: null,
    failureReason: '',
    createdAtMs: job.createdAtMs,
    startedAtMs: null,
    endedAtMs: isTerminalTask(status) ? job.createdAtMs : null,
    durationMs: null,
    deadlineMs: job.deadlineMs,
    ...(job.sync ? { replica: job.replica } : {}),
    ...(job.past === undefined ? {} : { past: job.past }),
    ...(job.callbackUrl === undefined ? {} : { callbackUrl: job.callbackUrl }),
    ...(job.putBy === undefined ? {} : { putBy: job.putBy }),
    ...(job.calledBy === undefined ? {} : { calledBy: job.calledBy }),
    // The record of a synchronous call says it at its end, where it failed.
    ...(job.sync || job.forgetsInput === undefined ? {} : { inputState: job.forgetsInput }),
    ...(job.rerunOf === undefined ? {} : { rerunOf: job.rerunOf }),
    ...(job.redrivenFrom === undefined ? {} : { redrivenFrom: job.redrivenFrom }),
  };
}

/** Whether the input of a task outlives it, if the task keeps one. */
export const inputStateOf = (job: TaskJob): InputState =>
  job.stream === true ? 'streamed' : (job.forgetsInput ?? 'kept');

export const inputBytesOf = (job: TaskJob): number => job.inputBytes ?? Buffer.byteLength(job.input ?? '');

/** Record of an asynchronous task that is accepted now. */
export const acceptedRecordOf = (job: TaskJob, queue: QueueName): TaskRecord => ({
  ...recordOf(job, queue, 'PENDING', 0),
  inputState: inputStateOf(job),
  inputBytes: inputBytesOf(job),
});

/** Row of an asynchronous task that is accepted now. */
export const acceptedTaskOf = (job: TaskJob, queue: QueueName): AcceptedTask => ({
  record: acceptedRecordOf(job, queue),
  job: encodeTaskJob(job),
  owner: job.replica,
});

/** An attempt that did not end its task. @param result - text that it ended with; absent: none */
export function pastOf(attempt: Attempt, outcome: string, nowMs: number, result?: string): PastAttempt {
  const error = errorLineOf(errorOf(result), outcome);
  return {
    attempt: attempt.number,
    containerId: attempt.containerId,
    machineId: attempt.machineId,
    startedAtMs: Math.round(attempt.startedAtMs ?? attempt.sentAtMs),
    endedAtMs: Math.round(nowMs),
    outcome: outcome.slice(0, 128),
    ...(error === '' ? {} : { error }),
  };
}

/** Budgets of a task with one more attempt that did not end it. */
export const withPast = (budget: TaskJob, one: PastAttempt): TaskJob => ({
  ...budget,
  past: [...(budget.past ?? []), one].slice(-MOST_PAST),
});

/** Record of a job after its end. */
export function finalOf(
  job: TaskJob,
  queue: QueueName,
  attempt: number,
  status: TaskStatus,
  endedAtMs: number,
  extra: Partial<TaskRecord>,
): TaskRecord {
  return { ...recordOf(job, queue, status, attempt), endedAtMs, ...extra };
}

/** Record from a row of the database. */
export function recordOfRow(row: TaskRow): TaskRecord {
  const {
    result,
    resultObjectId,
    callbackUrl,
    putBy,
    calledBy,
    containerHostname,
    past,
    inputState,
    inputBytes,
    rerunOf,
    redrivenFrom,
    replica,
  } = row;
  return {
    taskId: row.taskId,
    workspaceId: row.workspaceId,
    stubId: row.stubId,
    deploymentId: row.deploymentId,
    queue: row.queue,
    kind: row.kind as TaskKind,
    sync: row.sync,
    status: row.status,
    attempt: row.attempt,
    rank: row.rank as RecordRank,
    containerId: row.containerId,
    failureReason: row.failureReason,
    createdAtMs: row.createdAtMs,
    startedAtMs: row.startedAtMs,
    endedAtMs: row.endedAtMs,
    durationMs: row.durationMs,
    deadlineMs: row.deadlineMs ?? 0,
    ...(result === undefined ? {} : { result }),
    ...(resultObjectId === undefined ? {} : { resultObjectId }),
    ...(callbackUrl === undefined ? {} : { callbackUrl }),
    ...(putBy === undefined ? {} : { putBy }),
    ...(calledBy === undefined ? {} : { calledBy }),
    ...(containerHostname === undefined ? {} : { containerHostname }),
    ...(past === undefined ? {} : { past }),
    ...(inputState === undefined ? {} : { inputState }),
    ...(inputBytes === undefined ? {} : { inputBytes }),
    ...(rerunOf === undefined ? {} : { rerunOf }),
    ...(redrivenFrom === undefined ? {} : { redrivenFrom }),
    ...(replica === undefined ? {} : { replica }),
  };
}
