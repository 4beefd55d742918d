import type { DeploymentId } from '#shared/domain/ids.ts';
import type { Queryable } from '../db.ts';
import { many, maybeOne, msOf } from '../rows.ts';
import type { DeploymentRow } from './deployments.ts';

/** An active deployment that a schedule runs. */
export interface ScheduleRow {
  readonly deploymentId: DeploymentId;
  /** The schedule, as in the stub's configuration. */
  readonly when: string;
  readonly timezone: string;
  /** Ticks up to here have their tasks, or were skipped. */
  readonly tickedToMs: number;
  /** Database time of this read. */
  readonly databaseNowMs: number;
}

/** Milliseconds that a replica's clock may be ahead of the database's; beyond them the database's clock counts. */
export const MOST_AHEAD_MS = 5_000;

interface Raw {
  id: string;
  schedule: { when: string; timezone: string };
  ticked_to: Date;
  now: Date;
}
const map = (row: Raw): ScheduleRow => ({
  deploymentId: row.id as DeploymentId,
  when: row.schedule.when,
  timezone: row.schedule.timezone,
  tickedToMs: msOf(row.ticked_to),
  databaseNowMs: msOf(row.now),
});
const ACTIVE = `select d.id, s.config->'schedule' as schedule, d.ticked_to, now() as now from deployments d join stubs s on s.id = d.stub_id
  join workspaces w on w.id = d.workspace_id and w.deleting_at is null
  where d.active and d.deleted_at is null and d.stub_type in ('schedule', 'schedule/deployment') and s.config ? 'schedule'`;

/** Active schedules of every workspace. */
export function listSchedules(db: Queryable): Promise<ScheduleRow[]> {
  return many(db, `${ACTIVE} order by d.id`, [], map);
}

/** The schedule of a deployment; undefined: the deployment is stopped or deleted, or has no schedule. */
export function scheduleById(db: Queryable, deploymentId: DeploymentId): Promise<ScheduleRow | undefined> {
  return maybeOne(db, `${ACTIVE} and d.id = $1`, [deploymentId], map);
}

/**
 * Records that no tick up to that moment is looked at again. The caller writes the tasks of those ticks in the same
 * transaction, so that stopping the deployment comes before or after all of it.
 * @param fromMs - as it was read
 * @returns false: another writer was faster, the deployment is not active any more, or that moment has not come yet
 */
export async function advanceSchedule(
  db: Queryable,
  deploymentId: DeploymentId,
  fromMs: number,
  toMs: number,
): Promise<boolean> {
  const { rowCount } = await db.query(
    `update deployments set ticked_to = $3
     where id = $1 and active and deleted_at is null and date_trunc('milliseconds', ticked_to) = $2
       and not exists (select 1 from workspaces w where w.id = workspace_id and w.deleting_at is not null)
       and $3::timestamptz <= now() + make_interval(secs => $4)`,
    [deploymentId, new Date(fromMs), new Date(toMs), MOST_AHEAD_MS / 1000],
  );
  return rowCount > 0;
}

/**
 * The new version takes the place of the active versions before it. The earlier versions
 * tick no more from the commit on, and the tasks in their queues are still served.
 */
export async function stopVersionsBefore(
  db: Queryable,
  deployment: Pick<DeploymentRow, 'workspaceId' | 'name' | 'stubType' | 'version'>,
): Promise<DeploymentId[]> {
  const { rows } = await db.query<{ id: string }>(
    `update deployments set active = false, superseded_by = $4, updated_at = now()
     where workspace_id = $1 and name = $2 and stub_type = $3 and version < $4 and active and deleted_at is null
     returning id`,
    [deployment.workspaceId, deployment.name, deployment.stubType, deployment.version],
  );
  return rows.map((row) => row.id as DeploymentId);
}
