import type {
  ContainerId,
  DeploymentId,
  InstanceId,
  ObjectId,
  PutBy,
  QueueName,
  StubId,
  TaskId,
  WorkspaceId,
} from '#shared/domain/ids.ts';
import type { TaskStatus } from '#shared/domain/status.ts';
import type { InputState } from '../../../domain/task-inputs.ts';
import { DEFERRED_CALLS_QUEUE } from '../../../domain/inference.ts';
import type { PastAttempt } from '../../queues/jobs.ts';
import type { Queryable } from '../db.ts';
import { ownersOf } from './owners.ts';
import { DEAD } from './task-inputs.ts';
import type { ArrayValue } from '../rows.ts';
import { arrayText, dateOrNull, many, maybeOne, msOf, msOrNull, storableText } from '../rows.ts';

/** A task's record, written as a whole each time. (attempt, rank) orders the records of one task. */
export interface TaskRecordRow {
  readonly taskId: TaskId;
  readonly workspaceId: WorkspaceId;
  readonly stubId: StubId;
  readonly deploymentId: DeploymentId | null;
  readonly queue: QueueName;
  readonly kind: string;
  readonly sync: boolean;
  readonly status: TaskStatus;
  readonly attempt: number;
  /** 0 pending, 1 running, 2 retry, 3 terminal, 4 late complete. */
  readonly rank: number;
  readonly containerId: ContainerId | null;
  readonly failureReason: string;
  readonly createdAtMs: number;
  readonly startedAtMs: number | null;
  readonly endedAtMs: number | null;
  readonly durationMs: number | null;
  readonly result?: string | undefined;
  readonly resultObjectId?: ObjectId | undefined;
  readonly deadlineMs: number | null;
  readonly callbackUrl?: string | undefined;
  /** The stub whose container submitted the task. */
  readonly putBy?: PutBy | undefined;
  /** Workspace that called a public deployment of another. */
  readonly calledBy?: WorkspaceId | undefined;
  /** Hostname of the container, as EndTask reported it. */
  readonly containerHostname?: string | undefined;
  readonly inputState?: InputState | undefined;
  readonly inputBytes?: number | undefined;
  readonly rerunOf?: TaskId | undefined;
  /** The dead task that this one stands for. */
  readonly redrivenFrom?: TaskId | undefined;
  /** Scheduler process where the caller of an open synchronous task waits. */
  readonly replica?: InstanceId | undefined;
  /** Earlier attempts, oldest first; in lists absent. */
  readonly past?: readonly PastAttempt[] | undefined;
}

export interface TaskRow extends TaskRecordRow {
  readonly stubName: string;
  readonly stubType: string;
  readonly deploymentName: string | null;
  readonly deploymentVersion: number | null;
  readonly updatedAtMs: number;
}

interface Raw {
  id: string;
  workspace_id: string;
  stub_id: string;
  deployment_id: string | null;
  queue: string;
  kind: string;
  sync: boolean;
  status: string;
  attempt: number;
  rank: number;
  container_id: string | null;
  failure_reason: string;
  result: string | null;
  result_object_id: string | null;
  created_at: Date;
  started_at: Date | null;
  ended_at: Date | null;
  updated_at: Date;
  deadline_at: Date | null;
  duration_ms: number | null;
  put_by: string | null;
  called_by: string | null;
  stub_name: string | null;
  stub_type: string | null;
  deployment_name: string | null;
  deployment_version: number | null;
  callback_url: string | null;
  container_hostname: string | null;
  past: string | null;
  input_state: string | null;
  input_bytes: number | null;
  rerun_of: string | null;
  redriven_from: string | null;
  replica: string | null;
}
const BASE = `t.id, t.workspace_id, t.stub_id, t.deployment_id, t.queue, t.kind, t.sync, t.status, t.attempt, t.rank, t.container_id,
  t.failure_reason, t.created_at, t.started_at, t.ended_at, t.updated_at, t.deadline_at, t.duration_ms, t.result_object_id, t.callback_url,
  t.put_by, t.called_by, t.container_hostname, t.input_state, t.input_bytes::float8 as input_bytes, t.rerun_of, t.redriven_from, t.replica,
  s.name as stub_name, s.type as stub_type, d.name as deployment_name, d.version as deployment_version`;
const JOINS = 'left join stubs s on s.id = t.stub_id left join deployments d on d.id = t.deployment_id';
const map = (row: Raw): TaskRow => ({
  taskId: row.id as TaskId,
  workspaceId: row.workspace_id as WorkspaceId,
  stubId: row.stub_id as StubId,
  deploymentId: row.deployment_id as DeploymentId | null,
  queue: row.queue as QueueName,
  kind: row.kind,
  sync: row.sync,
  status: row.status as TaskStatus,
  attempt: row.attempt,
  rank: row.rank,
  containerId: row.container_id as ContainerId | null,
  failureReason: row.failure_reason,
  createdAtMs: msOf(row.created_at),
  startedAtMs: msOrNull(row.started_at),
  endedAtMs: msOrNull(row.ended_at),
  durationMs: row.duration_ms,
  ...(row.result === null ? {} : { result: row.result }),
  ...(row.result_object_id === null ? {} : { resultObjectId: row.result_object_id as ObjectId }),
  deadlineMs: msOrNull(row.deadline_at),
  ...(row.callback_url === null ? {} : { callbackUrl: row.callback_url }),
  ...(row.put_by === null ? {} : { putBy: row.put_by as PutBy }),
  ...(row.called_by === null ? {} : { calledBy: row.called_by as WorkspaceId }),
  ...(row.container_hostname === null ? {} : { containerHostname: row.container_hostname }),
  ...(row.input_state === null ? {} : { inputState: row.input_state as InputState }),
  ...(row.input_bytes === null ? {} : { inputBytes: row.input_bytes }),
  ...(row.rerun_of === null ? {} : { rerunOf: row.rerun_of as TaskId }),
  ...(row.redriven_from === null ? {} : { redrivenFrom: row.redriven_from as TaskId }),
  ...(row.replica === null ? {} : { replica: row.replica as InstanceId }),
  ...(row.past === null ? {} : { past: JSON.parse(row.past) as readonly PastAttempt[] }),
  stubName: row.stub_name ?? '',
  stubType: row.stub_type ?? '',
  deploymentName: row.deployment_name,
  deploymentVersion: row.deployment_version,
  updatedAtMs: msOf(row.updated_at),
});

/** Tasks that a queue of Redis has: upkeep of queues passes calls over that are answered later. */
const IN_QUEUES = `queue <> '${DEFERRED_CALLS_QUEUE}'`;

/** Most rows of one statement; callers cut larger batches. */
export const MAX_TASK_BATCH = 500;

const secondsOrNull = (ms: number | null): number | null => (ms === null ? null : ms / 1000);
const encode = (
  record: TaskRecordRow,
  job: string | null,
  owner: string | null,
  toldIn: string | null = null,
): Record<(typeof COLUMNS)[number][0], ArrayValue> => ({
  id: record.taskId,
  workspace_id: record.workspaceId,
  stub_id: record.stubId,
  deployment_id: record.deploymentId,
  queue: record.queue,
  kind: record.kind,
  sync: record.sync,
  status: record.status,
  attempt: record.attempt,
  rank: record.rank,
  container_id: record.containerId,
  failure_reason: storableText(record.failureReason),
  job: job === null ? null : storableText(job),
  result: record.result === undefined ? null : storableText(record.result),
  result_object_id: record.resultObjectId ?? null,
  created_s: record.createdAtMs / 1000,
  started_s: secondsOrNull(record.startedAtMs),
  ended_s: secondsOrNull(record.endedAtMs),
  deadline_s: secondsOrNull(record.deadlineMs),
  duration_ms: record.durationMs,
  callback_url: record.callbackUrl === undefined ? null : storableText(record.callbackUrl),
  put_by: record.putBy ?? null,
  called_by: record.calledBy ?? null,
  container_hostname: record.containerHostname === undefined ? null : storableText(record.containerHostname),
  input_state: record.inputState ?? null,
  input_bytes: record.inputBytes ?? null,
  rerun_of: record.rerunOf ?? null,
  redriven_from: record.redrivenFrom ?? null,
  replica: record.rank < 3 ? (record.replica ?? null) : null,
  past: record.past === undefined ? null : storableText(JSON.stringify(record.past)),
  owner,
  told_in: toldIn,
});
const INSERT_INTO = `insert into tasks (id, workspace_id, stub_id, deployment_id, queue, kind, sync, status, attempt, rank, container_id,
    failure_reason, job, result, result_object_id, created_at, started_at, ended_at, deadline_at, duration_ms, callback_url, put_by,
    called_by, container_hostname, past, input_state, input_bytes, rerun_of, redriven_from, owner, replica, told_in)
  select r.id, r.workspace_id, r.stub_id, r.deployment_id, r.queue, r.kind, r.sync, r.status, r.attempt, r.rank, r.container_id,
    r.failure_reason, r.job, r.result, r.result_object_id, to_timestamp(r.created_s), to_timestamp(r.started_s),
    to_timestamp(r.ended_s), to_timestamp(r.deadline_s), r.duration_ms, r.callback_url, r.put_by,
    r.called_by, r.container_hostname, r.past, r.input_state, r.input_bytes, r.rerun_of, r.redriven_from, r.owner, r.replica, r.told_in`;
/** Fields of {@link encode} and their types. */
const COLUMNS = [
  ['id', 'text'],
  ['workspace_id', 'text'],
  ['stub_id', 'text'],
  ['deployment_id', 'text'],
  ['queue', 'text'],
  ['kind', 'text'],
  ['sync', 'boolean'],
  ['status', 'text'],
  ['attempt', 'integer'],
  ['rank', 'integer'],
  ['container_id', 'text'],
  ['failure_reason', 'text'],
  ['job', 'text'],
  ['result', 'text'],
  ['result_object_id', 'text'],
  ['created_s', 'double precision'],
  ['started_s', 'double precision'],
  ['ended_s', 'double precision'],
  ['deadline_s', 'double precision'],
  ['duration_ms', 'double precision'],
  ['callback_url', 'text'],
  ['put_by', 'text'],
  ['called_by', 'text'],
  ['container_hostname', 'text'],
  ['past', 'text'],
  ['input_state', 'text'],
  ['input_bytes', 'bigint'],
  ['rerun_of', 'text'],
  ['redriven_from', 'text'],
  ['owner', 'text'],
  ['replica', 'text'],
  ['told_in', 'text'],
] as const;
/** Takes an array for each column, which the database reads in half the time of a JSON document. */
const INSERT = `${INSERT_INTO}
  from unnest(${COLUMNS.map(([, type], at) => `$${at + 1}::${type}[]`).join(', ')})
    as r (${COLUMNS.map(([name]) => name).join(', ')})`;
const paramsOf = (rows: readonly ReturnType<typeof encode>[]): readonly (string | null)[] =>
  COLUMNS.map(([name]) => arrayText(rows.map((row) => row[name])));

/**
 * Writes the current records of up to 500 tasks in one statement. Out-of-order and repeated batches are harmless:
 * (attempt, rank) never goes backwards. A final status is replaced only by the late COMPLETE of the last attempt. A row
 * that is there is as its task was accepted, or further, so a record of the acceptance only locks it. A record of
 * another workspace, which only a forged report of an agent can make, changes nothing. Ids must differ within a batch
 * (one row cannot be written twice by one statement).
 */
export async function upsertTaskRecords(db: Queryable, records: readonly TaskRecordRow[]): Promise<void> {
  await upsert(db, records, new Map(), '');
}

export interface WrittenRow {
  readonly isNew: boolean;
  /** Address that is told how the task ended; an adopted attempt does not know it. Absent: none. */
  readonly callbackUrl?: string | undefined;
  /** The row of events that told this task together with others, before. */
  readonly toldIn?: string | undefined;
}

/**
 * Writes records like `upsertTaskRecords`.
 * @param packs - id of the row of events that will tell a task together with others, if its row is new
 * @returns the tasks whose row is now as given; a final task whose record came too late, or again, is left out
 */
export async function upsertTaskRecordsSaying(
  db: Queryable,
  records: readonly TaskRecordRow[],
  packs: ReadonlyMap<TaskId, string> = new Map(),
): Promise<ReadonlyMap<TaskId, WrittenRow>> {
  const rows = await upsert(db, records, packs, SAYING);
  const written = new Map<TaskId, WrittenRow>();
  for (const row of rows)
    written.set(row.id as TaskId, {
      isNew: row.is_new === true,
      callbackUrl: row.callback_url ?? undefined,
      toldIn: row.told_in ?? undefined,
    });
  const left = records.filter((record) => isUnbegun(record) && !written.has(record.taskId));
  for (const taskId of await stillUnbegun(db, left)) written.set(taskId, { isNew: false });
  return written;
}

/** No transaction has replaced or locked a row that the statement inserts: its xmax is 0. */
const SAYING = `returning tasks.id, tasks.xmax = 0 as is_new, tasks.callback_url,
  case when tasks.xmax <> 0 then tasks.told_in end as told_in`;

/** Whether a record is that of its task's acceptance. */
const isUnbegun = ({ attempt, rank }: TaskRecordRow): boolean => attempt === 0 && rank === 0;

async function stillUnbegun(db: Queryable, records: readonly TaskRecordRow[]): Promise<readonly TaskId[]> {
  if (records.length === 0) return [];
  const { rows } = await db.query<{ id: string }>(
    'select id from tasks where id = any ($1::text[]) and attempt = 0 and rank = 0',
    [records.map(({ taskId }) => taskId)],
  );
  return rows.map(({ id }) => id as TaskId);
}

interface SaidRow {
  readonly id: string;
  readonly is_new?: boolean;
  readonly callback_url?: string | null;
  readonly told_in?: string | null;
}

async function upsert(
  db: Queryable,
  records: readonly TaskRecordRow[],
  packs: ReadonlyMap<TaskId, string>,
  returning: string,
): Promise<readonly SaidRow[]> {
  if (records.length === 0) return [];
  if (records.length > MAX_TASK_BATCH) throw new RangeError(`at most ${MAX_TASK_BATCH} task records at a time`);
  const { rows } = await db.query<SaidRow>(
    `${INSERT}
     on conflict (id) do update set status = excluded.status, attempt = excluded.attempt, rank = excluded.rank,
       container_id = excluded.container_id, failure_reason = excluded.failure_reason, result = excluded.result,
       result_object_id = excluded.result_object_id, started_at = excluded.started_at, ended_at = excluded.ended_at,
       deadline_at = excluded.deadline_at, duration_ms = excluded.duration_ms, container_hostname = excluded.container_hostname, updated_at = now(),
       past = coalesce(excluded.past, tasks.past), input_state = coalesce(excluded.input_state, tasks.input_state),
       input_bytes = coalesce(excluded.input_bytes, tasks.input_bytes),
       replica = excluded.replica, job = case when excluded.rank >= 3 then null else tasks.job end
     where tasks.workspace_id = excluded.workspace_id and (excluded.attempt > 0 or excluded.rank > 0) and
       case when tasks.rank >= 3 then tasks.rank = 3 and excluded.rank = 4 and excluded.attempt >= tasks.attempt
       else (excluded.attempt, excluded.rank) >= (tasks.attempt, tasks.rank) end ${returning}`,
    paramsOf(records.map((record) => encode(record, null, null, packs.get(record.taskId) ?? null))),
    { isPrepared: true },
  );
  return rows;
}

/** An asynchronous task with the queue entry it can be rebuilt from. */
export interface AcceptedTask {
  readonly record: TaskRecordRow;
  /** The queue entry, encoded. */
  readonly job: string;
  /** The scheduler process that accepted the task, and adds its job. */
  readonly owner: InstanceId;
}

/**
 * Commits up to 500 asynchronous tasks before their ids are returned.
 * A record that was drained first keeps its status and gets its job.
 */
export async function insertAcceptedTasks(db: Queryable, tasks: readonly AcceptedTask[]): Promise<void> {
  if (tasks.length === 0) return;
  const { sql, params } = acceptedTasksInsert(tasks);
  await db.query(sql(''), params, { isPrepared: true });
}

/**
 * The statement that accepts tasks, with the first parameters, for a
 * caller that writes more in the same step. `r` is a task in its `where`.
 */
export function acceptedTasksInsert(tasks: readonly AcceptedTask[]): {
  readonly sql: (where: string) => string;
  readonly params: readonly (string | null)[];
} {
  if (tasks.length > MAX_TASK_BATCH) throw new RangeError(`at most ${MAX_TASK_BATCH} tasks at a time`);
  const conflict = `on conflict (id) do update set job = excluded.job, owner = excluded.owner,
    input_state = excluded.input_state, input_bytes = excluded.input_bytes where tasks.workspace_id = excluded.workspace_id and tasks.rank < 3 and tasks.job is null`;
  return {
    sql: (where) => `${INSERT} ${where} ${conflict}`,
    params: paramsOf(tasks.map(({ record, job, owner }) => encode(record, job, owner))),
  };
}

/** Updates the queue entries of up to 500 asynchronous tasks that have not ended. The last entry of a task wins. */
export async function updateAcceptedJobs(
  db: Queryable,
  jobs: readonly { readonly taskId: TaskId; readonly job: string }[],
): Promise<void> {
  if (jobs.length === 0) return;
  if (jobs.length > MAX_TASK_BATCH) throw new RangeError(`at most ${MAX_TASK_BATCH} tasks at a time`);
  const last = new Map(jobs.map(({ taskId, job }) => [taskId, storableText(job)]));
  await db.query(
    `update tasks set job = r.job from json_to_recordset($1::json) as r (id text, job text)
     where tasks.id = r.id and tasks.rank < 3 and tasks.job is not null`,
    [JSON.stringify([...last].map(([id, job]) => ({ id, job })))],
  );
}

const WHOLE = `select ${BASE}, t.result, t.past from tasks t ${JOINS}`;

/** The task with its result; of any workspace, callers compare it. */
export function taskById(db: Queryable, id: string): Promise<TaskRow | undefined> {
  return maybeOne(db, `${WHOLE} where t.id = $1`, [id], map);
}

/** The same of up to 500 tasks, in any order. */
export async function tasksById(db: Queryable, ids: readonly TaskId[]): Promise<readonly TaskRow[]> {
  if (ids.length === 0) return [];
  if (ids.length > MAX_TASK_BATCH) throw new RangeError(`at most ${MAX_TASK_BATCH} tasks at a time`);
  return await many(db, `${WHOLE} where t.id = any ($1::text[])`, [ids], map);
}

export interface TaskRowFilter {
  readonly workspaceId: WorkspaceId;
  /** Tasks of the workspace when absent. public: calls that it made of others' deployments · all: both. */
  readonly whose?: 'public' | 'all';
  readonly limit: number;
  readonly ids?: readonly string[];
  readonly statuses?: readonly string[];
  readonly stubIds?: readonly string[];
  readonly stubNames?: readonly string[];
  readonly stubTypes?: readonly string[];
  readonly containerIds?: readonly string[];
  readonly deploymentIds?: readonly string[];
  /** Name of a deployment, whole: all versions. */
  readonly deploymentName?: string;
  readonly failureReasons?: readonly string[];
  /** Tasks whose inputs these reruns have. */
  readonly rerunOf?: readonly string[];
  readonly createdFromMs?: number;
  readonly createdToMs?: number;
  readonly appId?: string;
  /** Least duration, from start to end. */
  readonly minDurationMs?: number;
  readonly maxDurationMs?: number;
  readonly offset?: number;
  /** Whether results of tasks that failed come along, if they are short: they have the error. */
  readonly withErrors?: boolean;
  /** Whether only dead tasks of the workspace are returned, those that ended last first. */
  readonly dead?: boolean;
  /** Last row of the page before: only older tasks are returned. Of dead ones, the time is that of their end. */
  readonly before?: { readonly createdAtMs: number; readonly taskId: string };
}

/** Statuses of tasks that ended without a result; the index `tasks_failed` has the same. */
const FAILED_STATUSES = `'ERROR', 'TIMEOUT', 'CANCELLED', 'EXPIRED'`;
const OF_DEAD = 'i.workspace_id';
/** Columns of a page's order, falling. The input of a dead task is kept since its end. */
const ORDER = {
  't.workspace_id': 't.created_at, t.id',
  't.called_by': 't.created_at, t.id',
  [OF_DEAD]: 'i.kept_at, i.task_id',
} as const;

/**
 * Tasks of a workspace, or calls that it made of others' public deployments. Facts of
 * others' stubs are no filter: a caller could find names of theirs by trying them.
 */
const pageSql = (column: 't.workspace_id' | 't.called_by' | 'i.workspace_id', limit: string, result = 'null'): string =>
  `select ${BASE}, ${result} as result, null as past from ${column === OF_DEAD ? `task_inputs i join tasks t on t.id = i.task_id` : 'tasks t'} ${JOINS}
     where ${column} = $1 ${column === OF_DEAD ? `and ${DEAD}` : ''}
       and ($2::text[] is null or t.id = any ($2::text[]))
       and ($3::text[] is null or t.status = any ($3::text[]))
       and ($4::text[] is null or t.stub_id = any ($4::text[]))
       and ($5::text[] is null or (s.workspace_id = $1 and s.name = any ($5::text[])))
       and ($6::text[] is null or (s.workspace_id = $1 and s.type = any ($6::text[])))
       and ($7::text[] is null or t.container_id = any ($7::text[]))
       and ($8::text[] is null or t.deployment_id = any ($8::text[]))
       and ($9::timestamptz is null or t.created_at >= $9::timestamptz)
       and ($10::timestamptz is null or t.created_at <= $10::timestamptz)
       and ($11::timestamptz is null or (${ORDER[column]}) < ($11::timestamptz, $12::text))
       and ($13::text is null or (s.workspace_id = $1 and s.app_id = $13))
       and ($14::double precision is null or extract(epoch from t.ended_at - t.started_at) * 1000 >= $14)
       and ($15::double precision is null or extract(epoch from t.ended_at - t.started_at) * 1000 <= $15)
       and ($18::text[] is null or t.rerun_of = any ($18::text[]))
       and ($19::text[] is null or t.failure_reason = any ($19::text[]))
       and ($20::text is null or (d.workspace_id = $1 and d.name = $20 and t.stub_id = any (array(
         select n.stub_id from deployments n where n.workspace_id = $1 and n.name = $20))))
     order by ${ORDER[column].replaceAll(',', ' desc,')} desc limit ${limit}`;

/** Result of a task that failed. A longer one is left out, because it would be read whole for one line. */
const ERROR_RESULT = `case when t.status in (${FAILED_STATUSES}) and octet_length(t.result) <= 16384 then t.result end`;

/** Rows of each of two pages that are put together: an offset passes over rows of both. */
const SKIPPED = '$16::bigint + $17::bigint';

/** Tasks that match the filter, newest first, without results. An empty list in a filter matches nothing. */
export function listTasks(db: Queryable, filter: TaskRowFilter): Promise<TaskRow[]> {
  const { whose } = filter;
  const sql =
    whose === 'all'
      ? `select * from ((${pageSql('t.workspace_id', SKIPPED)}) union all (${pageSql('t.called_by', SKIPPED)})) found
         order by created_at desc, id desc limit $16 offset $17`
      : `${pageSql(filter.dead === true ? OF_DEAD : whose === 'public' ? 't.called_by' : 't.workspace_id', '$16', filter.withErrors === true ? ERROR_RESULT : 'null')} offset $17`;
  return many(
    db,
    sql,
    [
      filter.workspaceId,
      filter.ids ?? null,
      filter.statuses ?? null,
      filter.stubIds ?? null,
      filter.stubNames ?? null,
      filter.stubTypes ?? null,
      filter.containerIds ?? null,
      filter.deploymentIds ?? null,
      dateOrNull(filter.createdFromMs),
      dateOrNull(filter.createdToMs),
      dateOrNull(filter.before?.createdAtMs),
      filter.before?.taskId ?? null,
      filter.appId ?? null,
      filter.minDurationMs ?? null,
      filter.maxDurationMs ?? null,
      filter.limit,
      filter.offset ?? 0,
      filter.rerunOf ?? null,
      filter.failureReasons ?? null,
      filter.deploymentName ?? null,
    ],
    map,
  );
}

/** Rows of asynchronous tasks that have not ended; the same words as the index's, so that it serves. */
const OWNED = 'rank < 3 and owner is not null';

/** Scheduler processes that accepted asynchronous tasks which have not ended. */
export async function taskOwners(db: Queryable): Promise<readonly InstanceId[]> {
  const { rows } = await db.query<{ owner: string }>(
    `with recursive ${ownersOf('tasks', OWNED, 'owner')} select owner from owners where owner is not null`,
  );
  return rows.map((row) => row.owner as InstanceId);
}

/** An asynchronous task that had no attempt yet. */
export interface UnbegunTask {
  readonly taskId: TaskId;
  readonly queue: QueueName;
  /** Time as the database writes it, with its microseconds. */
  readonly createdAt: string;
  readonly createdAtMs: number;
}

interface RawUnbegun {
  readonly id: string;
  readonly queue: string;
  readonly created: string;
  readonly created_ms: number;
}
const UNBEGUN =
  'id, queue, created_at::text as created, (extract(epoch from created_at) * 1000)::double precision as created_ms';
const unbegunOf = (row: RawUnbegun): UnbegunTask => ({
  taskId: row.id as TaskId,
  queue: row.queue as QueueName,
  createdAt: row.created,
  createdAtMs: row.created_ms,
});

/**
 * Tasks of a scheduler process that had no attempt yet, oldest first.
 * @param sinceMs - older ones are left out; epoch milliseconds
 * @param after - the last one of the page before; absent: the first page
 */
export async function unbegunTasksOf(
  db: Queryable,
  owner: InstanceId,
  sinceMs: number,
  limit: number,
  after?: UnbegunTask,
): Promise<readonly UnbegunTask[]> {
  const { rows } = await db.query<RawUnbegun>(
    `select ${UNBEGUN} from tasks
     where ${OWNED} and owner = $1 and (created_at, id) > ($2::timestamptz, $3::text) and rank = 0
     order by created_at, id limit $4`,
    // The cursor alone says where the index is entered.
    [owner, after?.createdAt ?? new Date(Math.max(0, sinceMs)).toISOString(), after?.taskId ?? '', limit],
  );
  return rows.map(unbegunOf);
}

/** An asynchronous task that has not ended. */
export interface OwnedTask extends UnbegunTask {
  readonly owner: InstanceId;
  readonly rank: number;
}

/**
 * Asynchronous tasks that have not ended, by owner and age: as many rows of the index, whatever they are.
 * @param after - the last one of the page before; absent: the first page
 */
export async function ownedTasks(db: Queryable, limit: number, after?: OwnedTask): Promise<readonly OwnedTask[]> {
  const { rows } = await db.query<RawUnbegun & { readonly owner: string; readonly rank: number }>(
    `select ${UNBEGUN}, owner, rank from tasks
     where ${OWNED} and (owner, created_at, id) > ($1::text, $2::timestamptz, $3::text)
     order by owner, created_at, id limit $4`,
    [after?.owner ?? '', after?.createdAt ?? '-infinity', after?.taskId ?? '', limit],
  );
  return rows.map((row) => ({ ...unbegunOf(row), owner: row.owner as InstanceId, rank: row.rank }));
}

/** The queue entries of these tasks, as far as they have not ended, oldest first. */
export async function acceptedJobsOf(db: Queryable, taskIds: readonly TaskId[]): Promise<readonly string[]> {
  if (taskIds.length === 0) return [];
  const { rows } = await db.query<{ job: string }>(
    'select job from tasks where id = any ($1::text[]) and rank < 3 and job is not null order by created_at, id',
    [taskIds],
  );
  return rows.map(({ job }) => job);
}

/**
 * Tasks of every workspace that an attempt or a caller has had and whose row is not final and has not changed since, by
 * id. Asynchronous ones that only wait are left out. `after`: the last task of the page before.
 */
export function listOpenTasks(
  db: Queryable,
  filter: { readonly unchangedSinceMs: number; readonly limit: number; readonly after?: TaskId | undefined },
): Promise<TaskRow[]> {
  return many(
    db,
    `select ${BASE}, null as result, null as past from tasks t ${JOINS}
     where t.rank < 3 and (t.sync or t.rank > 0) and t.${IN_QUEUES} and t.updated_at < $1
       and ($3::text is null or t.id > $3) order by t.id limit $2`,
    [new Date(filter.unchangedSinceMs), filter.limit, filter.after ?? null],
    map,
  );
}

/** Ids of a queue's tasks that have not ended, by id. @param after - the last one of the page before */
export async function openTaskIdsOfQueue(
  db: Queryable,
  queue: QueueName,
  limit: number,
  after?: TaskId,
): Promise<TaskId[]> {
  const { rows } = await db.query<{ id: string }>(
    'select id from tasks where rank < 3 and queue = $1 and ($3::text is null or id > $3) order by id limit $2',
    [queue, limit, after ?? null],
  );
  return rows.map((row) => row.id as TaskId);
}

/** The queue entry that an asynchronous task can be rebuilt from, while it has not ended. */
export async function acceptedJobOf(db: Queryable, taskId: TaskId): Promise<string | undefined> {
  const { rows } = await db.query<{ job: string | null }>('select job from tasks where id = $1 and rank < 3', [taskId]);
  return rows[0]?.job ?? undefined;
}

/**
 * Queues with a task that has not ended, as far as records are written, by name.
 * @param after - the last one of the page before
 */
export async function openQueues(db: Queryable, limit = 1_000_000, after = ''): Promise<readonly QueueName[]> {
  const { rows } = await db.query<{ owner: string }>(
    `with recursive ${ownersOf('tasks', 'rank < 3', 'queue', '$1::text')}
     select owner from owners where owner is not null and owner <> '${DEFERRED_CALLS_QUEUE}' limit $2`,
    [after, limit],
  );
  return rows.map((row) => row.owner as QueueName);
}

/** Rows that wait; the same words as the index's, so that it serves. */
const WAITS = `rank < 3 and status <> 'RUNNING' and deadline_at is not null and ${IN_QUEUES}`;

/**
 * Waiting tasks whose deadline comes before that time, the earliest first; among those that are due, the first of every
 * workspace comes before the second of any. Synchronous ones are included only well after their deadline, because their
 * caller's replica ends them.
 * @param ofOne - most tasks of one workspace
 * @param without - tasks that are left out, because their rows lag behind their ends
 */
export async function waitingDeadlines(
  db: Queryable,
  beforeMs: number,
  limit: number,
  ofOne: number,
  without: readonly TaskId[] = [],
): Promise<{ taskId: TaskId; queue: QueueName; deadlineMs: number }[]> {
  const { rows } = await db.query<{ id: string; queue: string; deadline_at: Date }>(
    `with recursive ${ownersOf('tasks', WAITS)}
     select id, queue, deadline_at from owners cross join lateral (
       select id, queue, deadline_at, row_number() over (order by workspace_id, deadline_at) as turn from tasks
       where ${WAITS} and workspace_id = owners.owner and deadline_at < $1
         and (not sync or deadline_at < now() - interval '15 seconds') and id <> all ($4::text[])
       order by workspace_id, deadline_at limit $3
     ) as due
     order by greatest(deadline_at, now()), turn, deadline_at limit $2`,
    [new Date(beforeMs), limit, ofOne, without],
  );
  return rows.map((row) => ({
    taskId: row.id as TaskId,
    queue: row.queue as QueueName,
    deadlineMs: msOf(row.deadline_at),
  }));
}

/** The tasks among these that have ended. */
export async function endedTaskIds(db: Queryable, taskIds: readonly TaskId[]): Promise<TaskId[]> {
  const { rows } = await db.query<{ id: string }>('select id from tasks where id = any ($1::text[]) and rank >= 3', [
    taskIds,
  ]);
  return rows.map((row) => row.id as TaskId);
}

/** Attempts of those tasks among these that run, as far as their rows say. */
export async function runningAttempts(db: Queryable, taskIds: readonly TaskId[]): Promise<ReadonlyMap<TaskId, number>> {
  const { rows } = await db.query<{ id: string; attempt: number }>(
    'select id, attempt from tasks where id = any ($1::text[]) and rank = 1',
    [taskIds],
  );
  return new Map(rows.map(({ id, attempt }) => [id as TaskId, attempt]));
}

/** End of a page of ended tasks. */
export interface EndedCursor {
  /** Time as the database writes it, with its microseconds. */
  readonly endedAt: string;
  readonly id: string;
}

/** The next page of tasks that ended within the last hour of the database's clock, by the index of retention. */
export const ENDED_PAGE_SQL = `select id, queue, coalesce(ended_at, created_at)::text as ended from tasks
  where rank >= 3 and coalesce(ended_at, created_at) > now() - interval '1 hour'
    and ${IN_QUEUES} and (coalesce(ended_at, created_at), id) > ($1::timestamptz, $2::text)
  order by coalesce(ended_at, created_at), id limit $3`;

/**
 * Queues of tasks that ended within the last hour, a page of tasks at a time.
 * @param after - absent: the first page
 * @returns the queues of this page, each once, and where the next page begins; `next` is absent on the last page
 */
export async function queuesOfEnded(
  db: Queryable,
  limit: number,
  after?: EndedCursor,
): Promise<{ readonly queues: readonly QueueName[]; readonly next?: EndedCursor }> {
  const { rows } = await db.query<{ id: string; queue: string; ended: string }>(ENDED_PAGE_SQL, [
    after?.endedAt ?? '-infinity',
    after?.id ?? '',
    limit,
  ]);
  const queues = [...new Set(rows.map((row) => row.queue as QueueName))];
  const last = rows.at(-1);
  if (last === undefined || rows.length < limit) return { queues };
  return { queues, next: { endedAt: last.ended, id: last.id } };
}
