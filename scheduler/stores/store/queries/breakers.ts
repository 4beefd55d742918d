import type { QueueName } from '#shared/domain/ids.ts';
import type { Queryable } from '../db.ts';
import { many, maybeOne } from '../rows.ts';

export interface BreakerRow {
  readonly queue: QueueName;
  /** The breaker as the autoscaler wrote it. */
  readonly breaker: Readonly<Record<string, unknown>>;
}

interface Raw {
  queue: string;
  breaker: Record<string, unknown>;
}
const map = (row: Raw): BreakerRow => ({ queue: row.queue as QueueName, breaker: row.breaker });

/** Breakers written since `sinceMs`, the newest first, at most `limit`; older ones are deleted. */
export async function loadBreakers(db: Queryable, sinceMs: number, limit: number): Promise<BreakerRow[]> {
  await db.query('delete from breakers where updated_at < $1', [new Date(sinceMs)]);
  return many(db, 'select queue, breaker from breakers order by updated_at desc limit $1', [limit], map);
}

export function breakerOf(db: Queryable, queue: QueueName): Promise<BreakerRow | undefined> {
  return maybeOne(db, 'select queue, breaker from breakers where queue = $1', [queue], map);
}

/** Stores a queue's breaker. @returns false: a later leader has written it */
export async function saveBreaker(db: Queryable, queue: QueueName, breaker: object, fence: number): Promise<boolean> {
  const { rowCount } = await db.query(
    `insert into breakers (queue, fence, breaker) values ($1, $2, $3::jsonb)
     on conflict (queue) do update set fence = excluded.fence, breaker = excluded.breaker, updated_at = now()
     where breakers.fence <= excluded.fence`,
    [queue, fence, JSON.stringify(breaker)],
  );
  return rowCount > 0;
}

/**
 * Deletes a queue's breaker.
 * @param fence - of the leader that saw a start succeed; absent: a person started the deployment
 * @returns false: there is none, or a later leader has written it
 */
export async function deleteBreaker(db: Queryable, queue: QueueName, fence?: number): Promise<boolean> {
  const { rowCount } = await db.query(
    'delete from breakers where queue = $1 and ($2::bigint is null or fence <= $2::bigint)',
    [queue, fence ?? null],
  );
  return rowCount > 0;
}
