// Statistics of tasks that ended, and the numbers of a workspace at a glance: `GET /task-stats/{ws}`,
// `GET /overview/{ws}`.
import { Type } from 'typebox';
import type { Static } from 'typebox';
import { nullable } from '../fields.ts';
import { Count, Id, Time } from './lists.ts';
import { QueryId, QueryIds, QueryText, QueryTime } from './query.ts';

const Span = (description: string) =>
  nullable(Type.Number({ description: `${description}, in milliseconds; null: there was none` }));

/** Spans are read from bins, each twice as wide as the one before. */
const Spans = (of: string) =>
  Type.Object({ p50: Span(`half of ${of} are at most this`), p95: Span(`95 % of ${of}`), p99: Span(`99 % of ${of}`) });

const SUMS = {
  calls: Count('tasks that ended'),
  errors: Count('of them: ERROR, TIMEOUT or EXPIRED'),
  statuses: Type.Record(Type.String(), Count(), { description: 'numbers of tasks by status' }),
  wait_ms: Spans('the waits before a start'),
  run_ms: Spans('the runs'),
};

export const TaskStatsQuery = Type.Object({
  start: QueryTime('an hour before end when absent'),
  end: QueryTime('now when absent; at most 31 days after start'),
  interval: QueryText('of the series: a duration such as 5m, 1h or 24h; 5m when absent, and at most 1000 of them'),
  deployment_ids: QueryIds(),
  stub_ids: QueryIds(),
  app_id: QueryId(),
});

export const TaskStats = Type.Object({
  start: Time(),
  end: Time(),
  interval_seconds: Count(),
  total: Type.Object(SUMS),
  series: Type.Array(Type.Object({ at: Time(), ...SUMS }), { description: 'intervals in which a task ended' }),
  groups: Type.Array(Type.Object({ deployment_id: nullable(Id()), stub_id: Id(), ...SUMS }), {
    description: 'deployments, and stubs without one; those with most tasks first, 1000 at most',
  }),
  truncated: Type.Boolean({ description: 'more than may be read: the newest count, and those with most tasks' }),
});
export type TaskStats = Static<typeof TaskStats>;

export const OverviewQuery = Type.Object({
  range: QueryText('a duration up to now: from 5m to 744h; 1h when absent'),
});

export const Overview = Type.Object({
  start: Time(),
  end: Time(),
  tasks: Type.Object(SUMS),
  series: Type.Array(Type.Object({ at: Time(), calls: Count(), errors: Count() }), {
    description: 'twelve intervals, the oldest first',
  }),
  failures: Type.Array(Type.Object({ deployment_id: nullable(Id()), stub_id: Id(), calls: Count(), errors: Count() }), {
    description: 'those with most errors first, 10 at most',
  }),
  containers: Type.Record(Type.String(), Count(), { description: 'numbers of live containers by status' }),
  truncated: Type.Boolean({ description: 'more tasks than may be read: only the newest count' }),
});
export type Overview = Static<typeof Overview>;
