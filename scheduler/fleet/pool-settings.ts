// Settings of a pool: how they are read, and what they mean for a machine in it. Pure.
import { POOL_DEFAULTS, POOL_SETTINGS } from '#shared/api/pools.ts';
import type { PoolSettingFacts, PoolSettings, PoolSettingsChange } from '#shared/api/pools.ts';
import { Value } from 'typebox/value';

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
  return value === null || Value.Check(facts, value) ? undefined : `must be ${kindOf(facts)}, or null for the default`;
}

const KINDS = { number: 'a number', integer: 'a whole number', boolean: 'true or false' } as const;

const kindOf = ({ type, minimum, maximum }: PoolSettingFacts): string =>
  `${KINDS[type]}${minimum === undefined ? '' : ` from ${minimum} to ${maximum}`}`;

/** Settings in effect: the given ones, and the default for the rest. */
export const settled = (change: PoolSettingsChange): PoolSettings => ({
  ...POOL_DEFAULTS,
  ...Object.fromEntries(Object.entries(change).filter(([, value]) => value !== null)),
});

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
