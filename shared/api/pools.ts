// Pools: an operator's settings, and how they are stored and shown. Requests, the
// pools file, rows, placement and the command line all read the settings from here.
import { Type } from 'typebox';
import type { Static, TSchema } from 'typebox';
import { LABELS_PATTERN, LABELS_WORDS } from '../domain/labels.ts';
import { MIRROR_PATTERN, MIRROR_WORDS } from '../domain/registry-mirror.ts';
import { Filters, Flag, Float, Int64, ListLimit, Text, Timestamp, Uint32, nullable } from './fields.ts';

/** Form of names of providers and GPU models. */
export const NAME_PATTERN = '^[A-Za-z0-9][A-Za-z0-9._+-]{0,62}$';

/** Every setting of a pool; `default` is what holds where nothing was said. */
export const PoolSettings = Type.Object({
  cpuOvercommit: Type.Number({
    minimum: 1,
    maximum: 64,
    default: 1,
    description: 'the cores of each machine are offered so many times over',
  }),
  cpuWorkOnGpuMachines: nullable(
    Type.Boolean({
      default: null,
      description: 'machines that have GPUs take work without a GPU too; null: as LONGSHORE_CPU_WORK_ON_GPU_POOLS says',
    }),
  ),
  requiresPoolSelector: Type.Boolean({
    default: false,
    description: 'only what names this pool is placed there',
  }),
  priority: Type.Integer({
    minimum: 0,
    maximum: 1000,
    default: 0,
    description:
      "of machines that could take a container, those of the higher pool come first; before it count the order of the GPU models asked for and the workspace's own pools",
  }),
  reservedCpuCores: nullable(
    Type.Number({
      minimum: 0,
      maximum: 1024,
      default: null,
      description: 'cores of each machine that stay for its host; null: a tenth of them, at most one',
    }),
  ),
  reservedMemoryMib: nullable(
    Type.Integer({
      minimum: 0,
      maximum: 16_777_216,
      default: null,
      description: 'memory of each machine that stays for its host; null: 5 % of it',
    }),
  ),
  labels: nullable(
    Type.String({
      title: LABELS_WORDS,
      pattern: LABELS_PATTERN,
      default: null,
      description:
        'labels of each machine of the pool, such as zone=a,disk=nvme, also of those that its provider will make; a label of the agent or of `longshore machine label` wins. null: none',
    }),
  ),
  hourlyCost: nullable(
    Type.Number({
      minimum: 0,
      maximum: 1_000_000,
      default: null,
      description:
        "cost of each machine in an hour, in the operator's currency; null: as the provider lists it, else not known",
    }),
  ),
  expectedGpus: nullable(
    Type.Integer({
      minimum: 0,
      maximum: 64,
      default: null,
      description:
        'GPUs that each machine should have, a divided one counted once: with fewer it has the condition GpuDegraded; LONGSHORE_EXPECTED_GPUS of a machine comes first; null: nothing is expected',
    }),
  ),
  registryMirror: nullable(
    Type.String({
      title: MIRROR_WORDS,
      pattern: MIRROR_PATTERN,
      default: null,
      description:
        'machines pull the layers of images of that registry from this mirror first, and what it lacks from the registry itself; null: from the registry alone',
    }),
  ),
  registryMirrorAuth: Type.Boolean({
    default: false,
    description: 'the mirror gets the credentials of private images, too; else it is asked without any',
  }),
  provider: nullable(
    Type.String({
      pattern: NAME_PATTERN,
      default: null,
      description: 'the provider that makes machines for the pool and takes them back; null: they are admitted by hand',
    }),
  ),
  minFreeGpu: Type.Integer({
    minimum: 0,
    maximum: 100_000,
    default: 0,
    description: 'GPUs that the provider keeps free, as far as maxMachines and hourlyBudget allow',
  }),
  minFreeCpuCores: Type.Number({
    minimum: 0,
    maximum: 1_000_000,
    default: 0,
    description: 'cores that the provider keeps free, by the same bounds',
  }),
  minFreeMemoryMib: Type.Integer({
    minimum: 0,
    maximum: 999_999_999,
    default: 0,
    description: 'memory that the provider keeps free, by the same bounds',
  }),
  minMachines: Type.Integer({
    minimum: 0,
    maximum: 10_000,
    default: 0,
    description: 'machines of the provider that stay, also without work',
  }),
  maxMachines: Type.Integer({
    minimum: 0,
    maximum: 10_000,
    default: 10,
    description: 'most machines of the provider at once, those on their way and those that leave included',
  }),
  hourlyBudget: nullable(
    Type.Number({
      minimum: 0,
      maximum: 999_999_999,
      default: null,
      description:
        "most that the provider's machines may cost in an hour; a machine whose price is not known counts as the mean of the others, else as 1. null: maxMachines alone is the bound",
    }),
  ),
  machineGpuModel: nullable(
    Type.String({
      pattern: NAME_PATTERN,
      default: null,
      description: 'GPU model of a machine that the provider makes; null: it has none',
    }),
  ),
  machineGpuCount: Type.Integer({
    minimum: 0,
    maximum: 64,
    default: 0,
    description: 'GPUs of a machine that the provider makes',
  }),
  machineGpuMemoryMib: nullable(
    Type.Integer({
      minimum: 1,
      maximum: 16_777_216,
      default: null,
      description:
        'memory of each GPU of a machine that the provider makes, for requests such as `any:>=40GiB`; null: not known, so no machine is made for them',
    }),
  ),
  machineCpuCores: nullable(
    Type.Number({
      minimum: 0.1,
      maximum: 1024,
      default: null,
      description: 'cores of a machine that the provider makes; needed with a provider',
    }),
  ),
  machineMemoryMib: nullable(
    Type.Integer({
      minimum: 64,
      maximum: 16_777_216,
      default: null,
      description: 'memory of a machine that the provider makes; needed with a provider',
    }),
  ),
  idleSeconds: Type.Integer({
    minimum: 5,
    maximum: 604_800,
    default: 600,
    description: "time without work after which the provider's machine may go",
  }),
  demandSeconds: Type.Number({
    minimum: 0,
    maximum: 3600,
    default: 5,
    description: 'time that a container waits in vain before a machine is made for it',
  }),
});
export type PoolSettings = Readonly<Static<typeof PoolSettings>>;

/** null: the default again. */
export type PoolSettingsChange = { readonly [Name in keyof PoolSettings]?: PoolSettings[Name] | null };

/** A setting as its schema says it, without the null that stands for a default. */
export interface PoolSettingFacts {
  readonly type: 'number' | 'integer' | 'boolean' | 'string';
  readonly minimum?: number;
  readonly maximum?: number;
  /** Form of a text, and the same in words; without words: a name. */
  readonly pattern?: string;
  readonly title?: string;
  readonly default: number | boolean | string | null;
  readonly description: string;
}

const factsOf = (schema: TSchema): PoolSettingFacts => {
  const [first] = (schema as { readonly anyOf?: readonly TSchema[] }).anyOf ?? [];
  return (first ?? schema) as unknown as PoolSettingFacts;
};

export const POOL_SETTINGS = Object.fromEntries(
  Object.entries(PoolSettings.properties).map(([name, schema]) => [name, factsOf(schema)]),
) as Readonly<Record<keyof PoolSettings, PoolSettingFacts>>;

export const POOL_DEFAULTS = Object.fromEntries(
  Object.entries(POOL_SETTINGS).map(([name, facts]) => [name, facts.default]),
) as unknown as PoolSettings;

/** Each of them or null. No defaults here: what is not sent stays as it is. */
const SAID = Object.fromEntries(
  Object.entries(POOL_SETTINGS).map(([name, { default: _none, ...facts }]) => [
    name,
    Type.Optional(nullable(Type.Unsafe(facts))),
  ]),
);

/**
 * Settings as sent. readPoolSettings judges names and values: unlike the
 * decoder, it refuses unknown settings and tells null from absent.
 */
const SaidPoolSettings = () =>
  Type.Unsafe<unknown>({
    description: 'settings to change, by name; null: the default again; a name that is no setting is refused',
    allOf: [Type.Object(SAID)],
  });

const OfWorkspace = () =>
  Type.Optional(Text({ description: "workspace that owns the pool, for an administrator; empty: the caller's own" }));

export const PoolRequest = Type.Object({ name: Text() });
export const GetPoolRequest = Type.Object({ name: Text(), workspaceId: OfWorkspace() });
export const PoolSettingsRequest = Type.Object({
  name: Text(),
  settings: Type.Optional(SaidPoolSettings()),
});
export const ChangePoolRequest = Type.Object({
  name: Text(),
  workspaceId: OfWorkspace(),
  settings: Type.Optional(SaidPoolSettings()),
});

export const WorkerPoolState = Type.Object({
  status: Text({ description: 'HEALTHY or DEGRADED' }),
  schedulingLatency: Int64({ description: 'ms' }),
  freeGpu: Uint32(),
  freeCpu: Int64(),
  freeMemory: Int64(),
  pendingWorkers: Int64(),
  availableWorkers: Int64(),
  pendingContainers: Int64(),
  runningContainers: Int64(),
  registeredMachines: Int64(),
  pendingMachines: Int64(),
  readyMachines: Int64(),
  reasons: Type.Array(Text(), { description: 'why it is DEGRADED, in words' }),
});

/** A machine that cannot go on, because a call of its provider keeps failing. */
export const StuckMachine = Type.Object({
  machineId: Text(),
  instanceId: Text({ description: 'empty: not known' }),
  verb: Text({ description: 'call that keeps failing: list or terminate' }),
  failures: Uint32({ description: 'in a row' }),
  text: Text({ description: 'a sentence' }),
  step: Text({ description: 'command for an administrator' }),
});

/** Why a pool with a provider grows or does not, and what its machines cost. */
export const PoolGrowth = Type.Object({
  verdict: Text({
    description: 'awaited: machines are on their way; else why none is made, such as enough or max_machines',
  }),
  text: Text({ description: 'a sentence' }),
  step: Text({ description: 'what an administrator could do; empty: nothing' }),
  until: Timestamp({ description: 'when the verdict ends by itself; null: not known' }),
  machines: Uint32({ description: 'of the provider: those there, on their way, and leaving' }),
  pending: Uint32({ description: 'of them, on their way' }),
  price: nullable(Float({ description: 'of a machine in an hour; null: not known' })),
  hourlyCost: Float({ description: 'of its machines in an hour, as the budget counts it' }),
  stuckCount: Uint32({ description: 'of its machines, those that cannot go on because a call keeps failing' }),
  stuck: Type.Array(StuckMachine, { maxItems: 5 }),
});
export type PoolGrowth = Static<typeof PoolGrowth>;

export const Pool = Type.Object({
  name: Text(),
  active: Flag(),
  gpu: Text(),
  minFreeGpu: Text(),
  minFreeCpu: Text(),
  minFreeMemory: Text(),
  defaultWorkerCpu: Text(),
  defaultWorkerMemory: Text(),
  defaultWorkerGpuCount: Text(),
  state: nullable(WorkerPoolState),
  settings: PoolSettings,
  effectiveCpuWorkOnGpuMachines: Flag({
    description: 'what holds of cpuWorkOnGpuMachines, also where the settings have null',
  }),
  declaredIn: Text({ description: 'the file that its settings are changed in; empty: they are changed here' }),
  growth: nullable(PoolGrowth),
});
export type Pool = Static<typeof Pool>;

export const PoolResponse = Type.Object({ ok: Flag(), errMsg: Text(), pool: nullable(Pool) });
export type PoolResponse = Static<typeof PoolResponse>;

export const ListPoolsRequest = Type.Object({ filters: Filters(), limit: ListLimit() });
export type ListPoolsRequest = Static<typeof ListPoolsRequest>;

export const ListPoolsResponse = Type.Object({ ok: Flag(), errMsg: Text(), pools: Type.Array(Pool) });
export type ListPoolsResponse = Static<typeof ListPoolsResponse>;
