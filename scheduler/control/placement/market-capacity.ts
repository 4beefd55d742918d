// GPUs and cores that workspaces share, by market, and sentences about what is guaranteed beyond them.
import { CPU_MARKET } from '../../domain/shares.ts';
import type { Market } from '../../domain/shares.ts';
import type { Machines } from '../../fleet/machines.ts';
import { takesCpuWork } from '../../fleet/pool-settings.ts';
import { gpuMarketOf } from '../plan/filter.ts';

const CORE = 1000;

/** Machines of shared pools that talk, or are silent for a moment only. */
export function capacityByMarket(
  machines: Pick<Machines, 'all' | 'capacity'>,
  cpuWorkAllowed: (poolName: string) => boolean,
): ReadonlyMap<Market, number> {
  const capacity = new Map<Market, number>();
  const add = (market: Market, amount: number): void => {
    capacity.set(market, (capacity.get(market) ?? 0) + amount);
  };
  for (const machine of machines.all()) {
    const { row, health, inventory } = machine;
    if (row.poolWorkspaceId !== null || (health !== 'READY' && health !== 'SUSPECT')) continue;
    const gpus = inventory?.gpus ?? [];
    const model = gpuMarketOf({ gpus });
    if (model !== undefined) add(model, gpus.filter(({ unhealthy }) => !unhealthy).length);
    if (gpus.length === 0 || takesCpuWork(row, cpuWorkAllowed))
      add(CPU_MARKET, machines.capacity(machine).totalCpuMillicores / CORE);
  }
  return capacity;
}

/** Sentences about markets of which more is guaranteed than there is. */
export const warningsOf = (
  guaranteed: ReadonlyMap<Market, number>,
  capacity: ReadonlyMap<Market, number>,
): readonly string[] =>
  [...guaranteed].flatMap(([market, amount]) => {
    const there = Math.floor(capacity.get(market) ?? 0);
    if (amount <= there) return [];
    const what = market === CPU_MARKET ? 'cores' : market;
    return `${amount} ${what} are guaranteed to workspaces, and shared machines have ${there}: until there are more, guarantees count in proportion`;
  });
