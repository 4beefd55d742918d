// Settings of a pool: how they are read, and what they mean for a machine in it. Pure.
import { POOL_DEFAULTS, POOL_SETTINGS } from '#shared/api/pools.ts';
import type { PoolSettingFacts, PoolSettings, PoolSettingsChange } from '#shared/api/pools.ts';
import { ANY_GPU } from '#shared/domain/gpus.ts';
import { Value } from 'typebox/value';
import type { MachineOrder, MachineShape } from '../domain/provisioning.ts';

export type ReadSettings =
  | { readonly kind: 'read'; readonly change: PoolSettingsChange }
  | { readonly kind: 'wrong'; readonly problems: readonly string[] };

/**
 * Reads settings that were sent or written, in either spelling (`cpu_overcommit`); null and absent: not set. Unknown
 * names are refused, because a misspelt setting would otherwise be ignored silently.
 * @param before - prefix of each name in a problem, such as `settings.`
 */
export function readPoolSettings(sent: unknown, before: string): ReadSettings {
  if (sent === null || sent === undefined) return { kind: 'read', change: {} };
  if (typeof sent !== 'object' || Array.isArray(sent))
    return { kind: 'wrong', problems: [`${before === '' ? 'settings' : before.replace(/\.$/, '')} must be an object`] };
  const change: Record<string, unknown> = {};
  const problems: string[] = [];
  for (const [spelt, value] of Object.entries(sent)) {
    const name = spelt.replace(/_([a-z])/g, (_all, letter: string) => letter.toUpperCase());
    const problem = Object.hasOwn(change, name) ? `says ${name} a second time` : problemOf(name, value);
    if (problem === undefined) change[name] = value;
    else problems.push(`${before}${spelt.slice(0, 80)} ${problem}`);
  }
  return problems.length > 0 ? { kind: 'wrong', problems: problems.slice(0, MOST_PROBLEMS) } : { kind: 'read', change };
}

const MOST_PROBLEMS = 10;

function problemOf(name: string, value: unknown): string | undefined {
  if (!Object.hasOwn(POOL_SETTINGS, name))
    return `is no setting of a pool; there are ${Object.keys(POOL_SETTINGS).join(', ')}`;
  const facts = POOL_SETTINGS[name as keyof PoolSettings];
  // The command line has the word for the default.
  const isRight = value === null || (Value.Check(facts, value) && value !== 'default');
  return isRight ? undefined : `must be ${kindOf(facts)}, or null for the default`;
}

const KINDS = {
  number: 'a number',
  integer: 'a whole number',
  boolean: 'true or false',
  string: 'a name of at most 63 letters, digits, dots, dashes, plus signs and underscores',
} as const;

const kindOf = ({ type, minimum, maximum, title }: PoolSettingFacts): string =>
  `${title ?? KINDS[type]}${minimum === undefined ? '' : ` from ${minimum} to ${maximum}`}`;

/** Settings in effect: the given ones, and the default for the rest. */
export const settled = (change: PoolSettingsChange): PoolSettings => ({
  ...POOL_DEFAULTS,
  ...Object.fromEntries(Object.entries(change).filter(([, value]) => value !== null)),
});

/**
 * Settings that cost the installation money, which only an administrator
 * changes, also of a pool that belongs to a workspace.
 */
export const FOR_ADMINISTRATORS: readonly (keyof PoolSettings)[] = [
  'provider',
  'maxMachines',
  'hourlyBudget',
  'machineGpuModel',
  'machineGpuCount',
  'machineGpuMemoryMib',
  'machineCpuCores',
  'machineMemoryMib',
];

/**
 * Why someone who is no administrator may not make this change; undefined: it is allowed.
 * @param before - settings of the pool so far; a price decides what a budget buys where the pool has a provider
 */
export function changeRefusal(change: PoolSettingsChange, before: PoolSettings): string | undefined {
  const reserved = before.provider === null ? FOR_ADMINISTRATORS : [...FOR_ADMINISTRATORS, 'hourlyCost' as const];
  const [name] = reserved.filter((one) => Object.hasOwn(change, one));
  return name === undefined
    ? undefined
    : `settings.${name} is for an administrator to change: machines that a provider makes cost the installation money`;
}

/**
 * Why no machine can be made with these settings although they name a provider; undefined: one can, or none is named.
 */
export function providerProblem(settings: PoolSettings): string | undefined {
  const { provider, machineGpuModel, machineGpuCount, machineCpuCores, machineMemoryMib } = settings;
  if (provider === null) return undefined;
  if (machineCpuCores === null || machineMemoryMib === null)
    return 'a pool with a provider needs machineCpuCores and machineMemoryMib: the size of a machine that it makes';
  if ((machineGpuModel === null) !== (machineGpuCount === 0))
    return 'machineGpuModel and machineGpuCount go together: which GPUs a machine of the provider has, and how many';
  if (settings.machineGpuMemoryMib !== null && machineGpuModel === null)
    return 'machineGpuMemoryMib is the memory of each machineGpuModel, and none is named';
  if (machineGpuModel?.toLowerCase() === ANY_GPU)
    return 'machineGpuModel must name one model, which the provider makes machines with';
  if (settings.minFreeGpu > 0 && machineGpuCount === 0)
    return 'minFreeGpu needs machineGpuModel and machineGpuCount: no machine of the provider would have a GPU';
  if (settings.minMachines > settings.maxMachines) return 'minMachines must be at most maxMachines';
  return undefined;
}

/** Shape of a machine that the pool's provider makes; undefined: the pool has no provider, or no such size is set. */
export function shapeOf(settings: PoolSettings): MachineShape | undefined {
  const { machineGpuModel, machineGpuCount, machineCpuCores, machineMemoryMib } = settings;
  if (settings.provider === null || machineCpuCores === null || machineMemoryMib === null) return undefined;
  return {
    gpuModel: machineGpuModel ?? '',
    gpuCount: machineGpuModel === null ? 0 : machineGpuCount,
    cpuCores: machineCpuCores,
    memoryMib: machineMemoryMib,
  };
}

/** Whether a pool with these settings would order the machine so today: of the same provider, with the same size. */
export function isOrderOfToday({ provider, shape }: MachineOrder, settings: PoolSettings): boolean {
  const today = shapeOf(settings);
  return (
    provider === settings.provider &&
    shape.gpuModel === today?.gpuModel &&
    shape.gpuCount === today.gpuCount &&
    shape.cpuCores === today.cpuCores &&
    shape.memoryMib === today.memoryMib
  );
}

/** Whether the settings agree with the given ones, as far as these name any. */
export const agrees = (settings: PoolSettings, said: PoolSettingsChange): boolean =>
  Object.entries(said).every(
    ([name, value]) => settings[name as keyof PoolSettings] === (value ?? POOL_DEFAULTS[name as keyof PoolSettings]),
  );

/** Whether work without a GPU may go to machines with GPUs in that pool. */
export const takesCpuWork = (
  pool: { readonly poolName: string; readonly poolSettings: PoolSettings },
  /** Value of LONGSHORE_CPU_WORK_ON_GPU_POOLS, for pools that do not set it. */
  byDefault: (poolName: string) => boolean,
): boolean => pool.poolSettings.cpuWorkOnGpuMachines ?? byDefault(pool.poolName);
