// Where exports of events and log lines continue, and how far rows go.
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { Queryable } from '../db.ts';
import { lastOf } from './logs.ts';

const numbersOf = (rows: readonly { workspace_id: string; position: number | bigint | null }[]) =>
  new Map(
    rows.flatMap(({ workspace_id: id, position }) =>
      position === null ? [] : [[id as WorkspaceId, Number(position)] as const],
    ),
  );

export async function exportPositions(db: Queryable, source: string): Promise<ReadonlyMap<WorkspaceId, number>> {
  const sql = 'select workspace_id, position from export_positions where source = $1';
  return numbersOf((await db.query<{ workspace_id: string; position: number | bigint }>(sql, [source])).rows);
}

/** Stores positions. One that is stored never goes back: a leader that was replaced writes late. */
export async function storeExportPositions(
  db: Queryable,
  source: string,
  positions: ReadonlyMap<WorkspaceId, number>,
): Promise<void> {
  const rows = [...positions].map(([id, position]) => ({ workspace_id: id, position }));
  await db.query(
    `insert into export_positions as p (source, workspace_id, position)
     select $1, r.workspace_id, r.position from json_to_recordset($2::json) as r (workspace_id text, position bigint)
     order by r.workspace_id
     on conflict (source, workspace_id) do update set position = greatest(p.position, excluded.position), updated_at = now()`,
    [source, JSON.stringify(rows)],
  );
}

/** Number of the last event of every workspace that has one. */
export async function eventTails(db: Queryable): Promise<ReadonlyMap<WorkspaceId, number>> {
  const sql = 'select workspace_id, last_seq as position from event_counters';
  return numbersOf((await db.query<{ workspace_id: string; position: number | bigint }>(sql)).rows);
}

/** Id of the last log line of every workspace that has one. */
export async function logTails(db: Queryable): Promise<ReadonlyMap<WorkspaceId, number>> {
  const sql = `select c.workspace_id, (${lastOf('c.workspace_id')}) as position from log_clocks c`;
  return numbersOf((await db.query<{ workspace_id: string; position: number | bigint | null }>(sql)).rows);
}
