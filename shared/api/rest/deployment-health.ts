// Deployments by their health: the answer of `GET /deployment-health/{ws}`. A row is a name, with the sentence that
// `explain` says of it.
import { Type } from 'typebox';
import type { Static } from 'typebox';
import { ExplainedCalls } from '../explain.ts';
import { Timestamp, nullable } from '../fields.ts';
import { Count, Id, Time, listOf } from './lists.ts';
import { PAGE, QueryList, QueryText } from './query.ts';

/** States of a deployment, the worst first. */
export const HEALTH_STATES = [
  'FAILING',
  'DEGRADED',
  'SCALING',
  'BUSY',
  'STOPPING',
  'ACTIVE',
  'HEALTHY',
  'IDLE',
  'STOPPED',
] as const;
export type HealthState = (typeof HEALTH_STATES)[number];

export const HealthQuery = Type.Object({
  ...PAGE,
  state: QueryList(`only these, such as FAILING,DEGRADED; any of ${HEALTH_STATES.join(', ')}`),
  name: QueryText('only names that contain this'),
});

export const HealthRow = Type.Object({
  id: Id(),
  name: Type.String(),
  version: Count('that calls of the name reach'),
  stub_id: Id(),
  stub_type: Type.String(),
  app_id: Id(),
  active: Type.Boolean(),
  created_at: Time(),
  needs_attention: Type.Boolean({ description: 'whether somebody should do something about it' }),
  state: Type.String({ description: 'as GET /explain/{ws}/{id} says it' }),
  since: Timestamp(),
  summary: Type.String({ description: 'one sentence' }),
  waits_for: Type.String({ description: 'empty: nothing' }),
  until: Timestamp(),
  next_step: Type.String({ description: 'what a person could do first; empty: nothing' }),
  ready: nullable(Count('null: the leader did not answer')),
  wanted: nullable(Count()),
  waiting: nullable(Count('calls that wait')),
  running: nullable(Count('calls that run')),
  calls: ExplainedCalls,
  hour: Type.Object(
    {
      calls: Count(),
      errors: Count('of them: ERROR, TIMEOUT or EXPIRED'),
      p50_ms: nullable(Type.Number({ description: 'half of the runs took at most this; null: none ran' })),
      p95_ms: nullable(Type.Number()),
      bars: Type.Array(Count(), { description: 'calls of twelve times five minutes, the oldest first' }),
    },
    { description: 'calls of this version that ended within the hour' },
  ),
  newer: nullable(
    Type.Object({
      version: Count(),
      rollout: Type.String({ description: 'waiting: it takes the calls when it is ready; failed: it did not start' }),
      why: Type.String(),
    }),
  ),
});
export type HealthRow = Static<typeof HealthRow>;

export const HealthList = Type.Object({
  ...listOf(HealthRow).properties,
  total: Count('names of the workspace, at most 1000'),
  states: Type.Record(Type.String(), Count(), { description: 'numbers of names by state' }),
  leader_answered: Type.Boolean(),
  at: Time(),
});
export type HealthList = Static<typeof HealthList>;
