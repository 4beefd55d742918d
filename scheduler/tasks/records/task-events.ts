// The events of tasks, made of the records on their way to the database: one for each change of a task's status, in
// order. Records that never reached the stream are made good: a later record shows that the task was created, and that
// it ran. Ids follow from the change, so that a change told again is known by its id. Pure.
import { hash } from 'node:crypto';
import { timestampOf } from '#shared/api/fields.ts';
import type { TaskStatus } from '#shared/domain/status.ts';
import { isTerminalTask } from '#shared/domain/status.ts';
import type { NewEvent } from '../../stores/store/queries/events.ts';
import type { TaskRecord } from './records.ts';

/** A record as the stream has it. */
export interface StreamedRecord {
  readonly record: TaskRecord;
  /** When Redis took it. */
  readonly atMs: number;
}

/** A change of a task's status. */
interface Change {
  readonly record: TaskRecord;
  readonly times: Times;
  readonly status: TaskStatus;
  readonly attempt: number;
  readonly rank: number;
  readonly atMs: number;
}

/** Times of a record as its events have them; made once, because that costs more than all else here. */
interface Times {
  readonly createdAt: string;
  readonly startedAt: string | null;
  readonly endedAt: string | null;
}

/** Most events of a record: its own, and the two that it may show to be missing. */
export const MOST_EVENTS_OF_RECORD = 3;

/**
 * Events of a batch of records, in the order of the stream. An event that is written already may be among them.
 * @param streamed - every entry of the batch: the events are not of a task's newest record alone
 */
export function taskEvents(streamed: readonly StreamedRecord[]): readonly NewEvent[] {
  const events: NewEvent[] = [];
  const seen = new Set<string>();
  for (const { record, atMs } of streamed) {
    for (const change of changesOf(record, atMs)) {
      const key = `${record.taskId}:${change.attempt}:${change.rank}:${change.status}`;
      if (seen.has(key)) continue;
      seen.add(key);
      events.push(eventOf(change, key));
    }
  }
  return events;
}

/** The changes that a record shows, the earliest first. */
function changesOf(record: TaskRecord, atMs: number): readonly Change[] {
  const { status, attempt, rank, createdAtMs, startedAtMs, endedAtMs } = record;
  const times: Times = {
    createdAt: timestampOf(createdAtMs),
    startedAt: timestampOf(startedAtMs),
    endedAt: timestampOf(endedAtMs),
  };
  const created: Change = { record, times, status: 'PENDING', attempt: 0, rank: 0, atMs: createdAtMs };
  if (attempt === 0 && rank === 0) return [created];
  const isOver = isTerminalTask(status);
  const hasRun = status === 'RETRY' || (isOver && startedAtMs !== null && attempt > 0);
  const ran: Change = { record, times, status: 'RUNNING', attempt, rank: 1, atMs: startedAtMs ?? atMs };
  const ownMs = status === 'RUNNING' ? (startedAtMs ?? atMs) : isOver ? (endedAtMs ?? atMs) : atMs;
  return [created, ...(hasRun ? [ran] : []), { record, times, status, attempt, rank, atMs: ownMs }];
}

function eventOf({ record, times, status, attempt, rank, atMs }: Change, key: string): NewEvent {
  const { taskId, workspaceId, stubId, deploymentId } = record;
  const isCreated = attempt === 0 && rank === 0;
  const hasRun = rank > 0;
  const containerId = hasRun ? record.containerId : null;
  const isOver = isTerminalTask(status);
  return {
    workspaceId,
    id: idOf(record.createdAtMs, key),
    type: isCreated ? 'task.created' : 'task.updated',
    atMs,
    taskId,
    stubId,
    ...(deploymentId === null ? {} : { deploymentId }),
    ...(containerId === null ? {} : { containerId }),
    // Names and versions come from the rows of stub and deployment, in the statement that writes the event.
    isOfTask: true,
    data: {
      id: taskId,
      status,
      attempt,
      ...(record.failureReason === '' || status !== record.status ? {} : { failure_reason: record.failureReason }),
      container_id: containerId ?? '',
      started_at: hasRun ? times.startedAt : null,
      ended_at: isOver ? times.endedAt : null,
      workspace_id: workspaceId,
      external_workspace_id: record.calledBy ?? null,
      stub_id: stubId,
      created_at: times.createdAt,
      updated_at: isCreated ? times.createdAt : timestampOf(atMs),
      ...(deploymentId === null ? {} : { deployment_id: deploymentId }),
    },
  };
}

/**
 * Id of a change: four bytes of the time in seconds, eight of a hash. The time is the task's creation: the start of an
 * attempt is known more exactly in its last record than in its first, and the id must be the same from both.
 */
function idOf(createdAtMs: number, key: string): string {
  const seconds = (Math.floor(createdAtMs / 1000) >>> 0).toString(16).padStart(8, '0');
  return `${seconds}${hash('sha256', key, 'hex').slice(0, 16)}`;
}
