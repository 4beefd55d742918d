// Reads of events. Each goes along one index in the order of numbers, and looks at a bounded stretch of it: first the
// edge of the stretch is found, then the matching rows within are read. No statement therefore costs more than its
// stretch, however many events there are and however few of them match. A row that holds several events is read whole,
// also where an edge goes through it: its events are then cut and matched one by one.
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { Queryable } from '../db.ts';
import { maybeOne } from '../rows.ts';
import { MOST_EVENTS_OF_ROW } from '../../../domain/task-changes.ts';
import { EVENT_COLUMNS, OF_TASKS, eventTypesOf, eventsOf, firstSeqOf, rowTypesOf } from './events.ts';
import type { EventRow, RawEvent } from './events.ts';

/** Key of the index that events are read along. */
export interface EventKey {
  readonly workspaceId: WorkspaceId;
  readonly taskId?: string;
  readonly containerId?: string;
  readonly stubId?: string;
  readonly appId?: string;
  /** Kinds, each in full. Without an id above they are the key, each with a stretch of its own. */
  readonly types?: readonly string[];
}

export interface EventMatch extends EventKey {
  /** Begin of the kinds that are left out. */
  readonly withoutTypes?: string;
  /** Values of `data.action` that are left out. */
  readonly withoutActions?: readonly string[];
  readonly fromMs?: number;
  /** End of the time range, exclusive. */
  readonly toMs?: number;
}

/** Numbers from which events are read: newest first before `beforeSeq`, or oldest first after `afterSeq`. */
export type EventStart =
  | { readonly beforeSeq: number }
  | { readonly afterSeq: number; /** Last number to read. */ readonly untilSeq: number };

export interface EventRead extends EventRow {
  readonly dataBytes: number;
}

/** Events that one statement found. */
export interface EventStretch {
  /** In the direction of the read, and no more than were asked for. */
  readonly events: readonly EventRead[];
  /** Rows that were read. */
  readonly rows: number;
  /** Number where the next read begins, as `beforeSeq` or `afterSeq`; undefined: the stretch was read to its end. */
  readonly next: number | undefined;
}

type RawRead = RawEvent & {
  data_bytes: number;
  /** Events of the rows that were read up to this one. */
  total: number | bigint;
};
/** About the bytes that an event has beside the data of the row that holds it with others. */
const UNPACKED_BYTES = 300;
/** Rows that hold a number end at most so many behind it. */
const MOST_MORE = MOST_EVENTS_OF_ROW - 1;

const COLUMNS = EVENT_COLUMNS.split(', ')
  .map((name) => `e.${name}`)
  .join(', ');
const readsOf = (row: RawRead): readonly EventRead[] => {
  const events = eventsOf(row);
  const tasks = new Set(events.map(({ taskId }) => taskId)).size;
  const dataBytes = row.more === 0 ? row.data_bytes : Math.ceil(row.data_bytes / tasks) + UNPACKED_BYTES;
  return events.map((event) => ({ ...event, dataBytes }));
};

/** The column of the index that has the number behind it, and its value. */
function columnOf(key: EventKey): readonly [string, string] {
  if (key.taskId !== undefined) return ['task_id', key.taskId];
  if (key.containerId !== undefined) return ['container_id', key.containerId];
  if (key.stubId !== undefined) return ['stub_id', key.stubId];
  if (key.appId !== undefined) return ['app_id', key.appId];
  return ['workspace_id', key.workspaceId];
}

const isByTypes = (key: EventKey): key is EventKey & { readonly types: readonly string[] } =>
  key.types !== undefined && columnOf(key)[0] === 'workspace_id';

interface Statement {
  readonly sql: string;
  readonly params: readonly unknown[];
}

class Params {
  readonly values: unknown[] = [];
  add(value: unknown): string {
    this.values.push(value);
    return `$${this.values.length}`;
  }
}

const directionOf = (start: EventStart): string => ('beforeSeq' in start ? 'desc' : 'asc');

/** Events of the key from there on, as `e`, and the begin of a condition. */
function fromOf(key: EventKey, start: EventStart, edgeSeq: number | undefined, most: number, params: Params): string {
  const range = rangeOf(start, edgeSeq, params);
  if (key.taskId !== undefined) {
    const taskId = params.add(key.taskId);
    return `(select * from events where task_id = ${taskId}
      union all select * from events where id = (select told_in from tasks where id = ${taskId}) and ${OF_TASKS}
      ) e where ${range}`;
  }
  if (!isByTypes(key)) {
    const [column, value] = columnOf(key);
    return `events e where e.${column} = ${params.add(value)} and ${range}`;
  }
  return `unnest(${params.add(rowTypesOf(key.types))}::text[]) as t (type) cross join lateral (
      select * from events e where workspace_id = ${params.add(key.workspaceId)} and type = t.type and ${range}
      order by seq ${directionOf(start)} limit ${params.add(most)}) e where true`;
}

/** Rows that have a number of the range: the last one may end behind it. */
function rangeOf(start: EventStart, edgeSeq: number | undefined, params: Params): string {
  const isBack = 'beforeSeq' in start;
  const last = isBack ? start.beforeSeq - 1 : start.untilSeq;
  const end = isBack ? Infinity : (edgeSeq ?? Infinity);
  const edges = [
    `e.seq <= ${params.add(Math.min(last + MOST_MORE, end, Number.MAX_SAFE_INTEGER))}`,
    `e.seq - e.more <= ${params.add(last)}`,
    ...(isBack ? [] : [`e.seq > ${params.add(start.afterSeq)}`]),
    ...(isBack && edgeSeq !== undefined ? [`e.seq >= ${params.add(edgeSeq)}`] : []),
  ];
  return edges.join(' and ');
}

/** The statement of {@link eventEdge}. Exported for the test of its plan. */
export function edgeStatement(key: EventKey, start: EventStart, rows: number): Statement {
  const params = new Params();
  const from = fromOf(key, start, undefined, rows, params);
  const sql = `select e.seq, e.more, e.workspace_id from ${from}
     order by e.seq ${directionOf(start)} offset ${params.add(rows - 1)} limit 1`;
  return { sql, params: params.values };
}

/**
 * The `rows`th row of events from there, counted along the key's index.
 * @returns undefined: fewer exist
 */
export function eventEdge(
  db: Queryable,
  key: EventKey,
  start: EventStart,
  rows: number,
): Promise<EventEdge | undefined> {
  const { sql, params } = edgeStatement(key, start, rows);
  return maybeOne(db, sql, params, (row: { seq: number; more: number; workspace_id: string }) => ({
    seq: Number(row.seq),
    firstSeq: firstSeqOf(row),
    workspaceId: row.workspace_id,
  }));
}

/** The row at the end of a stretch. */
export interface EventEdge {
  /** Number of its last event. */
  readonly seq: number;
  /** Number of its first event. */
  readonly firstSeq: number;
  readonly workspaceId: string;
}

/**
 * Statement that reads rows until they have `most` events together: a row may hold many, and rows alone bound no page.
 * @param weight - number of events that a row `e` counts for, as SQL
 */
const bounded = (rows: string, weight: string, direction: string, most: string): string =>
  `select ${COLUMNS}, octet_length(e.data::text) as data_bytes, e.total from (
     select e.*, sum(${weight}) over (order by e.seq ${direction}) as total from (${rows}) e) e
   where e.total - (${weight}) < ${most} order by e.seq ${direction}`;

/** The statement of {@link readEvents}. Exported for the test of its plan. */
export function readStatement(
  match: EventMatch,
  start: EventStart,
  edgeSeq: number | undefined,
  limit: number,
  rows: number,
): Statement {
  const params = new Params();
  const where = [fromOf(match, start, edgeSeq, rows, params)];
  const add = (condition: string, given: unknown, end = ''): void => {
    if (given !== undefined) where.push(`${condition} ${params.add(given)}${end}`);
  };
  if (!isByTypes(match)) {
    if (columnOf(match)[0] !== 'workspace_id') add('e.workspace_id =', match.workspaceId);
    add('e.type = any (', match.types === undefined ? undefined : rowTypesOf(match.types), '::text[])');
  }
  add('e.container_id =', match.containerId);
  add('e.stub_id =', match.stubId);
  add('e.app_id =', match.appId);
  add('not starts_with(e.type,', match.withoutTypes, ')');
  add("coalesce(e.data ->> 'action', '') <> all (", match.withoutActions, '::text[])');
  add('e.at >=', match.fromMs === undefined ? undefined : new Date(match.fromMs));
  // A row of several events has the time of the latest; that of the earliest is in its data.
  if (match.toMs !== undefined)
    where.push(
      `(e.at < ${params.add(new Date(match.toMs))} or e.more > 0 and (e.data ->> 'from_ms')::float8 < ${params.add(match.toMs)})`,
    );
  const direction = directionOf(start);
  const most = params.add(limit);
  const sql = bounded(
    `select e.* from ${where.join(' and ')} order by e.seq ${direction} limit ${most}`,
    `e.more + 1`,
    direction,
    most,
  );
  return { sql, params: params.values };
}

/**
 * Events between there and the row at `edgeSeq`, itself included, in the direction that `start` says.
 * @param limit - most events, and about as many of rows that are read
 * @param edgeSeq - so near that few rows are read; undefined: to the end
 * @param rows - rows of the stretch, as the edge was looked for
 */
export async function readEvents(
  db: Queryable,
  match: EventMatch,
  start: EventStart,
  edgeSeq: number | undefined,
  limit: number,
  rows: number,
): Promise<EventStretch> {
  const { sql, params } = readStatement(match, start, edgeSeq, limit, rows);
  const { rows: found } = await db.query<RawRead>(sql, params);
  const isBack = 'beforeSeq' in start;
  const isWithin = ({ seq }: EventRow): boolean =>
    isBack ? seq < start.beforeSeq : seq > start.afterSeq && seq <= start.untilSeq;
  const events = found.flatMap((row) => {
    const some = readsOf(row).filter((event) => isWithin(event) && matches(event, match));
    return isBack ? some.toReversed() : some;
  });
  const last = events[limit - 1];
  if (last !== undefined) return { events: events.slice(0, limit), rows: found.length, next: last.seq };
  const lastRow = Number(found.at(-1)?.total ?? 0) >= limit ? found.at(-1) : undefined;
  const next = lastRow === undefined ? undefined : isBack ? firstSeqOf(lastRow) : Number(lastRow.seq);
  return { events, rows: found.length, next };
}

/** Whether an event is asked for whose row is: events of one row differ in kind, time, task and container. */
function matches({ type, atMs, taskId, containerId }: EventRow, match: EventMatch): boolean {
  const { types, fromMs = -Infinity, toMs = Infinity } = match;
  return (
    (types === undefined || types.includes(type)) &&
    (match.taskId === undefined || taskId === match.taskId) &&
    (match.containerId === undefined || containerId === match.containerId) &&
    atMs >= fromMs &&
    atMs < toMs
  );
}

/** The statement of {@link eventsAfter}: `$1` workspace, `$2` number, `$3` limit. */
export const AFTER_SQL = bounded(
  'select * from events where workspace_id = $1 and seq > $2 order by seq limit $3',
  'least(e.more + 1, e.seq - $2)',
  'asc',
  '$3',
);

/**
 * The next events of a workspace, oldest first.
 * @param most - a few more come, where they share a row; fewer than that: these are all
 */
export async function eventsAfter(
  db: Queryable,
  workspaceId: string,
  seq: number,
  most: number,
): Promise<readonly EventRead[]> {
  const { rows: found } = await db.query<RawRead>(AFTER_SQL, [workspaceId, seq, most]);
  return found.flatMap(readsOf).filter((event) => event.seq > seq);
}

/** Number of the last event of each of these workspaces; a workspace without an event is left out. */
export async function lastSeqs(db: Queryable, workspaceIds: readonly string[]): Promise<ReadonlyMap<string, number>> {
  const { rows } = await db.query<{ workspace_id: string; last_seq: number | bigint }>(
    'select workspace_id, last_seq from event_counters where workspace_id = any ($1::text[])',
    [workspaceIds],
  );
  return new Map(rows.map((row) => [row.workspace_id, Number(row.last_seq)]));
}

/**
 * Finds a time by halving the range of numbers: rows are stored about in the order of their numbers. `$1` workspace,
 * `$2` time. Exported for the test of its plan.
 */
export const SEQ_AT_SQL = `with recursive s (low, high) as (
    select coalesce((select seq - more from events where workspace_id = $1 order by seq limit 1), 1),
      coalesce((select seq from events where workspace_id = $1 order by seq desc limit 1), 0) + 1
    union all
    select case when p.stored_at < $2 then p.seq + 1 else s.low end,
      case when p.stored_at < $2 then s.high else (s.low + s.high) / 2 end
    from s cross join lateral (
      select seq, stored_at from events where workspace_id = $1 and seq >= (s.low + s.high) / 2 order by seq limit 1) p
    where s.low < s.high)
  select low from s where low >= high limit 1`;

/** Smallest number whose event was stored at that time or later; one above the last where none was. */
export async function seqAt(db: Queryable, workspaceId: string, ms: number): Promise<number> {
  const { rows } = await db.query<{ low: number | bigint }>(SEQ_AT_SQL, [workspaceId, new Date(ms)]);
  return Number(rows[0]?.low ?? 1);
}

/** Most kinds of a workspace that are found. */
const MOST_TYPES = 500;
/** Jumps from kind to kind in their index. `$1` workspace. Exported for the test of its plan. */
export const TYPES_SQL = `with recursive t (type, n) as (
    (select type, 1 from events where workspace_id = $1 order by type limit 1)
    union all
    select p.type, t.n + 1 from t cross join lateral (
      select type from events where workspace_id = $1 and type > t.type order by type limit 1) p
    where t.n < ${MOST_TYPES})
  select type from t`;

/** Kinds that a workspace has events of, at most 500. */
export async function typesOf(db: Queryable, workspaceId: string): Promise<readonly string[]> {
  const { rows } = await db.query<{ type: string }>(TYPES_SQL, [workspaceId]);
  return eventTypesOf(rows.map(({ type }) => type));
}
