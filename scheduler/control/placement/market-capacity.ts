// GPUs and cores that workspaces share, by market, and sentences about what was given to workspaces beyond them.
import { CPU_MARKET } from '../../domain/shares.ts';
import type { Market } from '../../domain/shares.ts';
import type { Machines } from '../../fleet/machines.ts';
import { capacityOf, Markets } from '../plan/markets.ts';
import type { MachineFactsParts } from './snapshot.ts';
import { inMarkets } from './snapshot.ts';

/** Markets of the machines that this process knows, with what they have. Those of machines that are away have 0. */
export function capacityByMarket(
  machines: Pick<Machines, 'all' | 'capacity'>,
  cpuWorkAllowed: MachineFactsParts['cpuWorkAllowed'],
): ReadonlyMap<Market, number> {
  const markets = new Markets();
  for (const machine of machines.all()) markets.put(inMarkets(machine, machines.capacity(machine), cpuWorkAllowed));
  return new Map([...markets.all].map((market) => [market.name, capacityOf(market)]));
}

/** Most sentences of an answer. A workspace may name 32 markets, and there may be thousands of workspaces. */
const MOST_WARNINGS = 20;

/**
 * Sentences about markets of which more is guaranteed than there is, or that no machine has.
 * @param given - by each market that shares name: the sum of what is guaranteed; 0: there are limits alone
 */
export function warningsOf(
  given: ReadonlyMap<Market, number>,
  capacity: ReadonlyMap<Market, number>,
): readonly string[] {
  const models = [...capacity.keys()].filter((market) => market !== CPU_MARKET).toSorted();
  const warnings = [...given].flatMap(([market, amount]) => {
    const there = capacity.get(market);
    const what = market === CPU_MARKET ? 'cores' : market;
    if (there === undefined) {
      const kind = amount > 0 ? `${amount} ${what} are guaranteed to workspaces` : `there is a limit on ${what}`;
      const others = models.length === 0 ? 'they have no GPU' : `they have ${models.join(', ')}`;
      return `${kind}, and no shared machine has this model: ${others}`;
    }
    if (amount <= Math.floor(there)) return [];
    return `${amount} ${what} are guaranteed to workspaces, and shared machines have ${Math.floor(there)}: until there are more, guarantees count in proportion`;
  });
  const rest = warnings.length - MOST_WARNINGS;
  return rest <= 1 ? warnings : [...warnings.slice(0, MOST_WARNINGS), `${rest} more such markets are not listed`];
}
