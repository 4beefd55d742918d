// Upkeep of PGlite, which has none of Postgres's helper processes. Without a checkpoint the write-ahead log grows for
// as long as the process lives. The first start after a kill then replays all of it (26 s for 1.5 GB, measured).
// Without a vacuum the space of changed or deleted rows is never used again. Owned by pglite.ts.
import { messageOf } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import type { QueryResult } from './queryable.ts';

const ROUND_MS = 10_000;
/**
 * Log size from which a checkpoint is made: so much is replayed in about
 * a second. A checkpoint stops the database's thread for some 50 ms.
 */
const MOST_LOG_BYTES = 64 * 1024 * 1024;
/** Changed rows, and their share of the table, from which the table is vacuumed: autovacuum's defaults. */
const DEAD_ROWS = 50;
const DEAD_SHARE = 0.2;

export interface UpkeepParts {
  readonly query: <R>(sql: string) => Promise<QueryResult<R>>;
  readonly log: Log;
  readonly everyMs?: number;
}

/** Starts upkeep: a round every ten seconds, with at most one action of each kind. @returns a function that ends it */
export function keepUp({ query, log, everyMs = ROUND_MS }: UpkeepParts): () => void {
  let busy = false;
  let stopped = false;
  const round = async (): Promise<void> => {
    await cutLog(query);
    if (!stopped) await vacuumOne(query, log);
  };
  const timer = setInterval(() => {
    if (busy) return;
    busy = true;
    round()
      .catch((error: unknown) => {
        // The next round tries again; the loss of the engine is logged elsewhere.
        if (!stopped) log.warn({ problem: messageOf(error) }, 'upkeep of the embedded database failed');
      })
      .finally(() => (busy = false));
  }, everyMs);
  timer.unref();
  return () => {
    stopped = true;
    clearInterval(timer);
  };
}

async function cutLog(query: UpkeepParts['query']): Promise<void> {
  const { rows } = await query<{ bytes: number }>(
    'select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), redo_lsn)::float8 as bytes from pg_control_checkpoint()',
  );
  if ((rows[0]?.bytes ?? 0) > MOST_LOG_BYTES) await query('checkpoint');
}

/** Vacuums the table with the most to gain, and analyses it: the planner knows the table by these statistics only. */
async function vacuumOne(query: UpkeepParts['query'], log: Log): Promise<void> {
  const { rows } = await query<{ name: string; dead: number }>(
    `select quote_ident(schemaname) || '.' || quote_ident(relname) as name, n_dead_tup::float8 as dead from pg_stat_user_tables
     where n_dead_tup > ${DEAD_ROWS} + ${DEAD_SHARE} * n_live_tup or n_mod_since_analyze > ${DEAD_ROWS} + ${DEAD_SHARE} * n_live_tup
     order by greatest(n_dead_tup, n_mod_since_analyze) desc limit 1`,
  );
  const table = rows[0];
  if (table === undefined) return;
  const from = performance.now();
  await query(`vacuum (analyze) ${table.name}`);
  log.debug({ table: table.name, dead: table.dead, ms: Math.round(performance.now() - from) }, 'table vacuumed');
}
