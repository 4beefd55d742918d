// Search of all machines for the one that is cheapest to clear for a container that waits. It compares some machines at
// a time, so that in a large fleet nothing is held up by it.
import type { MachineId } from '#shared/domain/ids.ts';
import type { Candidates } from './candidates.ts';
import { cheapestClearing, compareClearings } from './clearing.ts';
import type { Clearing, Held } from './clearing.ts';
import type { PlacementMachine, PlacementRequest } from './filter.ts';
import type { Item } from './fit-class.ts';
import type { Ledger } from './ledger.ts';
import type { MarketState } from './markets.ts';

/** A machine, and the containers that must end there. */
export interface Found {
  readonly machine: PlacementMachine;
  readonly market: MarketState;
  readonly clearing: Clearing;
  readonly there: readonly Held[];
}

export interface ClearingSearchParts {
  readonly candidates: Candidates;
  readonly ledger: Ledger;
  readonly item: Item;
  /** Markets whose machines are looked at. */
  readonly open: ReadonlySet<MarketState>;
}

export class ClearingSearch {
  readonly #parts: ClearingSearchParts;
  readonly #machineIds: readonly MachineId[];
  /** Number of machines that were compared. */
  #at = 0;
  #best: Found | undefined;

  constructor(parts: ClearingSearchParts) {
    this.#parts = parts;
    this.#machineIds = [...parts.candidates.all()].map(({ machineId }) => machineId);
  }

  get item(): Item {
    return this.#parts.item;
  }

  /** Number of machines that it compares in all. */
  get size(): number {
    return this.#machineIds.length;
  }

  get isOver(): boolean {
    return this.#at >= this.#machineIds.length;
  }

  /** Whether some machine was found. */
  get hasFound(): boolean {
    return this.#best !== undefined;
  }

  /** Compares further machines. @param most - of them at once @returns how many it compared */
  compare(most: number, request: PlacementRequest, isTaken: (id: MachineId) => boolean): number {
    const from = this.#at;
    for (const id of this.#machineIds.slice(from, from + most)) {
      this.#at += 1;
      const found = this.#on(id, request, isTaken);
      if (found !== undefined && isCheaper(found, this.#best)) this.#best = found;
    }
    return this.#at - from;
  }

  /** The cheapest machine that was found, by what is known of it now. */
  best(request: PlacementRequest, isTaken: (id: MachineId) => boolean): Found | undefined {
    return this.#best && this.#on(this.#best.machine.machineId, request, isTaken);
  }

  #on(id: MachineId, request: PlacementRequest, isTaken: (id: MachineId) => boolean): Found | undefined {
    const { candidates, ledger, item, open } = this.#parts;
    const machine = candidates.get(id);
    if (machine === undefined || isTaken(id)) return undefined;
    const { totalCpuMillicores, totalMemoryBytes, gpus } = machine;
    const { gpuCount, cpuMillicores, memoryBytes } = item.fitClass;
    if (totalCpuMillicores < cpuMillicores || totalMemoryBytes < memoryBytes || gpus.length < gpuCount)
      return undefined;
    const market = ledger.markets.on(id, gpuCount);
    if (market === undefined || !open.has(market)) return undefined;
    const there = ledger.on(id);
    const clearing = cheapestClearing(machine, request, there);
    return clearing && { machine, market, clearing, there };
  }
}

/** Among machines that cost the same, the first by name wins: the order in which they were compared decides nothing. */
function isCheaper(found: Found, best: Found | undefined): boolean {
  if (best === undefined) return true;
  const order = compareClearings(found.clearing, best.clearing);
  return order < 0 || (order === 0 && found.machine.machineId < best.machine.machineId);
}
