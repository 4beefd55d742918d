import type { DeliveryId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Queryable } from '../db.ts';
import { ownersOf } from './owners.ts';
import { many, msOf, msOrNull, storableText } from '../rows.ts';

export type DeliveryState = 'waiting' | 'delivered' | 'failed' | 'superseded';

/** A message to an address that a person named. */
export interface DeliveryRow {
  readonly id: DeliveryId;
  readonly workspaceId: WorkspaceId;
  readonly kind: string;
  readonly subject: string;
  readonly event: string;
  readonly url: string;
  readonly state: DeliveryState;
  readonly claim: number;
  readonly attempts: number;
  readonly dueAtMs: number | null;
  readonly outcome: string;
  readonly httpStatus: number | null;
  readonly createdAtMs: number;
  readonly updatedAtMs: number;
}

export type NewDelivery = Pick<DeliveryRow, 'id' | 'workspaceId' | 'kind' | 'subject' | 'event' | 'url'>;

interface Raw {
  id: string;
  workspace_id: string;
  kind: string;
  subject: string;
  event: string;
  url: string;
  state: string;
  claim: number;
  attempts: number;
  due_at: Date | null;
  outcome: string;
  http_status: number | null;
  created_at: Date;
  updated_at: Date;
}
const COLUMNS =
  'id, workspace_id, kind, subject, event, url, state, claim, attempts, due_at, outcome, http_status, created_at, updated_at';
const map = (row: Raw): DeliveryRow => ({
  id: row.id as DeliveryId,
  workspaceId: row.workspace_id as WorkspaceId,
  kind: row.kind,
  subject: row.subject,
  event: row.event,
  url: row.url,
  state: row.state as DeliveryState,
  claim: row.claim,
  attempts: row.attempts,
  dueAtMs: msOrNull(row.due_at),
  outcome: row.outcome,
  httpStatus: row.http_status,
  createdAtMs: msOf(row.created_at),
  updatedAtMs: msOf(row.updated_at),
});

/** Inserts deliveries, due at once. */
export async function insertDeliveries(db: Queryable, deliveries: readonly NewDelivery[]): Promise<void> {
  if (deliveries.length === 0) return;
  const rows = deliveries.map(({ workspaceId, url, ...rest }) => ({
    ...rest,
    url: storableText(url),
    workspace_id: workspaceId,
  }));
  await db.query(
    `insert into deliveries (id, workspace_id, kind, subject, event, url, due_at)
     select r.id, r.workspace_id, r.kind, r.subject, r.event, r.url, now()
     from json_to_recordset($1::json) as r (id text, workspace_id text, kind text, subject text, event text, url text)
     on conflict (id) do nothing`,
    [JSON.stringify(rows)],
  );
}

/** How long a claim lasts: at least `leastMs`, and from `firstMs` on doubled by each claim before, up to `mostMs`. */
export interface ClaimTimes {
  readonly leastMs: number;
  readonly firstMs: number;
  readonly mostMs: number;
}

/**
 * Begins tries of deliveries that are due: the first of every workspace, then every second one, and so on. A workspace
 * gives those due the longest first, and at most `ofOne`, less those `underWay`.
 */
export function claimDeliveries(
  db: Queryable,
  limit: number,
  ofOne: number,
  underWay: ReadonlyMap<WorkspaceId, number>,
  { leastMs, firstMs, mostMs }: ClaimTimes,
): Promise<DeliveryRow[]> {
  const taken = [...underWay].map(([owner, count]) => ({ owner, count }));
  return many(
    db,
    `with recursive ${ownersOf('deliveries', 'due_at is not null')}, due as (
       select of_one.id, of_one.due_at, of_one.place + coalesce(taken.count, 0) as turn
       from owners left join json_to_recordset($3::json) as taken (owner text, count integer) using (owner)
       cross join lateral (
         select id, due_at, row_number() over (order by workspace_id, due_at) as place from deliveries
         where workspace_id = owner and due_at <= now() order by workspace_id, due_at limit $2
       ) as of_one
     ), picked as (
       select d.id from deliveries d join due on due.id = d.id where d.due_at <= now() and due.turn <= $2
       order by due.turn, due.due_at limit $1 for update of d skip locked
     )
     update deliveries set claim = claim + 1, updated_at = now(),
       due_at = now() + greatest($4, least($6, $5 * power(2, least(claim, 30)))) * interval '1 millisecond'
     where id in (select id from picked) returning ${COLUMNS}`,
    [limit, ofOne, JSON.stringify(taken), leastMs, firstMs, mostMs],
    map,
  );
}

/** Outcome of a try. */
export interface TryEnded {
  readonly state: DeliveryState;
  /** Whether the try counts; a try that sent nothing does not. */
  readonly counts: boolean;
  readonly outcome: string;
  readonly httpStatus: number | null;
  /** Milliseconds until the next try; absent: the delivery is over. */
  readonly againMs?: number;
}

/**
 * Stores the outcome of a try.
 * @param claim - of the try that ended
 * @returns false: another try began meanwhile, and nothing was changed
 */
export async function settleDelivery(db: Queryable, id: DeliveryId, claim: number, ended: TryEnded): Promise<boolean> {
  const { rowCount } = await db.query(
    `update deliveries set state = $3, attempts = attempts + $4, outcome = $5, http_status = $6,
       due_at = now() + $7::double precision * interval '1 millisecond', updated_at = now()
     where id = $1 and claim = $2 and due_at is not null`,
    [id, claim, ended.state, ended.counts ? 1 : 0, ended.outcome, ended.httpStatus, ended.againMs ?? null],
  );
  return rowCount === 1;
}

/** Number of deliveries that are not over, counted no further than `most`. */
export async function countWaitingDeliveries(db: Queryable, most: number): Promise<number> {
  const { rows } = await db.query<{ count: number }>(
    'select count(*)::int as count from (select 1 from deliveries where due_at is not null limit $1) as waiting',
    [most],
  );
  return rows[0]?.count ?? 0;
}

/** Deliveries about a subject, the newest first. */
export function deliveriesOfSubject(
  db: Queryable,
  workspaceId: WorkspaceId,
  subject: string,
  limit: number,
): Promise<DeliveryRow[]> {
  return many(
    db,
    `select ${COLUMNS} from deliveries where subject = $2 and workspace_id = $1 order by created_at desc, id limit $3`,
    [workspaceId, subject, limit],
    map,
  );
}
