// Changes of a task's status, as a record of the task shows them, and the events that tell of them. A record that comes
// first shows that the task was created and that it ran, too. A row of the database may hold all changes of a record:
// `packed` is the data of such a row, `unpacked` are its events. Ids follow from the change, so that a change told
// again is known by its id. Pure.
import { hash } from 'node:crypto';
import { timestampOf } from '#shared/api/fields.ts';
import type { ContainerId, DeploymentId, StubId, TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import type { TaskStatus } from '#shared/domain/status.ts';
import { isTerminalTask } from '#shared/domain/status.ts';

/** Kinds of the events of tasks. */
export const TASK_EVENT_TYPES = ['task.created', 'task.updated'] as const;
/** Type of a row that holds several events of a task; no event has it. */
export const PACKED_TYPE = 'task';
/** Most events of a record: its own, and the two that it may show to be missing. */
export const MOST_EVENTS_OF_RECORD = 3;

/** Fields of a record that its events tell. */
export interface TaskFacts {
  readonly taskId: TaskId;
  readonly workspaceId: WorkspaceId;
  readonly stubId: StubId;
  readonly deploymentId: DeploymentId | null;
  readonly containerId: ContainerId | null;
  readonly calledBy?: WorkspaceId;
  readonly status: TaskStatus;
  readonly attempt: number;
  readonly rank: number;
  readonly failureReason: string;
  readonly createdAtMs: number;
  readonly startedAtMs: number | null;
  readonly endedAtMs: number | null;
}

/** A change of a task's status. */
export interface TaskChange {
  readonly status: TaskStatus;
  readonly attempt: number;
  readonly rank: number;
  readonly atMs: number;
}

/** The event of a change. */
export interface TaskChangeEvent {
  readonly id: string;
  readonly type: (typeof TASK_EVENT_TYPES)[number];
  readonly atMs: number;
  /** null: the task was in no container. */
  readonly containerId: ContainerId | null;
  readonly data: Readonly<Record<string, unknown>>;
}

/** Times of a record as its events have them; made once, because that costs more than all else here. */
interface Times {
  readonly createdAt: string;
  readonly startedAt: string | null;
  readonly endedAt: string | null;
}

/**
 * The changes that a record shows, the earliest first. The first one is always the task's creation.
 * @param atMs - when its owner noted the record
 */
export function changesOf(facts: TaskFacts, atMs: number): readonly TaskChange[] {
  const { status, attempt, rank, createdAtMs, startedAtMs, endedAtMs } = facts;
  const created: TaskChange = { status: 'PENDING', attempt: 0, rank: 0, atMs: createdAtMs };
  if (attempt === 0 && rank === 0) return [created];
  const isOver = isTerminalTask(status);
  const hasRun = status === 'RETRY' || (isOver && startedAtMs !== null && attempt > 0);
  const ran: TaskChange = { status: 'RUNNING', attempt, rank: 1, atMs: startedAtMs ?? atMs };
  const ownMs = status === 'RUNNING' ? (startedAtMs ?? atMs) : isOver ? (endedAtMs ?? atMs) : atMs;
  return [created, ...(hasRun ? [ran] : []), { status, attempt, rank, atMs: ownMs }];
}

/** Name of a change among all. */
export const keyOf = (taskId: TaskId, { attempt, rank, status }: TaskChange): string =>
  `${taskId}:${attempt}:${rank}:${status}`;

/**
 * Id of a change: four bytes of the time in seconds, eight of a hash. The time is the task's creation: the start of an
 * attempt is known more exactly in its last record than in its first, and the id must be the same from both.
 */
export function idOf(createdAtMs: number, key: string): string {
  const seconds = (Math.floor(createdAtMs / 1000) >>> 0).toString(16).padStart(8, '0');
  return `${seconds}${hash('sha256', key, 'hex').slice(0, 16)}`;
}

/** The events of changes that a record shows. */
export function eventsOfChanges(facts: TaskFacts, changes: readonly TaskChange[]): readonly TaskChangeEvent[] {
  const times: Times = {
    createdAt: timestampOf(facts.createdAtMs),
    startedAt: timestampOf(facts.startedAtMs),
    endedAt: timestampOf(facts.endedAtMs),
  };
  return changes.map((change) => eventOf(facts, times, change));
}

function eventOf(facts: TaskFacts, times: Times, change: TaskChange): TaskChangeEvent {
  const { taskId, workspaceId, stubId, deploymentId, failureReason, createdAtMs } = facts;
  const { status, attempt, rank, atMs } = change;
  const isCreated = attempt === 0 && rank === 0;
  const hasRun = rank > 0;
  const containerId = hasRun ? facts.containerId : null;
  return {
    id: idOf(createdAtMs, keyOf(taskId, change)),
    type: isCreated ? 'task.created' : 'task.updated',
    atMs,
    containerId,
    data: {
      id: taskId,
      status,
      attempt,
      ...(failureReason === '' || status !== facts.status ? {} : { failure_reason: failureReason }),
      container_id: containerId ?? '',
      started_at: hasRun ? times.startedAt : null,
      ended_at: isTerminalTask(status) ? times.endedAt : null,
      workspace_id: workspaceId,
      external_workspace_id: facts.calledBy ?? null,
      stub_id: stubId,
      created_at: times.createdAt,
      updated_at: isCreated ? times.createdAt : timestampOf(atMs),
      ...(deploymentId === null ? {} : { deployment_id: deploymentId }),
    },
  };
}

/** Data of a row that holds all changes of a record: the fields of the record that no column of the row has. */
export interface PackedTask {
  readonly status: TaskStatus;
  readonly attempt: number;
  readonly rank: number;
  readonly failure_reason?: string;
  readonly called_by?: WorkspaceId;
  readonly created_ms: number;
  readonly started_ms?: number;
  readonly ended_ms?: number;
  /** When its owner noted the record. */
  readonly taken_ms: number;
  /** Time of the earliest event; the row has that of the latest. */
  readonly from_ms: number;
}

/** The row of all changes of a record, the fields apart that each event of a task has. */
export interface PackedChanges {
  /** Id of the first event. */
  readonly id: string;
  readonly atMs: number;
  readonly containerId: ContainerId | null;
  /** Number of events beside the first. */
  readonly more: number;
  readonly data: PackedTask;
}

/** Packs the changes of a record: all that {@link changesOf} says. */
export function packed(facts: TaskFacts, takenMs: number, changes: readonly TaskChange[]): PackedChanges {
  const { taskId, calledBy, status, attempt, rank, failureReason, createdAtMs, startedAtMs, endedAtMs } = facts;
  const times = changes.map(({ atMs }) => atMs);
  return {
    id: idOf(createdAtMs, keyOf(taskId, { status: 'PENDING', attempt: 0, rank: 0, atMs: createdAtMs })),
    atMs: Math.max(...times),
    containerId: changes.some((change) => change.rank > 0) ? facts.containerId : null,
    more: changes.length - 1,
    data: {
      status,
      attempt,
      rank,
      ...(failureReason === '' ? {} : { failure_reason: failureReason }),
      ...(calledBy === undefined ? {} : { called_by: calledBy }),
      created_ms: createdAtMs,
      ...(startedAtMs === null ? {} : { started_ms: startedAtMs }),
      ...(endedAtMs === null ? {} : { ended_ms: endedAtMs }),
      taken_ms: takenMs,
      from_ms: Math.min(...times),
    },
  };
}

/** The events of a packed row, the earliest first. */
export function unpacked(
  ids: Pick<TaskFacts, 'taskId' | 'workspaceId' | 'stubId' | 'deploymentId' | 'containerId'>,
  data: PackedTask,
): readonly TaskChangeEvent[] {
  const facts: TaskFacts = {
    ...ids,
    ...(data.called_by === undefined ? {} : { calledBy: data.called_by }),
    status: data.status,
    attempt: data.attempt,
    rank: data.rank,
    failureReason: data.failure_reason ?? '',
    createdAtMs: data.created_ms,
    startedAtMs: data.started_ms ?? null,
    endedAtMs: data.ended_ms ?? null,
  };
  return eventsOfChanges(facts, changesOf(facts, data.taken_ms));
}
