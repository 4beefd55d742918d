// Deliveries of webhooks: pages of events behind a cursor, outcomes in batches, tries that are due.
import type { DeliveryId, WebhookId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Queryable } from '../db.ts';
import { many, maybeOne, msOf, msOrNull, storableText } from '../rows.ts';
import { MOST_EVENTS_OF_ROW, PACKED_TYPE } from '../../../domain/task-changes.ts';
import { EVENT_COLUMNS, TASKS_OF_ROW, eventsOf, rowTypesOf } from './events.ts';
import type { EventRow, RawEvent } from './events.ts';
import type { LastDelivery } from './webhooks.ts';

export type WebhookDeliveryState = 'delivered' | 'failed' | 'waiting';

export interface WebhookDeliveryRow {
  readonly id: DeliveryId;
  readonly webhookId: WebhookId;
  /** Number of the event in its workspace; null: a test. */
  readonly eventSeq: number | null;
  readonly eventId: string;
  readonly eventType: string;
  readonly subject: string;
  readonly state: WebhookDeliveryState;
  readonly attempts: number;
  readonly statusCode: number | null;
  readonly error: string;
  readonly durationMs: number | null;
  readonly dueAtMs: number | null;
  readonly createdAtMs: number;
  readonly updatedAtMs: number;
}

interface Raw {
  id: string;
  webhook_id: string;
  event_seq: number | bigint | null;
  event_id: string;
  event_type: string;
  subject: string;
  state: string;
  attempts: number;
  status_code: number | null;
  error: string;
  duration_ms: number | null;
  due_at: Date | null;
  created_at: Date;
  updated_at: Date;
}
const COLUMNS =
  'id, webhook_id, event_seq, event_id, event_type, subject, state, attempts, status_code, error, duration_ms, due_at, created_at, updated_at';
const map = (row: Raw): WebhookDeliveryRow => ({
  id: row.id as DeliveryId,
  webhookId: row.webhook_id as WebhookId,
  eventSeq: row.event_seq === null ? null : Number(row.event_seq),
  eventId: row.event_id,
  eventType: row.event_type,
  subject: row.subject,
  state: row.state as WebhookDeliveryState,
  attempts: row.attempts,
  statusCode: row.status_code,
  error: row.error,
  durationMs: row.duration_ms,
  dueAtMs: msOrNull(row.due_at),
  createdAtMs: msOf(row.created_at),
  updatedAtMs: msOf(row.updated_at),
});

/** Bytes of an event's data above which the recipe of a stub is left out, so that a page stays small. */
const LARGE_DATA = 200_000;
const EVENT_NAMES = EVENT_COLUMNS.split(', ').filter((name) => name !== 'data');
const TRIMMED = `case when octet_length(data::text) > ${LARGE_DATA} and json_typeof(data) = 'object'
  then (data::jsonb - 'stub_config')::json else data end`;

export interface EventPage {
  readonly events: readonly EventRow[];
  /** The events of the page are all that match up to this number. */
  readonly upTo: number;
  /** Last event of the workspace. */
  readonly lastSeq: number;
  /** Oldest event that is kept; undefined: none is. */
  readonly oldestSeq: number | undefined;
  /** Last change of the webhook, epoch milliseconds; undefined: it is gone or inactive. */
  readonly webhookAtMs: number | undefined;
}

/** Most numbers that one read goes through: a filter that nothing matches costs no long statement. */
const WINDOW = 2_000;

/**
 * Events of these types behind a number, in order, for a webhook. The list of types is exact: prefixes are resolved
 * before.
 * @param limit - most events; a few more come, where they share a row
 */
export async function eventsBehind(
  db: Queryable,
  { id, workspaceId }: { readonly id: WebhookId; readonly workspaceId: WorkspaceId },
  afterSeq: number,
  types: readonly string[],
  limit: number,
): Promise<EventPage> {
  const { rows } = await db.query<
    { bound_last: number | bigint; bound_first: number | bigint | null; bound_at: Date | null } & {
      [name in keyof RawEvent]: RawEvent[name] | null;
    } & { total: number | bigint }
  >(
    `with bound as materialized (
       select coalesce((select last_seq from event_counters where workspace_id = $1), 0)::bigint as last_seq,
         (select seq - more from events where workspace_id = $1 order by seq limit 1) as first_seq,
         (select updated_at from webhooks where id = $5 and active) as webhook_at),
     near as (
       select e.* from events e, bound
       where e.workspace_id = $1 and e.seq > $2::bigint
         and e.seq <= least($2::bigint + ${WINDOW}, bound.last_seq) + ${MOST_EVENTS_OF_ROW - 1}
         and e.seq - e.more <= least($2::bigint + ${WINDOW}, bound.last_seq) and e.type = any ($3::text[])
       order by e.seq limit $4),
     page as (
       select ${EVENT_NAMES.join(', ')}, total, ${TRIMMED} as data
       from (select *, sum(more + 1) over (order by seq) as total from near) n where total - more - 1 < $4)
     select bound.last_seq as bound_last, bound.first_seq as bound_first, bound.webhook_at as bound_at, page.*
     from bound left join page on true order by page.seq`,
    [workspaceId, afterSeq, rowTypesOf(types), limit, id],
  );
  const found = rows.filter((row): row is RawEvent & typeof row => row.seq !== null);
  const lastSeq = Number(rows[0]?.bound_last ?? 0);
  const first = rows[0]?.bound_first ?? null;
  const windowEnd = Math.min(afterSeq + WINDOW, lastSeq);
  const last = found.at(-1);
  const upTo = last !== undefined && Number(last.total) >= limit ? Math.min(Number(last.seq), windowEnd) : windowEnd;
  const events = found
    .flatMap(eventsOf)
    .filter(({ seq, type }) => seq > afterSeq && seq <= upTo && types.includes(type));
  return {
    events,
    upTo: Math.max(upTo, afterSeq),
    lastSeq,
    oldestSeq: first === null ? undefined : Number(first),
    webhookAtMs: msOrNull(rows[0]?.bound_at ?? null) ?? undefined,
  };
}

/**
 * Where a reader with too many events before it begins.
 * @param most - events of these types that are left to it
 * @returns undefined: there are no more than that
 */
export async function backlogEdge(
  db: Queryable,
  workspaceId: WorkspaceId,
  afterSeq: number,
  types: readonly string[],
  most: number,
): Promise<{ readonly seq: number; readonly skipped: number } | undefined> {
  const { rows } = await db.query<BacklogRow>(BACKLOG_SQL, [
    workspaceId,
    afterSeq,
    rowTypesOf(types),
    most,
    types.includes('task.created') ? 1 : 0,
    types.includes('task.updated') ? 1 : 0,
  ]);
  const [row] = rows;
  if (row === undefined) return undefined;
  // The row has events on both sides of the edge: those behind it are left.
  const within = eventsOf(row).filter(({ seq, type }) => seq > afterSeq && types.includes(type));
  const left = most - Number(row.newer);
  const edge = within.at(within.length - left - 1);
  if (edge === undefined) return undefined;
  return { seq: edge.seq, skipped: Number(row.older) + within.length - left };
}

/** SQL that counts the creations in a packed row `e` behind `$2`: they have its first numbers, updates the rest. */
const CREATED = `greatest(0, least(${TASKS_OF_ROW}, e.seq - e.more + ${TASKS_OF_ROW} - 1 - $2::bigint))`;
/** Number of events of a row `e` behind `$2` that are of the types. */
const WEIGHT = `case when e.type <> '${PACKED_TYPE}' then 1
  else ($5::int - $6::int) * ${CREATED} + $6::int * least(e.more + 1, e.seq - $2::bigint) end`;
/** The row with the newest event that is too many, and the number of events of the types behind and before it. */
const BACKLOG_SQL = `with newest as materialized (
    select * from (
      select e.seq, sum(${WEIGHT}) over (order by e.seq desc) as total, ${WEIGHT} as own
      from events e where e.workspace_id = $1 and e.seq > $2::bigint and e.type = any ($3::text[])
      order by e.seq desc limit $4::int + 1) n
    where total > $4 order by total limit 1)
  select ${EVENT_COLUMNS.split(', ')
    .map((name) => `e.${name}`)
    .join(', ')}, n.total - n.own as newer, (
      select coalesce(sum(${WEIGHT}), 0) from events e
      where e.workspace_id = $1 and e.seq > $2::bigint and e.seq < n.seq and e.type = any ($3::text[])) as older
  from newest n join events e on e.workspace_id = $1 and e.seq = n.seq`;
type BacklogRow = RawEvent & { readonly newer: number | bigint | string; readonly older: number | bigint | string };

/** An event of a workspace; undefined: it is not kept any more. */
export function eventBySeq(db: Queryable, workspaceId: WorkspaceId, seq: number): Promise<EventRow | undefined> {
  return eventsBySeq(db, workspaceId, [seq]).then((events) => events.get(seq));
}

/** Events with these numbers, as far as they are kept. */
async function eventsBySeq(
  db: Queryable,
  workspaceId: WorkspaceId,
  seqs: readonly number[],
): Promise<ReadonlyMap<number, EventRow>> {
  const rows = await many(
    db,
    `select distinct on (e.seq) ${EVENT_NAMES.map((name) => `e.${name}`).join(', ')}, ${TRIMMED} as data
     from unnest($2::bigint[]) as w (seq) cross join lateral (
       select * from events where workspace_id = $1 and seq >= w.seq order by seq limit 1) e
     where e.seq - e.more <= w.seq order by e.seq`,
    [workspaceId, seqs],
    eventsOf,
  );
  return new Map(rows.flat().map((event) => [event.seq, event]));
}

/** Outcome of one try, or of none: an event that waits behind another. */
export interface Delivered extends Omit<WebhookDeliveryRow, 'dueAtMs' | 'createdAtMs' | 'updatedAtMs'> {
  /** Milliseconds until the next try; null: it is over. */
  readonly dueInMs: number | null;
  readonly atMs: number;
}

/** Writes outcomes; that of an event that has one replaces it. Outcomes of webhooks that were deleted are dropped. */
export async function writeDeliveries(db: Queryable, outcomes: readonly Delivered[]): Promise<void> {
  if (outcomes.length === 0) return;
  // A statement changes a row once: the last outcome of an event counts.
  const latest = new Map(outcomes.map((outcome) => [`${outcome.webhookId} ${outcome.eventId}`, outcome]));
  const rows = [...latest.values()].map((one) => ({
    id: one.id,
    webhook_id: one.webhookId,
    event_seq: one.eventSeq,
    event_id: one.eventId,
    event_type: one.eventType,
    subject: one.subject,
    state: one.state,
    attempts: one.attempts,
    status_code: one.statusCode,
    error: storableText(one.error),
    duration_ms: one.durationMs,
    due_in_ms: one.dueInMs,
    at: new Date(one.atMs).toISOString(),
  }));
  await db.query(
    `insert into webhook_deliveries (id, webhook_id, event_seq, event_id, event_type, subject, state, attempts, status_code,
       error, duration_ms, due_at, created_at, updated_at)
     select r.id, r.webhook_id, r.event_seq, r.event_id, r.event_type, r.subject,
       case when r.state = 'waiting' and not w.active then 'failed' else r.state end, r.attempts, r.status_code,
       r.error, r.duration_ms, case when w.active then now() + r.due_in_ms * interval '1 millisecond' end, r.at, r.at
     from json_to_recordset($1::json) as r (id text, webhook_id text, event_seq bigint, event_id text, event_type text,
       subject text, state text, attempts integer, status_code integer, error text, duration_ms integer,
       due_in_ms double precision, at timestamptz)
     join webhooks w on w.id = r.webhook_id
     on conflict (webhook_id, event_id) do update set state = excluded.state, attempts = excluded.attempts,
       status_code = excluded.status_code, error = excluded.error, duration_ms = excluded.duration_ms,
       due_at = excluded.due_at, updated_at = excluded.updated_at`,
    [JSON.stringify(rows)],
  );
}

/** How far a webhook has come. */
export interface Progress {
  readonly webhookId: WebhookId;
  readonly cursorSeq: number;
  /** Events that were passed over since the last write. */
  readonly skipped: number;
  readonly lastDelivery: LastDelivery | undefined;
}

/** Moves cursors, never back. */
export async function writeProgress(db: Queryable, progress: readonly Progress[]): Promise<void> {
  if (progress.length === 0) return;
  const rows = progress
    .map((one) => ({
      id: one.webhookId,
      cursor_seq: one.cursorSeq,
      skipped: one.skipped,
      last_delivery: one.lastDelivery === undefined ? null : JSON.stringify(one.lastDelivery),
    }))
    // Statements of two schedulers lock rows in one order.
    .toSorted((a, b) => (a.id < b.id ? -1 : 1));
  await db.query(
    `with r as materialized (
       select * from json_to_recordset($1::json) as r (id text, cursor_seq bigint, skipped bigint, last_delivery text)),
     locked as materialized (
       select w.id from webhooks w where w.id in (select id from r) order by w.id for update)
     update webhooks w set cursor_seq = greatest(w.cursor_seq, r.cursor_seq), skipped = w.skipped + r.skipped,
       last_delivery = coalesce(r.last_delivery::json, w.last_delivery)
     from r join locked using (id) where w.id = r.id`,
    [JSON.stringify(rows)],
  );
}

/** A delivery that is due, with its event; undefined event: it is not kept any more. */
export interface DueDelivery {
  readonly delivery: WebhookDeliveryRow;
  readonly event: EventRow | undefined;
}

/**
 * Deliveries of a webhook that are due, the first of each subject only: what comes behind waits for it.
 * @param except - those that are under way
 */
export async function dueDeliveries(
  db: Queryable,
  workspaceId: WorkspaceId,
  webhookId: WebhookId,
  except: readonly DeliveryId[],
  limit: number,
): Promise<DueDelivery[]> {
  const due = await many(
    db,
    `select ${COLUMNS} from webhook_deliveries d
     where webhook_id = $1 and due_at <= now() and not id = any ($2::text[]) and not exists (
       select 1 from webhook_deliveries b where b.webhook_id = d.webhook_id and b.subject = d.subject
         and b.due_at is not null and b.event_seq < d.event_seq)
     order by due_at, event_seq limit $3`,
    [webhookId, except, limit],
    map,
  );
  if (due.length === 0) return [];
  const seqs = due.flatMap(({ eventSeq }) => (eventSeq === null ? [] : [eventSeq]));
  const bySeq = await eventsBySeq(db, workspaceId, seqs);
  return due.map((delivery) => ({
    delivery,
    event: delivery.eventSeq === null ? undefined : bySeq.get(delivery.eventSeq),
  }));
}

/** Number of waiting deliveries of each subject of a webhook. */
export async function waitingSubjects(db: Queryable, webhookId: WebhookId): Promise<Map<string, number>> {
  const rows = await many(
    db,
    `select subject, count(*)::int as waiting from webhook_deliveries
     where webhook_id = $1 and due_at is not null group by subject`,
    [webhookId],
    (row: { subject: string; waiting: number }) => [row.subject, row.waiting] as const,
  );
  return new Map(rows);
}

/** Makes all waiting deliveries of a webhook due now. */
export async function bringForward(db: Queryable, webhookId: WebhookId): Promise<void> {
  await db.query('update webhook_deliveries set due_at = now() where webhook_id = $1 and due_at > now()', [webhookId]);
}

/** Deliveries of a webhook, the newest first. */
export function listDeliveries(
  db: Queryable,
  webhookId: WebhookId,
  options: {
    readonly limit: number;
    readonly after: { readonly atMs: number; readonly id: string } | undefined;
    readonly state: string | undefined;
  },
): Promise<WebhookDeliveryRow[]> {
  const { limit, after, state } = options;
  return many(
    db,
    `select ${COLUMNS} from webhook_deliveries
     where webhook_id = $1 and ($2::timestamptz is null or (created_at, id) < ($2::timestamptz, $3::text))
       and ($4::text is null or state = $4)
     order by created_at desc, id desc limit $5`,
    [webhookId, after === undefined ? null : new Date(after.atMs), after?.id ?? '', state ?? null, limit],
    map,
  );
}

export function deliveryOfWebhook(
  db: Queryable,
  webhookId: WebhookId,
  id: string,
): Promise<WebhookDeliveryRow | undefined> {
  return maybeOne(
    db,
    `select ${COLUMNS} from webhook_deliveries where webhook_id = $1 and id = $2`,
    [webhookId, id],
    map,
  );
}

/** Deletes outcomes of a webhook beyond the newest `kept` of that state. @returns the number of deleted rows */
export async function pruneDeliveries(
  db: Queryable,
  webhookId: WebhookId,
  state: 'delivered' | 'failed',
  kept: number,
): Promise<number> {
  const { rowCount } = await db.query(
    `delete from webhook_deliveries where webhook_id = $1 and state = $2 and (created_at, id) < (
       select created_at, id from webhook_deliveries where webhook_id = $1 and state = $2
       order by created_at desc, id desc offset $3 limit 1)`,
    [webhookId, state, kept - 1],
  );
  return rowCount;
}
