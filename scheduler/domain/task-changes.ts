// Changes of a task's status, as a record of the task shows them, and the events that tell of them. A record that comes
// first shows that the task was created and that it ran, too. A row of the database may hold all changes of such
// records: `packed` is the data of the row, `unpacked` are its events. Ids follow from the change, so that a change
// told again is known by its id. Pure.
import { hash } from 'node:crypto';
import { timestampOf } from '#shared/api/fields.ts';
import type { ContainerId, DeploymentId, StubId, TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import type { TaskStatus } from '#shared/domain/status.ts';
import { isTerminalTask } from '#shared/domain/status.ts';

/** Kinds of the events of tasks. */
export const TASK_EVENT_TYPES = ['task.created', 'task.updated'] as const;
/** Type of a row that holds several events of tasks; no event has it. */
export const PACKED_TYPE = 'task';
/** Most events of a record: its own, and the two that it may show to be missing. */
export const MOST_EVENTS_OF_RECORD = 3;
/** Most tasks of a row: more would make a row no cheaper, and a read of one task dearer. */
export const MOST_PACKED_TASKS = 50;
export const MOST_EVENTS_OF_ROW = MOST_PACKED_TASKS * MOST_EVENTS_OF_RECORD;

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
  readonly taskId: TaskId;
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

/** Id of the event that tells of a task's creation. */
export const createdIdOf = ({ taskId, createdAtMs }: Pick<TaskFacts, 'taskId' | 'createdAtMs'>): string =>
  idOf(createdAtMs, keyOf(taskId, { status: 'PENDING', attempt: 0, rank: 0, atMs: createdAtMs }));

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
    taskId,
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

/** A task in the data of a row: the fields of its record that no column of the row has. */
interface PackedTask {
  /** Absent in the data of a row of one task, which has it in its column. */
  readonly task_id?: TaskId;
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
}

/** Data of a row that holds all changes of the first records of tasks. */
export interface PackedTasks {
  readonly tasks: readonly PackedTask[];
  /** Time of the earliest event; the row has that of the latest. */
  readonly from_ms: number;
}

/** A row's worth of records, the fields apart that each event of a task has. */
export interface PackedChanges {
  readonly atMs: number;
  /** Number of events beside the first. */
  readonly more: number;
  readonly data: PackedTasks;
}

/** A record with all changes that it shows. */
export interface ShownChanges {
  readonly record: TaskFacts;
  /** When its owner noted the record. */
  readonly atMs: number;
  readonly changes: readonly TaskChange[];
}

/** Packs records of one workspace, stub, deployment and container, and of a task each. */
export function packed(records: readonly ShownChanges[]): PackedChanges {
  const times = records.flatMap(({ changes }) => changes.map(({ atMs }) => atMs));
  const isAlone = records.length === 1;
  const tasks = records.map(({ record, atMs }) => ({
    ...(isAlone ? {} : { task_id: record.taskId }),
    ...packedTask(record, atMs),
  }));
  return {
    atMs: Math.max(...times),
    more: times.length - 1,
    data: { tasks, from_ms: Math.min(...times) },
  };
}

function packedTask(facts: TaskFacts, takenMs: number): PackedTask {
  const { calledBy, status, attempt, rank, failureReason, createdAtMs, startedAtMs, endedAtMs } = facts;
  return {
    status,
    attempt,
    rank,
    ...(failureReason === '' ? {} : { failure_reason: failureReason }),
    ...(calledBy === undefined ? {} : { called_by: calledBy }),
    created_ms: createdAtMs,
    ...(startedAtMs === null ? {} : { started_ms: startedAtMs }),
    ...(endedAtMs === null ? {} : { ended_ms: endedAtMs }),
    taken_ms: takenMs,
  };
}

/**
 * The events of a row: first the creations of all its tasks, so that a number tells which of the two it is.
 * @param ids - as the row's columns have them
 */
export function unpacked(
  ids: Pick<TaskFacts, 'workspaceId' | 'stubId' | 'deploymentId' | 'containerId'> & Partial<Pick<TaskFacts, 'taskId'>>,
  data: PackedTasks,
): readonly TaskChangeEvent[] {
  const all = data.tasks.map((task) => {
    const taskId = task.task_id ?? ids.taskId;
    if (taskId === undefined) return [];
    const facts: TaskFacts = {
      ...ids,
      taskId,
      ...(task.called_by === undefined ? {} : { calledBy: task.called_by }),
      status: task.status,
      attempt: task.attempt,
      rank: task.rank,
      failureReason: task.failure_reason ?? '',
      createdAtMs: task.created_ms,
      startedAtMs: task.started_ms ?? null,
      endedAtMs: task.ended_ms ?? null,
    };
    return eventsOfChanges(facts, changesOf(facts, task.taken_ms));
  });
  return [...all.flatMap((events) => events.slice(0, 1)), ...all.flatMap((events) => events.slice(1))];
}
