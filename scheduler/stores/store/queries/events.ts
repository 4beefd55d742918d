// Rows of events. The statement that writes an event takes its number from the workspace's counter, which stays locked
// until the commit. Numbers of a workspace are therefore in the order of commits: a reader that has seen a number never
// finds a smaller one later.
// A row of the type `task` holds several events, also of several tasks: those of the numbers from `seq - more` to
// `seq`. Every reader here turns rows into events, so that no other file sees such a row.
import type { AppId, ContainerId, DeploymentId, MachineId, StubId, TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import { PACKED_TYPE, TASK_EVENT_TYPES, unpacked } from '../../../domain/task-changes.ts';
import type { PackedTasks } from '../../../domain/task-changes.ts';
import type { Queryable } from '../db.ts';
import { arrayText, msOf, storableText } from '../rows.ts';

/** Ids of what an event is about, as far as they are known. */
export interface EventSubject {
  readonly appId?: AppId | undefined;
  readonly stubId?: StubId | undefined;
  readonly stubType?: string | undefined;
  readonly deploymentId?: DeploymentId | undefined;
  readonly taskId?: TaskId | undefined;
  readonly containerId?: ContainerId | undefined;
  readonly machineId?: MachineId | undefined;
}

export interface NewEvent extends EventSubject {
  readonly workspaceId: WorkspaceId;
  /** 24 hex characters. An event of a task whose id is there already is not written again. */
  readonly id: string;
  readonly type: string;
  readonly atMs: number;
  /** Fields of the kind, JSON. */
  readonly data: Readonly<Record<string, unknown>>;
  /** Adds app, type of the stub, name and version of the deployment to the data, as their rows have them. */
  readonly isOfTask?: boolean;
  /** Number of further events that the row holds; absent: 0. */
  readonly more?: number;
}

export interface EventRow extends Omit<NewEvent, 'isOfTask' | 'more'> {
  /** Number within the workspace, in the order of commits; 1 is the first. */
  readonly seq: number;
  readonly storedAtMs: number;
}

export interface RawEvent {
  workspace_id: string;
  /** Number of the row's last event. */
  seq: number | bigint;
  more: number;
  id: string;
  type: string;
  at: Date;
  stored_at: Date;
  app_id: string | null;
  stub_id: string | null;
  stub_type: string | null;
  deployment_id: string | null;
  task_id: string | null;
  container_id: string | null;
  machine_id: string | null;
  data: Readonly<Record<string, unknown>>;
}
export const EVENT_COLUMNS =
  'workspace_id, seq, more, id, type, at, stored_at, app_id, stub_id, stub_type, deployment_id, task_id, container_id, machine_id, data';
const rowOf = (row: RawEvent): EventRow => ({
  workspaceId: row.workspace_id as WorkspaceId,
  seq: Number(row.seq),
  id: row.id,
  type: row.type,
  atMs: msOf(row.at),
  storedAtMs: msOf(row.stored_at),
  ...(row.app_id === null ? {} : { appId: row.app_id as AppId }),
  ...(row.stub_id === null ? {} : { stubId: row.stub_id as StubId }),
  ...(row.stub_type === null ? {} : { stubType: row.stub_type }),
  ...(row.deployment_id === null ? {} : { deploymentId: row.deployment_id as DeploymentId }),
  ...(row.task_id === null ? {} : { taskId: row.task_id as TaskId }),
  ...(row.container_id === null ? {} : { containerId: row.container_id as ContainerId }),
  ...(row.machine_id === null ? {} : { machineId: row.machine_id as MachineId }),
  data: row.data,
});

/** Events of a row, in the order of their numbers. */
export function eventsOf(row: RawEvent): readonly EventRow[] {
  if (row.type !== PACKED_TYPE) return [rowOf(row)];
  const { containerId = null, data, seq, ...event } = rowOf(row);
  const { workspaceId, stubId, taskId, deploymentId = null } = event;
  if (stubId === undefined) return [];
  const names = Object.fromEntries(NAMES.flatMap((name) => (name in data ? [[name, data[name]]] : [])));
  const ids = { workspaceId, stubId, deploymentId, containerId, ...(taskId === undefined ? {} : { taskId }) };
  return unpacked(ids, data as unknown as PackedTasks).map((told, at) => ({
    ...event,
    taskId: told.taskId,
    ...(told.containerId === null ? {} : { containerId: told.containerId }),
    seq: seq - row.more + at,
    id: told.id,
    type: told.type,
    atMs: Math.trunc(told.atMs),
    data: { ...told.data, ...names },
  }));
}

/** Number of tasks of a row `e` of the type `task`, as SQL; their creations have the first numbers. */
export const TASKS_OF_ROW = "json_array_length(e.data -> 'tasks')";

/** Number of the first event of a row. */
export const firstSeqOf = (row: Pick<RawEvent, 'seq' | 'more'>): number => Number(row.seq) - row.more;

/** Types of the rows that have events of these types. */
export const rowTypesOf = (types: readonly string[]): readonly string[] =>
  TASK_EVENT_TYPES.some((type) => types.includes(type)) ? [...new Set([...types, PACKED_TYPE])] : types;

/** Types of the events that rows of these types have. */
export const eventTypesOf = (types: readonly string[]): readonly string[] =>
  types.includes(PACKED_TYPE)
    ? [...new Set([...types.filter((type) => type !== PACKED_TYPE), ...TASK_EVENT_TYPES])].toSorted()
    : types;

/** Fields of {@link TASK_NAMES}. */
const NAMES = ['app_id', 'stub_type', 'deployment_name', 'deployment_version'] as const;
/** Fields of a task's event that its record lacks, as JSON to put behind the others. */
const TASK_NAMES = `',"app_id":' || to_json(coalesce(s.app_id, ''))::text || ',"stub_type":' || to_json(coalesce(s.type, ''))::text
  || coalesce(',"deployment_name":' || to_json(d.name)::text || ',"deployment_version":"' || d.version || '"', '')`;

/** Most rows of one statement. */
export const MAX_EVENT_BATCH = 2_000;

/**
 * Writes up to 2 000 rows of events in the order given. The call is the last statement of its transaction, because it
 * locks the counters of the events' workspaces until the commit. They are locked in the order of the workspaces' ids:
 * two such statements wait for each other and never deadlock. App and type of a stub that the event leaves out are
 * looked up.
 * Events of tasks that are there already take no number.
 * @returns the last number of each workspace that got an event
 */
export async function appendEvents(
  db: Queryable,
  events: readonly NewEvent[],
): Promise<ReadonlyMap<WorkspaceId, number>> {
  if (events.length > MAX_EVENT_BATCH) throw new RangeError(`at most ${MAX_EVENT_BATCH} events at a time`);
  return await appendNewEvents(db, await withoutWritten(db, events));
}

/** Writes like {@link appendEvents} events that are known to be in no row: those of tasks are not looked for. */
export async function appendNewEvents(
  db: Queryable,
  events: readonly NewEvent[],
): Promise<ReadonlyMap<WorkspaceId, number>> {
  if (events.length === 0) return new Map();
  if (events.length > MAX_EVENT_BATCH) throw new RangeError(`at most ${MAX_EVENT_BATCH} events at a time`);
  /** Numbers that the events of each workspace take. */
  const taken = new Map<WorkspaceId, number>();
  const numbers = events.map((event) => {
    const nth = (taken.get(event.workspaceId) ?? 0) + (event.more ?? 0) + 1;
    taken.set(event.workspaceId, nth);
    return nth;
  });
  const { rows } = await db.query<{ workspace_id: string; last_seq: number | bigint }>(
    APPEND_SQL,
    [
      [...taken.keys()],
      [...taken.values()],
      arrayText(events.map((event) => event.workspaceId)),
      arrayText(numbers),
      arrayText(events.map((event) => event.id)),
      arrayText(events.map((event) => event.type)),
      arrayText(events.map((event) => event.atMs / 1000)),
      arrayText(events.map((event) => event.appId)),
      arrayText(events.map((event) => event.stubId)),
      arrayText(events.map((event) => event.stubType)),
      arrayText(events.map((event) => event.deploymentId)),
      arrayText(events.map((event) => event.taskId)),
      arrayText(events.map((event) => event.containerId)),
      arrayText(events.map((event) => event.machineId)),
      arrayText(events.map((event) => event.isOfTask === true)),
      arrayText(events.map((event) => event.more ?? 0)),
      arrayText(events.map((event) => storableJson(event.data))),
    ],
    { isPrepared: true },
  );
  return new Map(rows.map((row) => [row.workspace_id as WorkspaceId, Number(row.last_seq)]));
}

const APPEND_SQL = `with r as materialized (
    select * from unnest($3::text[], $4::bigint[], $5::text[], $6::text[], $7::double precision[], $8::text[], $9::text[],
      $10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::boolean[], $16::smallint[], $17::text[])
      as r (workspace_id, nth, id, type, at_s, app_id, stub_id, stub_type, deployment_id, task_id, container_id, machine_id,
        of_task, more, data)),
  named as materialized (
    select t.stub_id, t.deployment_id, ${TASK_NAMES} as fields
    from (select distinct stub_id, deployment_id from r where of_task) t
      left join stubs s on s.id = t.stub_id left join deployments d on d.id = t.deployment_id),
  counters as (
    insert into event_counters as c (workspace_id, last_seq)
    select workspace_id, events from unnest($1::text[], $2::bigint[]) as taken (workspace_id, events) order by workspace_id
    on conflict (workspace_id) do update set last_seq = c.last_seq + excluded.last_seq
    returning workspace_id, last_seq),
  written as (
    insert into events (workspace_id, seq, more, id, type, at, app_id, stub_id, stub_type, deployment_id, task_id, container_id,
      machine_id, data)
    select r.workspace_id, counters.last_seq - taken.events + r.nth, r.more, r.id, r.type, to_timestamp(r.at_s),
      coalesce(r.app_id, s.app_id), r.stub_id, coalesce(r.stub_type, s.type),
      r.deployment_id, r.task_id, r.container_id, r.machine_id,
      (case when r.of_task then left(r.data, -1) || named.fields || '}' else r.data end)::json
    from r join unnest($1::text[], $2::bigint[]) as taken (workspace_id, events) using (workspace_id)
      join counters using (workspace_id) left join stubs s on s.id = r.stub_id
      left join named on r.of_task and named.stub_id = r.stub_id
        and named.deployment_id is not distinct from r.deployment_id
    on conflict (task_id, id) where task_id is not null do nothing)
  select workspace_id, last_seq from counters`;

/** Leaves out the events of tasks that have a row of their own already. */
async function withoutWritten(db: Queryable, events: readonly NewEvent[]): Promise<readonly NewEvent[]> {
  const ofTasks = events.filter(({ taskId }) => taskId !== undefined);
  if (ofTasks.length === 0) return events;
  const { rows } = await db.query<{ id: string }>(
    `select g.id from unnest($1::text[], $2::text[]) as g (task_id, id)
     where exists (select from events e where e.task_id = g.task_id and e.id = g.id)`,
    [ofTasks.map(({ taskId }) => taskId), ofTasks.map(({ id }) => id)],
  );
  const written = new Set(rows.map(({ id }) => id));
  return events.filter(({ taskId, id }) => taskId === undefined || !written.has(id));
}

/**
 * Ids of the events that these tasks have.
 * @param tasks - `toldIn`: the row that tells the task together with others
 */
export async function toldEvents(
  db: Queryable,
  tasks: ReadonlyMap<TaskId, { readonly toldIn?: string | undefined }>,
): Promise<ReadonlyMap<TaskId, ReadonlySet<string>>> {
  const told = new Map<TaskId, Set<string>>();
  if (tasks.size === 0) return told;
  const shared = [...tasks.values()].flatMap(({ toldIn }) => toldIn ?? []);
  const { rows } = await db.query<RawEvent>(TOLD_SQL, [[...tasks.keys()], rowTypesOf(TASK_EVENT_TYPES), shared]);
  for (const { taskId, id } of rows.flatMap(eventsOf)) {
    if (taskId !== undefined) told.set(taskId, (told.get(taskId) ?? new Set()).add(id));
  }
  return told;
}

/** Rows of several tasks; the same words as the index's, so that it serves. */
export const OF_TASKS = `type = '${PACKED_TYPE}' and task_id is null`;
const TOLD_NAMES = EVENT_COLUMNS.replace(', data', '');
const TOLD_SQL = `select ${TOLD_NAMES}, case when more > 0 then data else '{}'::json end as data
    from events where task_id = any ($1::text[]) and type = any ($2::text[])
  union all select ${TOLD_NAMES}, data from events where id = any ($3::text[]) and ${OF_TASKS}`;

/** Characters that Postgres refuses, as JSON writes them; the text of a backslash and these letters looks alike. */
const REFUSED = /\\u(?:0000|d[89a-f])/;

/** JSON that Postgres takes. Looking at every value would cost more than the rest. */
function storableJson(value: unknown): string {
  const text = JSON.stringify(value);
  if (!REFUSED.test(text)) return text;
  return JSON.stringify(value, (_, part: unknown) => (typeof part === 'string' ? storableText(part) : part));
}
