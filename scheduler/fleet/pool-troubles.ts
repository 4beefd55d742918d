// Why a pool is DEGRADED, in words. Pure.
import type { PoolSettings } from '#shared/api/pools.ts';
import { blockingConditions } from './machine.ts';
import type { Machine } from './machine.ts';
import type { ProviderNames } from './provisioning/provider-names.ts';

/**
 * @param providers - absent: any name counts as known
 * @returns none: the pool is HEALTHY
 */
export function poolTroubles(
  machines: readonly Machine[],
  { provider }: Pick<PoolSettings, 'provider'>,
  providers: ProviderNames | undefined,
): readonly string[] {
  const counts = new Map<string, number>();
  const count = (trouble: string): void => void counts.set(trouble, (counts.get(trouble) ?? 0) + 1);
  for (const machine of machines) {
    if (machine.health === 'LOST') count('lost');
    if (machine.health === 'SUSPECT') count('silent');
    for (const condition of blockingConditions(machine)) count(condition);
  }
  const ofMachines = [...counts].map(([trouble, number]) => `${number} machine${number === 1 ? '' : 's'}: ${trouble}`);
  const isMissing = provider !== null && providers?.names().includes(provider) === false;
  return isMissing ? [...ofMachines, `there is no provider ${provider}: no machines are made`] : ofMachines;
}
