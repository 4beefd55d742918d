// Limits of a workspace: their stored and shown shape, their defaults, and the
// changes that an administrator may make. Pure. Source: interface, REST 12.
import { ChangeLimits } from '#shared/api/rest/limits.ts';
import { AppError } from '#shared/errors.ts';
import { isRecord } from '#shared/json.ts';

/** Limits of a workspace, with the names of the REST API. null: no bound. */
export interface WorkspaceLimits {
  /** Limits at any moment, over all deployments. */
  readonly concurrency: {
    readonly gpu_limit: number | null;
    readonly cpu_millicore_limit: number | null;
    readonly memory_mib_limit: number | null;
    readonly container_limit: number | null;
  };
  /** Limits of one stub; `max_replicas`: containers of one deployment. */
  readonly stub: {
    readonly cpu_millicores: number;
    readonly memory_mib: number;
    readonly max_replicas: number;
    readonly max_gpu_count: number;
  };
  readonly tasks: {
    /** Default of a deployment that does not set it. */
    readonly max_pending_tasks_default: number;
    /** Upper bound for every deployment, also where the deployment asks for more. */
    readonly max_pending_tasks: number | null;
    readonly max_retries: number;
    readonly max_ttl_seconds: number;
  };
  readonly rate: {
    readonly rest_per_minute: number | null;
    /** Calls of maps, queues and signals. */
    readonly state_per_minute: number | null;
    readonly invoke_per_minute: number | null;
    readonly inference_per_minute: number | null;
    readonly inference_tokens_per_minute: number | null;
  };
  readonly counts: {
    readonly tokens: number;
    readonly webhooks: number;
    readonly databases: number;
    readonly stacks: number;
    readonly volumes: number;
    readonly deployments: number | null;
    readonly stubs: number;
    readonly objects: number;
    /** Pools of its own. */
    readonly pools: number;
    /** Machines that were admitted and have not joined. */
    readonly unjoined_machines: number;
    /** Entries of maps, items of queues, and signals. */
    readonly shared_entries: number;
    /** Containers of pods and sandboxes that were made by hand. */
    readonly sandboxes: number;
  };
  readonly bytes: {
    /** Log lines that containers print in a day of UTC. */
    readonly logs_per_day: number;
    /** Number of uploaded archives. */
    readonly objects: number;
    /** Bytes of inputs of open tasks, as far as they are kept in the queue instead of as objects. */
    readonly queue: number;
    /** Bytes of the entries of maps, items of queues, and signals. */
    readonly shared: number;
    /** Bytes of `local` volumes, as last counted on their machines. */
    readonly volumes: number | null;
    /** Bytes of built images in the registry; a layer of several images counts once. */
    readonly images: number;
  };
}

export const DEFAULT_WORKSPACE_LIMITS: WorkspaceLimits = {
  concurrency: { gpu_limit: null, cpu_millicore_limit: null, memory_mib_limit: null, container_limit: null },
  stub: { cpu_millicores: 128_000, memory_mib: 32_768, max_replicas: 100, max_gpu_count: 2 },
  tasks: { max_pending_tasks_default: 100, max_pending_tasks: 100_000, max_retries: 5, max_ttl_seconds: 86_400 },
  rate: {
    rest_per_minute: 600,
    state_per_minute: 60_000,
    invoke_per_minute: null,
    inference_per_minute: 600,
    inference_tokens_per_minute: null,
  },
  counts: {
    tokens: 100,
    webhooks: 20,
    databases: 20,
    stacks: 100,
    volumes: 1_000,
    deployments: null,
    stubs: 10_000,
    objects: 100_000,
    pools: 20,
    unjoined_machines: 50,
    shared_entries: 20_000,
    sandboxes: 200,
  },
  bytes: {
    logs_per_day: 1024 ** 3,
    objects: 100 * 1024 ** 3,
    queue: 256 * 1024 ** 2,
    shared: 256 * 1024 ** 2,
    volumes: null,
    images: 200 * 1024 ** 3,
  },
};

interface Bound {
  readonly min: number;
  readonly max: number;
}

/** Settable limits and their bounds, as the message's schema has them. */
const BOUNDS: Readonly<Record<keyof WorkspaceLimits, Readonly<Record<string, Bound>>>> = {
  concurrency: boundsOf(ChangeLimits.properties.concurrency),
  stub: boundsOf(ChangeLimits.properties.stub),
  tasks: boundsOf(ChangeLimits.properties.tasks),
  rate: boundsOf(ChangeLimits.properties.rate),
  counts: boundsOf(ChangeLimits.properties.counts),
  bytes: boundsOf(ChangeLimits.properties.bytes),
};

function boundsOf({ properties }: { readonly properties: object }): Readonly<Record<string, Bound>> {
  const limits = Object.entries(properties as Readonly<Record<string, { readonly anyOf: readonly unknown[] }>>);
  return Object.fromEntries(
    limits.map(([name, { anyOf }]) => {
      const { minimum, maximum } = anyOf[0] as { readonly minimum: number; readonly maximum: number };
      return [name, { min: minimum, max: maximum }];
    }),
  );
}

/** Fields that are only shown; a change that sends them back is not refused for them. */
const SHOWN_ONLY: ReadonlySet<string> = new Set([
  'workspace_id',
  'usage',
  'timeouts',
  'requests',
  'retention',
  'billing',
]);

/** Stored limits by group and name; an absent one has its default. */
export type StoredLimits = Readonly<Record<string, Readonly<Record<string, number>>>>;
/** A change; null: the default again. */
export type LimitsChange = Readonly<Record<string, Readonly<Record<string, number | null>>>>;

/** Limits in effect. @param stored - as the row has it; an unreadable value counts as not set */
export function limitsOf(stored: unknown, defaults: WorkspaceLimits = DEFAULT_WORKSPACE_LIMITS): WorkspaceLimits {
  const groups = Object.entries(defaults).map(([group, names]) => {
    const said = isRecord(stored) && isRecord(stored[group]) ? stored[group] : {};
    const values = Object.entries(names as Readonly<Record<string, number | null>>).map(([name, value]) => {
      const own = said[name];
      return [name, typeof own === 'number' ? own : value] as const;
    });
    return [group, Object.fromEntries(values)] as const;
  });
  return Object.fromEntries(groups) as unknown as WorkspaceLimits;
}

/** Reads an administrator's change. @throws AppError `invalid_body`, naming the field */
export function readChange(body: Readonly<Record<string, unknown>>): LimitsChange {
  const change: Record<string, Record<string, number | null>> = {};
  for (const [group, sent] of Object.entries(body)) {
    if (SHOWN_ONLY.has(group)) continue;
    const bounds = Object.hasOwn(BOUNDS, group) ? BOUNDS[group as keyof typeof BOUNDS] : undefined;
    if (bounds === undefined) throw invalid(group, `is no limit; there are ${Object.keys(BOUNDS).join(', ')}`);
    if (!isRecord(sent)) throw invalid(group, 'must be an object');
    const fields: Record<string, number | null> = {};
    for (const [name, value] of Object.entries(sent)) {
      const bound = Object.hasOwn(bounds, name) ? bounds[name] : undefined;
      if (bound === undefined) {
        throw invalid(`${group}.${name}`, `is no limit; ${group} has ${Object.keys(bounds).join(', ')}`);
      }
      fields[name] = readValue(`${group}.${name}`, value, bound);
    }
    change[group] = fields;
  }
  return change;
}

function readValue(field: string, sent: unknown, { min, max }: Bound): number | null {
  // A count may be sent as it is shown, with its usage, which is ignored.
  const value = isRecord(sent) ? sent['limit'] : sent;
  if (value === null) return null;
  if (typeof value === 'number' && Number.isInteger(value) && value >= min && value <= max) return value;
  throw invalid(field, `must be a whole number from ${min} to ${max}, or null for the default`);
}

const invalid = (field: string, text: string): AppError =>
  new AppError('invalid_body', `${field.slice(0, 80)} ${text}`, { details: { field } });

/** The row's next value: only differences from the defaults are stored. */
export function changed(stored: unknown, change: LimitsChange): StoredLimits {
  const out: Record<string, Record<string, number>> = {};
  const groups = new Set([...Object.keys(isRecord(stored) ? stored : {}), ...Object.keys(change)]);
  for (const group of groups) {
    const before = isRecord(stored) && isRecord(stored[group]) ? stored[group] : {};
    const merged = { ...before, ...change[group] };
    const kept = Object.entries(merged).filter((entry): entry is [string, number] => typeof entry[1] === 'number');
    if (kept.length > 0) out[group] = Object.fromEntries(kept);
  }
  return out;
}
