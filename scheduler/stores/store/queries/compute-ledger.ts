// Rows of the ledger for the time that containers ran: one for each container and hour of UTC, written once the hour is
// over or the container has ended. An end may be committed after whole hours behind it were written: their rows are
// lowered then, and never raised. They cost nothing yet, and change no account.
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { Db } from '../db.ts';
import { NOT_ENDED } from './containers.ts';

/** Most rows of one statement. */
export const MOST_COMPUTE_ROWS = 1_000;
/** Hours behind an end whose rows are looked for. */
const LATE_HOURS = 2;

/**
 * Writes up to {@link MOST_COMPUTE_ROWS} rows that are missing since a time, and those that hold more time than their
 * container ran. A container whose machine is lost counts until the time that its row has as its end.
 * @param range - `isWithRunning`: also whole hours of containers that run; `workspaceId`: of one workspace alone
 * @returns number of rows written or lowered
 */
export async function writeComputeRows(
  db: Db,
  range: {
    readonly sinceMs: number;
    readonly nowMs: number;
    readonly isWithRunning: boolean;
    readonly workspaceId?: WorkspaceId;
  },
): Promise<number> {
  const { rows } = await db.query<{ readonly id: string }>(
    `with ran as (
       select id, workspace_id, stub_id, deployment_id, spec -> 'gpu' ->> 0 as gpu_model, started_at,
         null::timestamptz as ended_at, jsonb_array_length(gpu_uuids) as gpus
       from containers where $3::boolean and ${NOT_ENDED} and started_at is not null
         and ($4::text is null or workspace_id = $4)
       union all
       select id, workspace_id, stub_id, deployment_id, spec -> 'gpu' ->> 0, started_at, ended_at, jsonb_array_length(gpu_uuids)
       from containers where ended_at >= $1 and started_at is not null and ($4::text is null or workspace_id = $4)),
     hours as (
       select ran.*, hour from ran, generate_series(date_trunc('hour', greatest(started_at, $1::timestamptz), 'UTC'),
         coalesce(least(ended_at + interval '${LATE_HOURS} hours', $2::timestamptz), $2::timestamptz), interval '1 hour') as hour
       where ended_at is not null or hour + interval '1 hour' <= $2),
     parts as (
       select 'compute:' || id || ':' || to_char(hour at time zone 'UTC', 'YYYY-MM-DD"T"HH24') as request_id,
         workspace_id, id, stub_id, deployment_id, gpu_model, gpus, greatest(started_at, hour) as from_at,
         greatest(least(coalesce(ended_at, hour + interval '1 hour'), hour + interval '1 hour'), started_at, hour) as to_at
       from hours)
     insert into credit_ledger as l (request_id, kind, workspace_id, status, container_id, stub_id, app_id, deployment,
       gpu_model, container_ms, gpu_ms, created_at)
     select request_id, 'compute', workspace_id, 'complete', id, stub_id,
       (select app_id from stubs where stubs.id = p.stub_id),
       coalesce((select name from deployments where deployments.id = p.deployment_id), ''),
       case when gpus = 0 then '' else coalesce(gpu_model, '') end,
       ms, ms * gpus, date_trunc('milliseconds', to_at)
     from (select parts.*, (extract(epoch from to_at - from_at) * 1000)::bigint as ms from parts) as p
     where coalesce((select known.container_ms > ms from credit_ledger known where known.request_id = p.request_id), ms > 0)
     limit ${MOST_COMPUTE_ROWS}
     on conflict (request_id) do update
       set container_ms = excluded.container_ms, gpu_ms = excluded.gpu_ms, created_at = excluded.created_at
       where l.container_ms > excluded.container_ms
     returning request_id as id`,
    [new Date(range.sinceMs), new Date(range.nowMs), range.isWithRunning, range.workspaceId ?? null],
  );
  return rows.length;
}
