import type { ContainerId, DeploymentId, MachineId, StubId, TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Queryable } from '../db.ts';
import { MOST_LINES_OF_ROW, rowsOfLines, SPAN_OF_ROW_MS } from '../log-rows.ts';
import { many, maybeOne, msOf } from '../rows.ts';
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
  /** Milliseconds of each line behind the first, where `line` has several; see shared/domain/log-lines.ts. */
  readonly afterMs?: readonly number[] | undefined;
}

export interface LogLineRow extends Omit<NewLogLine, 'afterMs'> {
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
/** The lines of a row `l`, with their places from 1 on. */
const LINES_OF_ROW = `unnest(case when l.line_count = 1 then array[l.line] else string_to_array(l.line, E'\\n') end,
  coalesce(l.after_ms, array[0])) with ordinality as one (line, after_ms, place)`;
const LINE_ID = '(l.id - l.line_count + one.place)';
const LINE_AT = "(l.at + one.after_ms * interval '1 millisecond')";
const COLUMNS = `${LINE_ID} as id, l.workspace_id, l.stub_id, l.deployment_id, l.container_id, l.task_id, l.stream, one.line, ${LINE_AT} as at`;
const map = (row: Raw): LogLineRow => ({
  id: Number(row.id),
  workspaceId: row.workspace_id as WorkspaceId,
  stubId: row.stub_id as StubId,
  deploymentId: row.deployment_id as DeploymentId | null,
  containerId: row.container_id as ContainerId,
  taskId: row.task_id as TaskId | null,
  stream: row.stream === 'stderr' ? 'stderr' : 'stdout',
  line: row.line,
  atMs: msOf(row.at),
});

/** Most lines of one statement, or records of several lines. */
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

/** A machine's batch of lines. */
export interface NumberedBatch {
  readonly machineId: MachineId;
  /** The agent's process. */
  readonly sender: string;
  /** The batch's number among those of that sender. */
  readonly seq: number;
}

/**
 * Appends up to 1 000 lines in the order given, and counts their bytes for their workspaces in the same statement.
 * Ids of a workspace's lines are in the order of commits: its row of `log_clocks` is locked before they are taken.
 * @param nowMs - the day of UTC that they count for
 * @param batch - the lines are written unless this batch, or a later one of its sender, was written before
 * @returns empty: nothing was written
 */
export async function insertLogLines(
  db: Queryable,
  lines: readonly NewLogLine[],
  nowMs: number = Date.now(),
  batch?: NumberedBatch,
): Promise<ReadonlyMap<WorkspaceId, LogWritten>> {
  if (lines.length === 0) return new Map();
  if (lines.length > MAX_LOG_BATCH) throw new RangeError(`at most ${MAX_LOG_BATCH} log lines at a time`);
  // Clocks are locked in the order of the workspaces, so that two such statements at once wait for each other and never
  // deadlock. The sort of the lines needs all of the locks before the first id is taken, and the sort of the workspaces
  // needs the lock of the sender.
  const { rows } = await db.query<{ workspace_id: string; log_bytes: number; last_id: number | bigint }>(
    `with r as materialized (
       select * from json_to_recordset($1::json) as r (n integer, workspace_id text, stub_id text, deployment_id text, container_id text,
         task_id text, stream text, line text, at_s double precision, line_count smallint, after_ms integer[])),
     owners as materialized (
       select workspace_id, sum(octet_length(line) + 1 + line_count * ${LINE_OVERHEAD_BYTES - 1}) as bytes from r group by workspace_id),
     fresh as (
       insert into log_senders as s (machine_id, sender, seq) select $3::text, $4::uuid, $5::bigint where $3::text is not null
       on conflict (machine_id) do update set sender = excluded.sender, seq = excluded.seq
       where s.sender <> excluded.sender or s.seq < excluded.seq returning 1),
     allowed as (select from fresh union all select where $3::text is null),
     locked as (
       insert into log_clocks as c (workspace_id, turns) select workspace_id, 1 from owners cross join allowed order by workspace_id
       on conflict (workspace_id) do update set turns = c.turns + 1 returning workspace_id),
     written as (
       insert into log_lines (workspace_id, stub_id, deployment_id, container_id, task_id, stream, line, at, line_count, after_ms)
       select r.workspace_id, r.stub_id, r.deployment_id, r.container_id, r.task_id, r.stream, r.line, to_timestamp(r.at_s),
         r.line_count, r.after_ms
       from r join locked using (workspace_id) order by r.n
       returning id, workspace_id),
     counted as (
       insert into workspace_usage as u (day, workspace_id, log_bytes)
       select $2::date, workspace_id, bytes from owners join locked using (workspace_id) order by workspace_id
       on conflict (day, workspace_id) do update set log_bytes = u.log_bytes + excluded.log_bytes
       returning workspace_id, log_bytes::float8 as log_bytes)
     select counted.workspace_id, counted.log_bytes, max(written.id) as last_id
     from counted join written using (workspace_id) group by counted.workspace_id, counted.log_bytes`,
    [
      JSON.stringify(rowsOfLines(lines)),
      dayOf(nowMs),
      batch?.machineId ?? null,
      batch?.sender ?? null,
      batch?.seq ?? null,
    ],
    { isPrepared: true },
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

/** The column of the index that lines are read by, which has the id as its second column; and its value. */
function indexOf(key: LogKey): readonly [string, string] {
  if (key.containerId !== undefined) return ['container_id', key.containerId];
  if (key.taskId !== undefined) return ['task_id', key.taskId];
  if (key.deploymentId !== undefined) return ['deployment_id', key.deploymentId];
  if (key.stubId !== undefined) return ['stub_id', key.stubId];
  return ['workspace_id', key.workspaceId];
}

/** Columns whose index leaves out rows without a value. */
const OPTIONAL = new Set(['task_id', 'deployment_id']);

interface Rows {
  readonly where: string;
  readonly order: string;
}

/**
 * Condition and order of rows `l` by an index. Both compare pairs, since the planner would else read the table by its
 * key where it expects many rows of the value: past all newer rows of others, if the value's own rows are older.
 * @param from - SQL of the first id; absent: from the first one
 * @param to - SQL of the last id, itself included; absent: to the last one
 */
function byIndex(column: string, isBefore: boolean, from?: string, to?: string): Rows {
  const direction = isBefore ? 'desc' : 'asc';
  const bounds = [
    from === undefined ? `l.${column} >= $1` : `(l.${column}, l.id) >= ($1, ${from})`,
    to === undefined ? `l.${column} <= $1` : `(l.${column}, l.id) <= ($1, ${to})`,
    ...(OPTIONAL.has(column) ? [`l.${column} is not null`] : []),
  ];
  return { where: bounds.join(' and '), order: `l.${column} ${direction}, l.id ${direction}` };
}

/**
 * Rows that have a line behind or before an id, up to an edge. The id of a row is that of its last line.
 * @param edge - SQL of the id of the last line that is wanted, in the direction of reading
 */
function rowsFrom(column: string, isBefore: boolean, edge?: string): Rows {
  if (!isBefore) {
    const to = edge === undefined ? undefined : `${edge}::bigint + ${MOST_LINES_OF_ROW - 1}`;
    const rows = byIndex(column, isBefore, '$2::bigint + 1', to);
    return edge === undefined ? rows : { ...rows, where: `${rows.where} and l.id - l.line_count + 1 <= ${edge}` };
  }
  const rows = byIndex(column, isBefore, edge, `$2::bigint + ${MOST_LINES_OF_ROW - 2}`);
  return { ...rows, where: `${rows.where} and l.id - l.line_count + 1 < $2` };
}

/**
 * The line at about the `lines`th place from there, counted over the whole index, which includes other workspaces'
 * lines where the id is one of theirs: the end of the row that reaches that number, in the direction of reading.
 * @returns undefined: fewer lines exist
 */
export function logEdge(
  db: Queryable,
  key: LogKey,
  start: LogStart,
  lines: number,
): Promise<{ readonly id: number; readonly atMs: number; readonly workspaceId: string } | undefined> {
  const [column, value] = indexOf(key);
  const [isBefore, from] = 'beforeId' in start ? [true, start.beforeId] : [false, start.afterId];
  const rows = rowsFrom(column, isBefore);
  return maybeOne(
    db,
    `select ${isBefore ? 'id - line_count + 1' : 'id'} as id, at, workspace_id from (
       select l.id, l.line_count, l.at, l.workspace_id,
         sum(l.line_count) over (order by ${rows.order} rows unbounded preceding) as lines
       from log_lines l where ${rows.where} order by ${rows.order} limit $3) counted
     where lines >= $3 order by counted.id ${isBefore ? 'desc' : 'asc'} limit 1`,
    [value, from, lines],
    (row: { id: number; at: Date; workspace_id: string }) => ({
      id: Number(row.id),
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
  if (edgeId !== undefined) params.push(edgeId);
  const rows = rowsFrom(column, isBefore, edgeId === undefined ? undefined : '$3');
  const ofRows = [rows.where];
  const ofLines = [`${LINE_ID} ${isBefore ? '<' : '>'} $2`];
  if (edgeId !== undefined) ofLines.push(`${LINE_ID} ${isBefore ? '>=' : '<='} $3`);
  /** Adds a condition on rows, and one on their lines where that says more; with the place of the value as `?`. */
  const add = (given: unknown, row: string, line?: string): void => {
    if (given === undefined) return;
    params.push(given);
    const place = `$${params.length}`;
    ofRows.push(row.replaceAll('?', place));
    if (line !== undefined) ofLines.push(line.replaceAll('?', place));
  };
  const isWhole = column === 'workspace_id';
  if (!isWhole) add(match.workspaceId, 'l.workspace_id = ?');
  const workspace = isWhole ? '$1' : `$${params.length}`;
  add(match.containerId, 'l.container_id = ?');
  add(match.taskId, 'l.task_id = ?');
  add(match.deploymentId, 'l.deployment_id = ?');
  add(match.stubId, 'l.stub_id = ?');
  add(match.appId, `l.stub_id in (select s.id from stubs s where s.workspace_id = ${workspace} and s.app_id = ?)`);
  add(
    match.machineId,
    `l.container_id in (select c.id from containers c where c.workspace_id = ${workspace} and c.machine_id = ?)`,
  );
  // Rows are compared first, and then their lines: few rows are taken apart.
  const places = ofLines.length;
  const span = `interval '${SPAN_OF_ROW_MS} milliseconds'`;
  add(dateOf(match.fromMs), `l.at > ?::timestamptz - ${span}`, `${LINE_AT} >= ?`);
  add(dateOf(match.toMs), `l.at < ?::timestamptz + ${span}`, `${LINE_AT} < ?`);
  const has = (text: string): string => `strpos(lower(${text}), lower(?::text)) > 0`;
  if (match.contains !== '') add(match.contains, has('l.line'), has('one.line'));
  params.push(limit);
  const most = `limit $${params.length}`;
  // Each row has a line that is wanted, unless single lines are filtered: so many rows are enough.
  const mostRows = ofLines.length === places ? most : '';
  return many(
    db,
    `select ${COLUMNS}
     from (select * from log_lines l where ${ofRows.join(' and ')} order by ${rows.order} ${mostRows}) l
     cross join lateral ${LINES_OF_ROW} where ${ofLines.join(' and ')}
     order by ${rows.order}, one.place ${isBefore ? 'desc' : 'asc'} ${most}`,
    params,
    map,
  );
}

const dateOf = (ms: number | undefined): Date | undefined => (ms === undefined ? undefined : new Date(ms));

/** Statement for the id of a workspace's last line, by the index of workspaces (see `byIndex`). */
export const lastOf = (workspace: string): string =>
  `select l.id from log_lines l where l.workspace_id >= ${workspace} and l.workspace_id <= ${workspace}
   order by l.workspace_id desc, l.id desc limit 1`;

/** Id of the last line of each of these workspaces; 0 where there is none. */
export async function lastLogIds(
  db: Queryable,
  workspaceIds: readonly WorkspaceId[],
): Promise<ReadonlyMap<WorkspaceId, number>> {
  const { rows } = await db.query<{ id: string; last: number | bigint | null }>(
    `select w.id, (${lastOf('w.id')}) as last from unnest($1::text[]) as w (id)`,
    [workspaceIds],
  );
  return new Map(rows.map(({ id, last }) => [id as WorkspaceId, Number(last ?? 0)]));
}

/**
 * Id of the first line of a workspace that was printed at that time or later, found by halving: lines come roughly in
 * the order of their times. Behind all lines: one more than the last id.
 */
export async function logIdAt(db: Queryable, workspaceId: WorkspaceId, ms: number): Promise<number> {
  const [all, middle, first] = [undefined, '(halves.low + halves.high) / 2', 'found.low'].map((from) =>
    byIndex('workspace_id', false, from),
  ) as [Rows, Rows, Rows];
  const { rows } = await db.query<{ id: number | bigint }>(
    `with recursive halves (low, high) as (
       select coalesce((select l.id from log_lines l where ${all.where} order by ${all.order} limit 1), 1),
         coalesce((${lastOf('$1')}), 0) + 1
       union all
       select case when row.at < $2 then row.id + 1 else halves.low end,
         case when row.at < $2 then halves.high else (halves.low + halves.high) / 2 end
       from halves cross join lateral (
         select l.id, l.at + coalesce(l.after_ms[l.line_count], 0) * interval '1 millisecond' as at
         from log_lines l where ${middle.where} order by ${middle.order} limit 1) row
       where halves.low < halves.high),
     found as (select low from halves order by high - low limit 1)
     select coalesce((
       select ${LINE_ID} from (select * from log_lines l where ${first.where} order by ${first.order} limit 1) l
       cross join lateral ${LINES_OF_ROW} where ${LINE_AT} >= $2 order by one.place limit 1), found.low) as id
     from found`,
    [workspaceId, new Date(ms)],
  );
  return Number(rows[0]?.id ?? 1);
}
