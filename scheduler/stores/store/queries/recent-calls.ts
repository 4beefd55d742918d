// The newest calls of a deployment that ended, counted: for its explanation.
import type { DeploymentId, QueueName, StubId, TaskId } from '#shared/domain/ids.ts';
import type { Queryable } from '../db.ts';
import { arrayText, many, msOf, msOrNull, one } from '../rows.ts';

/** Most calls that are counted. */
const MOST_CALLS = 100;
/** Most rows that are looked at on each side of the oldest call that waits. */
const MOST_ROWS = 500;

/** Calls of a deployment that ended, the newest ones. */
export interface RecentCalls {
  readonly ended: number;
  readonly failed: number;
  /** When the first of the failed ones ended. */
  readonly firstFailedAtMs: number | null;
  /**
   * When the first call failed since the last one that did not; null: the newest call did not fail. Calls with input
   * that the handler does not take count for neither.
   */
  readonly failingSinceMs: number | null;
  /** The newest call that failed, by more than its input if there is such a one; undefined: none failed. */
  readonly last: { readonly taskId: TaskId; readonly endedAtMs: number } | undefined;
}

interface Raw {
  ended: number;
  failed: number;
  first_at: Date | null;
  since: Date | null;
  last_id: string | null;
  last_at: Date | null;
}

/** Whose calls are counted. */
export interface CallsOf {
  readonly stubId: StubId;
  readonly deploymentId: DeploymentId;
  readonly queue: QueueName;
}

/**
 * Rows are found by the index on stub and creation. Calls that ended were created before those that wait, except those
 * that overtook others. So both the newest rows and the ones before the oldest that waits are looked at, and a long
 * queue hides nothing. Cancelled calls are left out: somebody wanted their end.
 * @param sinceCreation - condition on the rows that are looked at
 */
const sqlOf = (mostRows: number, sinceCreation: string): string => `select c.* from
  unnest($1::text[], $2::text[], $3::text[]) with ordinality as d (stub_id, deployment_id, queue, n)
  cross join lateral (with own as materialized (
    (select id, deployment_id, rank, status, failure_reason, created_at, ended_at from tasks
      where stub_id = d.stub_id ${sinceCreation} order by created_at desc limit ${mostRows})
    union
    (select id, deployment_id, rank, status, failure_reason, created_at, ended_at from tasks
      where stub_id = d.stub_id ${sinceCreation}
        and created_at < (select min(created_at) from tasks where rank < 3 and queue = d.queue)
      order by created_at desc limit ${mostRows})),
  recent as materialized (
    select id, status <> 'COMPLETE' as failed, status <> 'COMPLETE' and failure_reason <> 'invalid_request_payload' as faulty,
      coalesce(ended_at, created_at) as at from own
    where rank >= 3 and status <> 'CANCELLED' and own.deployment_id = d.deployment_id
      and coalesce(ended_at, created_at) > $4
    order by at desc, id desc limit ${MOST_CALLS}),
  last as (select id, at from recent where failed order by faulty desc, at desc, id desc limit 1)
  select (select count(*) from recent)::int as ended, (select count(*) from recent where failed)::int as failed,
    (select min(at) from recent where failed) as first_at,
    (select min(at) from recent where faulty and at > coalesce((select max(at) from recent where not failed), '-infinity')) as since,
    (select id from last) as last_id, (select at from last) as last_at) c order by d.n`;

const OF_ONE = sqlOf(MOST_ROWS, '');
/** Rows of each side that are looked at where many deployments are counted at once. */
const FEWER_ROWS = 120;
const OF_MANY = sqlOf(FEWER_ROWS, `and created_at > $4::timestamptz - interval '1 day'`);

const callsOf = (row: Raw): RecentCalls => ({
  ended: row.ended,
  failed: row.failed,
  firstFailedAtMs: msOrNull(row.first_at),
  failingSinceMs: msOrNull(row.since),
  last:
    row.last_id === null || row.last_at === null
      ? undefined
      : { taskId: row.last_id as TaskId, endedAtMs: msOf(row.last_at) },
});

const paramsOf = (of: readonly CallsOf[], sinceMs: number): readonly unknown[] => [
  arrayText(of.map((each) => each.stubId)),
  arrayText(of.map((each) => each.deploymentId)),
  arrayText(of.map((each) => each.queue)),
  new Date(sinceMs),
];

/** Counts the newest calls of a deployment that ended since a time. */
export const recentCalls = (db: Queryable, of: CallsOf, sinceMs: number): Promise<RecentCalls> =>
  one(db, OF_ONE, paramsOf([of], sinceMs), callsOf);

/**
 * As recentCalls, of several deployments, in their order. Fewer rows of each are looked at, and none that was created a
 * day before the time.
 */
export const recentCallsOfMany = (db: Queryable, of: readonly CallsOf[], sinceMs: number): Promise<RecentCalls[]> =>
  many(db, OF_MANY, paramsOf(of, sinceMs), callsOf);
