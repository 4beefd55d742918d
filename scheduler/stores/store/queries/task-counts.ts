import type { DeploymentId } from '#shared/domain/ids.ts';
import type { Queryable } from '../db.ts';
import { many, msOf } from '../rows.ts';

/** Number of tasks of one deployment (null: of stubs without one) that have not ended. */
export interface OpenTaskCount {
  readonly deploymentId: DeploymentId | null;
  readonly kind: string;
  readonly status: string;
  readonly count: number;
  /** Creation of the oldest of these tasks, in epoch milliseconds. */
  readonly oldestAtMs: number;
}

/** Most rows that are counted at once: a database with more open tasks has other worries than exact gauges. */
const MOST_ROWS = 500_000;

/** Number of tasks that have not ended, and the age of the oldest, by deployment. */
export function countOpenTasks(db: Queryable): Promise<OpenTaskCount[]> {
  return many(
    db,
    `select deployment_id, kind, status, count(*)::int as count, min(created_at) as oldest
     from (select deployment_id, kind, status, created_at from tasks where rank < 3 limit $1) as open
     group by deployment_id, kind, status`,
    [MOST_ROWS],
    (row: { deployment_id: string | null; kind: string; status: string; count: number; oldest: Date }) => ({
      deploymentId: row.deployment_id as DeploymentId | null,
      kind: row.kind,
      status: row.status,
      count: row.count,
      oldestAtMs: msOf(row.oldest),
    }),
  );
}
