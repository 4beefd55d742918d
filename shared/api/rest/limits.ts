import { Type } from 'typebox';
import type { Static } from 'typebox';
import { nullable } from '../fields.ts';
import { CREDIT_MODES } from './credits.ts';
import { Count, Id, OneOf } from './lists.ts';

const MANY = 1_000_000_000;
/** A pebibyte. */
const MANY_BYTES = 1024 ** 5;

/**
 * A limit in a request: a number within bounds, null, or the
 * object that an answer shows, with the usage beside the limit.
 */
const Settable = (minimum: number, maximum: number) => {
  const value = Type.Integer({ minimum, maximum, description: `from ${minimum} to ${maximum}` });
  const sent = Type.Union([value, Type.Null({ description: 'the default' }), Type.Object({ limit: nullable(value) })]);
  return Type.Optional(Type.Unsafe<number | null>(sent));
};

/** Limits that an administrator may set. Absent ones stay; an answer's own shape may be sent back. */
export const ChangeLimits = Type.Object({
  concurrency: Type.Optional(
    Type.Object(
      {
        gpu_limit: Settable(0, MANY),
        cpu_millicore_limit: Settable(0, MANY),
        memory_mib_limit: Settable(0, MANY),
        container_limit: Settable(0, MANY),
      },
      { description: 'at once, over all deployments' },
    ),
  ),
  stub: Type.Optional(
    Type.Object(
      {
        cpu_millicores: Settable(1, 10_000_000),
        memory_mib: Settable(1, 100_000_000),
        max_replicas: Settable(1, 10_000),
        max_gpu_count: Settable(0, 64),
      },
      { description: 'of one stub; max_replicas: containers of one deployment' },
    ),
  ),
  tasks: Type.Optional(
    Type.Object({
      max_pending_tasks_default: Settable(1, 1_000_000),
      max_pending_tasks: Settable(1, 1_000_000),
      max_retries: Settable(0, 5),
      max_ttl_seconds: Settable(1, 86_400),
    }),
  ),
  rate: Type.Optional(
    Type.Object({
      rest_per_minute: Settable(1, 10_000_000),
      state_per_minute: Settable(1, 100_000_000),
      invoke_per_minute: Settable(1, 100_000_000),
      inference_per_minute: Settable(1, 100_000_000),
      inference_tokens_per_minute: Settable(1, MANY),
    }),
  ),
  counts: Type.Optional(
    Type.Object({
      tokens: Settable(1, 100_000),
      webhooks: Settable(0, 100_000),
      databases: Settable(0, 100_000),
      stacks: Settable(0, 100_000),
      volumes: Settable(0, 100_000),
      deployments: Settable(0, 1_000_000),
      stubs: Settable(0, 1_000_000),
      objects: Settable(0, 1_000_000),
      pools: Settable(0, 1_000),
      unjoined_machines: Settable(0, 10_000),
      shared_entries: Settable(0, 1_000_000),
      sandboxes: Settable(0, 100_000),
    }),
  ),
  bytes: Type.Optional(
    Type.Object({
      logs_per_day: Settable(0, MANY_BYTES),
      objects: Settable(0, MANY_BYTES),
      queue: Settable(0, MANY_BYTES),
      shared: Settable(0, MANY_BYTES),
      volumes: Settable(0, MANY_BYTES),
      images: Settable(0, MANY_BYTES),
    }),
  ),
});

const orNoBound = () => nullable(Count('null: no bound'));

/** Usage and limit of a counted thing. */
const Counted = Type.Object({ used: Count(), limit: orNoBound() });

export const WorkspaceUsage = Type.Object({
  gpu: Count(),
  cpu_millicores: Count(),
  memory_mib: Count(),
  containers: Count(),
});
/** Usage by containers that have a machine. */
export type WorkspaceUsage = Static<typeof WorkspaceUsage>;

export const LimitsRecord = Type.Object({
  workspace_id: Id(),
  concurrency: Type.Object({
    gpu_limit: orNoBound(),
    cpu_millicore_limit: orNoBound(),
    memory_mib_limit: orNoBound(),
    container_limit: orNoBound(),
  }),
  usage: Type.Object({
    ...WorkspaceUsage.properties,
    volume_bytes: Count('on disks of machines, as last counted there; shared and nfs volumes are not counted'),
  }),
  stub: Type.Object({ cpu_millicores: Count(), memory_mib: Count(), max_replicas: Count(), max_gpu_count: Count() }),
  tasks: Type.Object({
    max_pending_tasks_default: Count('of a deployment that asks for none'),
    max_pending_tasks: orNoBound(),
    max_retries: Count(),
    max_ttl_seconds: Count(),
  }),
  timeouts: Type.Object({
    endpoint_seconds: Count(),
    task_seconds: orNoBound(),
    container_start_seconds: Count(),
  }),
  requests: Type.Object({ max_body_bytes: Count(), max_invoke_body_bytes: Count() }),
  rate: Type.Object({
    rest_per_minute: orNoBound(),
    state_per_minute: orNoBound(),
    invoke_per_minute: orNoBound(),
    inference_per_minute: orNoBound(),
    inference_tokens_per_minute: orNoBound(),
  }),
  counts: Type.Object({
    tokens: Counted,
    webhooks: Counted,
    databases: Counted,
    stacks: Counted,
    volumes: Counted,
    deployments: Counted,
    stubs: Counted,
    objects: Counted,
    pools: Counted,
    unjoined_machines: Counted,
    shared_entries: Counted,
    sandboxes: Counted,
  }),
  bytes: Type.Object(
    {
      logs_per_day: Counted,
      objects: Counted,
      queue: Counted,
      shared: Counted,
      images: Counted,
      volumes: Counted,
    },
    {
      description:
        'lines of today (UTC), uploaded archives, inputs of tasks that wait or run, shared values, built images in the registry, and local volumes as last counted',
    },
  ),
  retention: Type.Object({ logs_days: orNoBound(), events_days: orNoBound(), tasks_days: orNoBound() }),
  billing: Type.Object({
    mode: OneOf(CREDIT_MODES),
    credits_cents: nullable(
      Type.Integer({
        description: 'balance less holds in cents, each 10000 micro-units, rounded down; below 0: owed; null: postpaid',
      }),
    ),
  }),
});
export type LimitsRecord = Static<typeof LimitsRecord>;
