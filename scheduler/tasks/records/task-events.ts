// The events of tasks, made of the records on their way to the database: one for each change of a task's status, in
// order. A later record shows that the task was created, and that it ran. So records that it stands for are left out.
// The changes of a record that comes first are one row, and so are those of such records of one container. Pure.
import type { TaskId } from '#shared/domain/ids.ts';
import {
  MOST_PACKED_TASKS,
  PACKED_TYPE,
  changesOf,
  createdIdOf,
  eventsOfChanges,
  idOf,
  keyOf,
  packed,
} from '../../domain/task-changes.ts';
import type { ShownChanges, TaskChange } from '../../domain/task-changes.ts';
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

/** Names of rows that tell of several tasks, of each task that is to be told in one. */
export type Packs = ReadonlyMap<TaskId, string>;

/**
 * The tasks of a batch that are told together if their rows are new: those that are over with the one record that the
 * batch has, by workspace, stub, deployment and container.
 */
export function packsOf(recorded: readonly RecordedChange[]): Packs {
  const counts = new Map<TaskId, number>();
  for (const { record } of recorded) counts.set(record.taskId, (counts.get(record.taskId) ?? 0) + 1);
  const packs = new Map<TaskId, string>();
  const open = new Map<string, { readonly first: TaskRecord; readonly name: string; tasks: number }>();
  for (const { record } of recorded) {
    if (record.rank < 3 || counts.get(record.taskId) !== 1) continue;
    const place = [record.workspaceId, record.stubId, record.deploymentId, record.containerId].join(' ');
    const pack = open.get(place);
    if (pack === undefined || pack.tasks === MOST_PACKED_TASKS) {
      open.set(place, { first: record, name: createdIdOf(record), tasks: 1 });
      continue;
    }
    if (pack.tasks === 1) packs.set(pack.first.taskId, pack.name);
    packs.set(record.taskId, pack.name);
    pack.tasks += 1;
  }
  return packs;
}

/**
 * Rows of events of a batch of records, in the order given.
 * @param recorded - the changes of the batch: the events are not of a task's newest record alone
 * @param told - events that are not told again
 * @param packs - of tasks that nothing was told of, and whose row names the pack
 */
export function taskEvents(
  recorded: readonly RecordedChange[],
  told: ToldEvents = new Map(),
  packs: Packs = new Map(),
): readonly NewEvent[] {
  const seen = new Set<string>();
  const open = new Map<string, ShownChanges[]>();
  const rows = recorded.map(({ record, atMs }): (() => readonly NewEvent[]) => {
    const changes = changesOf(record, atMs);
    const fresh = changes.filter((change) => isFresh(record, change, seen, told));
    // The first change is the creation: where it is new, all are.
    if (fresh.length <= 1 || fresh.length < changes.length) return () => singleEvents(record, fresh);
    const pack = packs.get(record.taskId);
    const first = pack === undefined ? undefined : open.get(pack);
    const one = { record, atMs, changes };
    if (first !== undefined) {
      first.push(one);
      return () => [];
    }
    const together = [one];
    if (pack !== undefined) open.set(pack, together);
    return () => [packedEvent(together, record, pack)];
  });
  return rows.flatMap((row) => row());
}

/** Whether a change is not told yet, by the database or by this batch; it counts as told from then on. */
function isFresh(record: TaskRecord, change: TaskChange, seen: Set<string>, told: ToldEvents): boolean {
  const key = keyOf(record.taskId, change);
  if (seen.has(key) || told.get(record.taskId)?.has(idOf(record.createdAtMs, key)) === true) return false;
  seen.add(key);
  return true;
}

/** @param first - the first of the records */
function packedEvent(together: readonly ShownChanges[], first: TaskRecord, pack: string | undefined): NewEvent {
  const { atMs, more, data } = packed(together);
  const { taskId, ...subject } = subjectOf(first);
  const isAlone = together.length === 1;
  return {
    ...subject,
    ...(isAlone ? { taskId } : {}),
    ...(first.containerId === null ? {} : { containerId: first.containerId }),
    id: isAlone || pack === undefined ? createdIdOf(first) : pack,
    type: PACKED_TYPE,
    atMs,
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
