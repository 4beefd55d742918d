import type { ContainerId, DeploymentId, StubId, TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Queryable } from '../db.ts';
import { many, maybeOne, msOf, storableText } from '../rows.ts';
import { dayOf } from './quotas.ts';

export interface NewLogLine {
  readonly workspaceId: WorkspaceId;
  readonly stubId: StubId;
  readonly deploymentId: DeploymentId | null;
  readonly containerId: ContainerId;
  readonly taskId: TaskId | null;
  readonly stream: 'stdout' | 'stderr';
  readonly line: string;
  readonly atMs: number;
}

export interface LogLineRow extends NewLogLine {
  /** Id of the line; grows in the order of arrival. */
  readonly id: number;
}

interface Raw {
  id: number;
  workspace_id: string;
  stub_id: string;
  deployment_id: string | null;
  container_id: string;
  task_id: string | null;
  stream: string;
  line: string;
  at: Date;
}
const COLUMNS = 'id, workspace_id, stub_id, deployment_id, container_id, task_id, stream, line, at';
const map = (row: Raw): LogLineRow => ({
  id: row.id,
  workspaceId: row.workspace_id as WorkspaceId,
  stubId: row.stub_id as StubId,
  deploymentId: row.deployment_id as DeploymentId | null,
  containerId: row.container_id as ContainerId,
  taskId: row.task_id as TaskId | null,
  stream: row.stream === 'stderr' ? 'stderr' : 'stdout',
  line: row.line,
  atMs: msOf(row.at),
});

/** Most lines of one statement. */
export const MAX_LOG_BATCH = 1_000;

/** Bytes that a line costs beside its text: empty lines are not free. */
export const LINE_OVERHEAD_BYTES = 64;

/** A workspace whose lines were written. */
export interface LogWritten {
  /** Bytes that the workspace has written on that day, on every replica. */
  readonly dayBytes: number;
  /** Id of the last of these lines. */
  readonly lastId: number;
}

/**
 * Appends up to 1 000 lines in the order given, and counts their bytes for their workspaces in the same statement.
 * Ids of a workspace's lines are in the order of commits: its row of `log_clocks` is locked before they are taken.
 * @param nowMs - the day of UTC that they count for
 */
export async function insertLogLines(
  db: Queryable,
  lines: readonly NewLogLine[],
  nowMs: number = Date.now(),
): Promise<ReadonlyMap<WorkspaceId, LogWritten>> {
  if (lines.length === 0) return new Map();
  if (lines.length > MAX_LOG_BATCH) throw new RangeError(`at most ${MAX_LOG_BATCH} log lines at a time`);
  const records = lines.map((line, index) => ({
    n: index,
    workspace_id: line.workspaceId,
    stub_id: line.stubId,
    deployment_id: line.deploymentId,
    container_id: line.containerId,
    task_id: line.taskId,
    stream: line.stream,
    line: storableText(line.line),
    at_s: line.atMs / 1000,
  }));
  // Clocks are locked in the order of the workspaces, so that two such statements at once wait for each other and never
  // deadlock. The sort of the lines needs all of the locks before the first id is taken.
  const { rows } = await db.query<{ workspace_id: string; log_bytes: number; last_id: number | bigint }>(
    `with r as materialized (
       select * from json_to_recordset($1::json) as r (n integer, workspace_id text, stub_id text, deployment_id text, container_id text,
         task_id text, stream text, line text, at_s double precision)),
     owners as materialized (
       select workspace_id, sum(octet_length(line) + ${LINE_OVERHEAD_BYTES}) as bytes from r group by workspace_id),
     locked as (
       insert into log_clocks as c (workspace_id, turns) select workspace_id, 1 from owners order by workspace_id
       on conflict (workspace_id) do update set turns = c.turns + 1 returning workspace_id),
     written as (
       insert into log_lines (workspace_id, stub_id, deployment_id, container_id, task_id, stream, line, at)
       select r.workspace_id, r.stub_id, r.deployment_id, r.container_id, r.task_id, r.stream, r.line, to_timestamp(r.at_s)
       from r join locked using (workspace_id) order by r.n
       returning id, workspace_id),
     counted as (
       insert into workspace_usage as u (day, workspace_id, log_bytes)
       select $2::date, workspace_id, bytes from owners join locked using (workspace_id) order by workspace_id
       on conflict (day, workspace_id) do update set log_bytes = u.log_bytes + excluded.log_bytes
       returning workspace_id, log_bytes::float8 as log_bytes)
     select counted.workspace_id, counted.log_bytes, max(written.id) as last_id
     from counted join written using (workspace_id) group by counted.workspace_id, counted.log_bytes`,
    [JSON.stringify(records), dayOf(nowMs)],
  );
  return new Map(
    rows.map((row) => [row.workspace_id as WorkspaceId, { dayBytes: row.log_bytes, lastId: Number(row.last_id) }]),
  );
}

/** Key of the index that lines are read by. */
export interface LogKey {
  readonly workspaceId: WorkspaceId;
  readonly containerId?: string;
  readonly taskId?: string;
  readonly deploymentId?: string;
  readonly stubId?: string;
}

/** Filter on the lines that are read. */
export interface LogMatch extends LogKey {
  readonly appId?: string;
  /** The machine where the line's container was last. */
  readonly machineId?: string;
  /** Case-insensitive part of the line. */
  readonly contains?: string;
  readonly fromMs?: number;
  /** End of the time range, exclusive. */
  readonly toMs?: number;
}

/** Ids from which lines are read: newest first before `beforeId`, or oldest first after `afterId`. */
export type LogStart = { readonly beforeId: number } | { readonly afterId: number };

/** The condition of one index, which has the id as its second column. */
function indexOf(key: LogKey): readonly [string, string] {
  if (key.containerId !== undefined) return ['container_id', key.containerId];
  if (key.taskId !== undefined) return ['task_id', key.taskId];
  if (key.deploymentId !== undefined) return ['deployment_id', key.deploymentId];
  if (key.stubId !== undefined) return ['stub_id', key.stubId];
  return ['workspace_id', key.workspaceId];
}

/**
 * The `rows`th line from there, counted over the whole index, which
 * includes other workspaces' lines where the id is one of theirs.
 * @returns undefined: fewer lines exist
 */
export function logEdge(
  db: Queryable,
  key: LogKey,
  start: LogStart,
  rows: number,
): Promise<{ readonly id: number; readonly atMs: number; readonly workspaceId: string } | undefined> {
  const [column, value] = indexOf(key);
  const [isBefore, from] = 'beforeId' in start ? [true, start.beforeId] : [false, start.afterId];
  return maybeOne(
    db,
    `select id, at, workspace_id from log_lines where ${column} = $1 and id ${isBefore ? '<' : '>'} $2
     order by id ${isBefore ? 'desc' : 'asc'} offset $3 limit 1`,
    [value, from, rows - 1],
    (row: { id: number; at: Date; workspace_id: string }) => ({
      id: row.id,
      atMs: msOf(row.at),
      workspaceId: row.workspace_id,
    }),
  );
}

/**
 * Lines between there and `edgeId`, itself included, in the direction that `start` says. The caller chooses an edge so
 * near that few rows are read, because a statement on PGlite cannot be cancelled.
 * @param edgeId - undefined: to the end
 */
export function readLogLines(
  db: Queryable,
  match: LogMatch,
  start: LogStart,
  edgeId: number | undefined,
  limit: number,
): Promise<LogLineRow[]> {
  const [column, value] = indexOf(match);
  const isBefore = 'beforeId' in start;
  const params: unknown[] = [value, isBefore ? start.beforeId : start.afterId];
  const where = [`${column} = $1`, `id ${isBefore ? '<' : '>'} $2`];
  const add = (condition: string, given: unknown, end = ''): void => {
    if (given === undefined) return;
    params.push(given);
    where.push(`${condition} $${params.length}${end}`);
  };
  add(`id ${isBefore ? '>=' : '<='}`, edgeId);
  add('workspace_id =', match.workspaceId);
  const workspace = `$${params.length}`;
  add('container_id =', match.containerId);
  add('task_id =', match.taskId);
  add('deployment_id =', match.deploymentId);
  add('stub_id =', match.stubId);
  add(`stub_id in (select s.id from stubs s where s.workspace_id = ${workspace} and s.app_id =`, match.appId, ')');
  const onMachine = `container_id in (select c.id from containers c where c.workspace_id = ${workspace} and c.machine_id =`;
  add(onMachine, match.machineId, ')');
  add('at >=', match.fromMs === undefined ? undefined : new Date(match.fromMs));
  add('at <', match.toMs === undefined ? undefined : new Date(match.toMs));
  if (match.contains !== undefined && match.contains !== '') {
    params.push(match.contains);
    where.push(`strpos(lower(line), lower($${params.length}::text)) > 0`);
  }
  params.push(limit);
  return many(
    db,
    `select ${COLUMNS} from log_lines where ${where.join(' and ')}
     order by id ${isBefore ? 'desc' : 'asc'} limit $${params.length}`,
    params,
    map,
  );
}
