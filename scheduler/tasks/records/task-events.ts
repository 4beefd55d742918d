// The events of tasks, made of the records on their way to the database: one for each change of a task's status, in
// order. A later record shows that the task was created, and that it ran. So records that it stands for are left out.
// The changes of a record that comes first are one row. Pure.
import type { TaskId } from '#shared/domain/ids.ts';
import { PACKED_TYPE, changesOf, eventsOfChanges, idOf, keyOf, packed } from '../../domain/task-changes.ts';
import type { TaskChange } from '../../domain/task-changes.ts';
import type { NewEvent } from '../../stores/store/queries/events.ts';
import type { TaskRecord } from './task-record.ts';

/** A record, as its owner noted it. */
export interface RecordedChange {
  readonly record: TaskRecord;
  readonly atMs: number;
}

/** Ids of the events that are written already, of each task that may have some. */
export type ToldEvents = ReadonlyMap<TaskId, ReadonlySet<string>>;

/** Whether the later record of a task shows all changes that the earlier one shows. */
export function standsFor(later: RecordedChange, earlier: RecordedChange): boolean {
  const shown = changesOf(later.record, later.atMs);
  return changesOf(earlier.record, earlier.atMs).every(({ attempt, rank, status }) =>
    shown.some((change) => change.attempt === attempt && change.rank === rank && change.status === status),
  );
}

/**
 * Rows of events of a batch of records, in the order given.
 * @param recorded - the changes of the batch: the events are not of a task's newest record alone
 * @param told - events that are not told again
 */
export function taskEvents(recorded: readonly RecordedChange[], told: ToldEvents = new Map()): readonly NewEvent[] {
  const seen = new Set<string>();
  return recorded.flatMap(({ record, atMs }) => {
    const changes = changesOf(record, atMs);
    const fresh = changes.filter((change) => isFresh(record, change, seen, told));
    // The first change is the creation: where it is new, all are.
    return fresh.length > 1 && fresh.length === changes.length
      ? [packedEvent(record, atMs, changes)]
      : singleEvents(record, fresh);
  });
}

/** Whether a change is not told yet, by the database or by this batch; it counts as told from then on. */
function isFresh(record: TaskRecord, change: TaskChange, seen: Set<string>, told: ToldEvents): boolean {
  const key = keyOf(record.taskId, change);
  if (seen.has(key) || told.get(record.taskId)?.has(idOf(record.createdAtMs, key)) === true) return false;
  seen.add(key);
  return true;
}

function packedEvent(record: TaskRecord, atMs: number, changes: readonly TaskChange[]): NewEvent {
  const { id, atMs: lastMs, containerId, more, data } = packed(record, atMs, changes);
  return {
    ...subjectOf(record),
    ...(containerId === null ? {} : { containerId }),
    id,
    type: PACKED_TYPE,
    atMs: lastMs,
    more,
    isOfTask: true,
    data: { ...data },
  };
}

/** Rows of one event each. */
export const singleEvents = (record: TaskRecord, changes: readonly TaskChange[]): readonly NewEvent[] =>
  eventsOfChanges(record, changes).map(({ containerId, ...event }) => ({
    ...subjectOf(record),
    ...(containerId === null ? {} : { containerId }),
    ...event,
    isOfTask: true,
  }));

const subjectOf = ({ workspaceId, taskId, stubId, deploymentId }: TaskRecord) => ({
  workspaceId,
  taskId,
  stubId,
  ...(deploymentId === null ? {} : { deploymentId }),
});
