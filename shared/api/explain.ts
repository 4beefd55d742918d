// Explanations of a task, a container or a deployment: the answer of `GET /api/v1/explain/{ws}/{id}`.
// Sentences are for people; the sections hold the numbers behind them.
import { Type } from 'typebox';
import type { Static, TSchema } from 'typebox';

const Text = (description?: string) => Type.String(description === undefined ? {} : { description });
const Count = (description?: string) =>
  Type.Integer({ minimum: 0, ...(description === undefined ? {} : { description }) });
const orNull = <T extends TSchema>(schema: T) => Type.Union([schema, Type.Null()]);
const Time = () => orNull(Type.String({ format: 'date-time' }));
/** Numbers of machines by rejection reason. */
const Rejections = () => Type.Record(Type.String(), Count());

/** A decision of the scaling loop; repetitions share an entry. */
export const ExplainedDecision = Type.Object({
  at: Time(),
  until: Time(),
  times: Count(),
  decision: Text('start, stop or hold'),
  why: Text('of a hold: its reason; else empty'),
  text: Text(),
  containers: Count('started or stopped'),
  wanted: orNull(Count()),
  live: Count(),
  in_flight: orNull(Count('null: the sample failed')),
});
export type ExplainedDecision = Static<typeof ExplainedDecision>;

export const ExplainedContainer = Type.Object({
  container_id: Text(),
  state: Text(),
  machine_id: Text(),
  attempts: orNull(Count('null: not known, because its machine is not linked')),
  slots: Count(),
  idle_since: Time(),
  keep_warm_until: Time(),
  /** A keep-warm without end. */
  kept_forever: Type.Boolean(),
  rejections: Rejections(),
  main_rejection: Text('what most of the machines that could serve it said'),
  gives_up_at: Time(),
  gives_up_with: Text(),
});
export type ExplainedContainer = Static<typeof ExplainedContainer>;

/** A machine of a pool that cannot go on. */
export const StuckMachineRecord = Type.Object({
  machine_id: Text(),
  instance_id: Text('empty: not known'),
  verb: Text('call of the provider that keeps failing: list or terminate'),
  failures: Count('in a row'),
  text: Text('a sentence'),
  step: Text('command for an administrator'),
});
export type StuckMachineRecord = Static<typeof StuckMachineRecord>;

/** Why a pool with a provider makes a machine or does not, and what its machines cost. */
export const ExplainedGrowth = Type.Object({
  pool: Text(),
  provider: Text(),
  verdict: Text('awaited: a machine is on its way; else why none is made'),
  text: Text('a sentence'),
  step: Text('what an administrator could do; empty: nothing'),
  until: Time(),
  machines: orNull(
    Count('of the provider: those there, on their way, and leaving; null: a shared pool, which others use too'),
  ),
  pending: orNull(Count('of them, on their way')),
  max_machines: orNull(Count()),
  price: orNull(Type.Number({ description: 'of a machine in an hour; null: not known' })),
  hourly_cost: orNull(Type.Number({ description: 'of its machines, as the budget counts it' })),
  hourly_budget: orNull(Type.Number()),
  stuck_count: Count('machines that cannot go on'),
  stuck: Type.Array(StuckMachineRecord, { maxItems: 5 }),
});
export type ExplainedGrowth = Static<typeof ExplainedGrowth>;

export const ExplainedBreaker = Type.Object({
  phase: Text('closed, cooling or probing'),
  failures: Count('starts that failed in a row'),
  opened: Count('how often it opened since a start last worked'),
  cools_until: Time(),
  probe: Text('the container that shows whether starts work again'),
  last_container: Text(),
  last_at: Time(),
  last_reason: Text(),
  last_message: Text('its last lines'),
});
export type ExplainedBreaker = Static<typeof ExplainedBreaker>;

/** The state that the leader's scaling loop has of a queue. */
export const ExplainedScaling = Type.Object({
  state: Text('STOPPED, IDLE, SCALING, HEALTHY, BUSY, DEGRADED, STOPPING, DELETING or DELETED'),
  state_since: Time(),
  in_flight: orNull(Count('tasks that wait, run, or are due within 10 s')),
  waiting: Count(),
  running: Count(),
  delayed: Count(),
  tasks_per_container: Count(),
  min_containers: Count(),
  max_containers: Count(),
  bounds_from: Text('stub, or scale: set by ScaleDeployment'),
  bound: Type.Optional(
    Text(
      'the setting at which tasks wait while all wanted containers are ready: max_containers or tasks_per_container; empty: none',
    ),
  ),
  wanted: orNull(Count()),
  formula: Text(),
  window_seconds: Count(),
  wanted_in_window: Count(),
  live: Count('pending, starting and ready containers'),
  ready: Count(),
  present: Count('all that have not ended'),
  decision: ExplainedDecision,
  look_again_at: Time(),
  conditions: Type.Array(Text(), { description: 'MetricsUnavailable: the queue could not be read for a minute' }),
  breaker: ExplainedBreaker,
  containers: Type.Array(ExplainedContainer, { maxItems: 100 }),
  line: Type.Optional(
    Type.Array(Text(), {
      maxItems: 2,
      description: 'sentences on the place in line of the container that has waited longest, beside other workspaces',
    }),
  ),
  growth: Type.Array(ExplainedGrowth, {
    maxItems: 10,
    description: 'pools that could get a machine for the container that has waited longest; empty: none waits',
  }),
  decisions: Type.Array(ExplainedDecision, { maxItems: 20, description: 'the last ones, newest first' }),
});
export type ExplainedScaling = Static<typeof ExplainedScaling>;

export const ExplainedAttempt = Type.Object({
  attempt: Count(),
  container_id: Text(),
  machine_id: Text(),
  started_at: Time(),
  ended_at: Time(),
  outcome: Text('running, complete, or why it ended'),
  error: Text('the first line of its error; empty: it has none'),
});
export type ExplainedAttempt = Static<typeof ExplainedAttempt>;

/** A container that serves the task's queue, and whether it could take the task now. */
export const ExplainedServer = Type.Object({
  container_id: Text(),
  state: Text(),
  machine_id: Text(),
  takes: Type.Boolean(),
  why_not: Text('empty when it could'),
});
export type ExplainedServer = Static<typeof ExplainedServer>;

export const TaskSection = Type.Object({
  status: Text(),
  failure_reason: Text(),
  synchronous: Type.Boolean(),
  deployment_id: Text(),
  stub_id: Text(),
  position: orNull(Count('1: the next one')),
  queue_depth: orNull(Count()),
  created_at: Time(),
  started_at: Time(),
  ended_at: Time(),
  deadline: Time(),
  next_retry_at: Time(),
  retries_used: Count(),
  retries: Count(),
  losses: Count('attempts lost to infrastructure causes'),
  attempts: Type.Array(ExplainedAttempt),
  containers: Type.Array(ExplainedServer, { maxItems: 100 }),
});
export type TaskSection = Static<typeof TaskSection>;

export const ContainerSection = Type.Object({
  status: Text('PENDING, RUNNING, STOPPING; empty when it has ended'),
  deployment_id: Text(),
  stub_id: Text(),
  machine_id: Text(),
  machine_health: Text(),
  epoch: Count(),
  created_at: Time(),
  scheduled_at: Time(),
  started_at: Time(),
  ended_at: Time(),
  start_failures: Count('by causes of a host; it is placed again after them'),
  reason: Text(),
  exit_code: orNull(Type.Integer()),
  message: Text('its last lines'),
  rejections: Rejections(),
});
export type ContainerSection = Static<typeof ContainerSection>;

/** The newest calls of a deployment that ended within a day, cancelled ones left out. */
export const ExplainedCalls = Type.Object({
  ended: Count('at most 100'),
  failed: Count('of them: ERROR, TIMEOUT or EXPIRED'),
  failing_since: orNull(
    Type.String({ format: 'date-time', description: 'all calls since then failed; null: the newest did not' }),
  ),
  last_failed: Text('id of the newest task that failed; empty: none did'),
  last_failed_at: Time(),
  last_reason: Text(),
  last_error: Text('a line'),
});
export type ExplainedCalls = Static<typeof ExplainedCalls>;

export const DeploymentSection = Type.Object({
  name: Text(),
  version: Count(),
  stub_type: Text(),
  active: Type.Boolean(),
  keep_warm_seconds: Type.Integer(),
  calls: orNull(ExplainedCalls),
});
export type DeploymentSection = Static<typeof DeploymentSection>;

export const Explanation = Type.Object({
  kind: Text('task, container or deployment'),
  id: Text(),
  workspace_id: Text(),
  state: Text(
    'of a deployment: that of its scaling, FAILING in the place of IDLE and HEALTHY when its newest call failed, or when its start failed in its rollout, ACTIVE and STOPPED when the leader did not answer, or DELETED',
  ),
  since: Time(),
  summary: Text('one sentence'),
  waits_for: Text('empty: nothing'),
  until: Time(),
  details: Type.Array(Text(), { description: 'sentences' }),
  next_steps: Type.Array(Text(), { description: 'what a person could do' }),
  leader_answered: Type.Boolean({ description: 'false: scaling is null because the leader did not answer' }),
  task: orNull(TaskSection),
  container: orNull(ContainerSection),
  deployment: orNull(DeploymentSection),
  scaling: orNull(ExplainedScaling),
});
export type Explanation = Static<typeof Explanation>;
