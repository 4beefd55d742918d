// Machines that placement chooses from, kept up to date by change, and the choice itself. The choice compares a sample
// of the machines that are best for a request, and looks at more where the sample has none. All machines are looked at
// only to say why. Invariants: the chosen machine can take the request. A machine is found whenever place.ts finds
// one, and never one of a less wanted model, pool, cache or image.
import type { MachineId } from '#shared/domain/ids.ts';
import { BoundedMap } from '../../workspaces/deployments/bounded-map.ts';
import type { PlacementMachine, PlacementRequest } from './filter.ts';
import { rejectionOf } from './filter.ts';
import type { Choice, Rejections } from './place.ts';
import { bestOf, chooseOf, placeContainer } from './place.ts';
import { cachesFilled, imagePresent, stableHash } from './score.ts';
import { compareStanding, isIndexed, mayHaveRoom, searchTier, MachineIndex } from './machine-index.ts';

/** Most sets of images and caches asked for recently whose machines are kept apart. */
const MOST_HOLDINGS = 128;

export class Candidates {
  readonly #machines = new Map<MachineId, PlacementMachine>();
  #index = new MachineIndex();
  readonly #holders = new BoundedMap<string, Holders>(MOST_HOLDINGS);

  constructor(machines: Iterable<PlacementMachine> = []) {
    for (const machine of machines) this.set(machine);
  }

  get size(): number {
    return this.#machines.size;
  }

  get(id: MachineId): PlacementMachine | undefined {
    return this.#machines.get(id);
  }

  set(machine: PlacementMachine): void {
    this.#machines.set(machine.machineId, machine);
    const indexed = isIndexed(machine);
    if (indexed) this.#index.put(machine);
    else this.#index.drop(machine.machineId);
    for (const [, { index, isOne }] of this.#holders) {
      if (indexed && isOne(machine)) index.put(machine);
      else index.drop(machine.machineId);
    }
  }

  delete(id: MachineId): void {
    this.#machines.delete(id);
    this.#index.drop(id);
    for (const [, { index }] of this.#holders) index.drop(id);
  }

  clear(): void {
    this.#machines.clear();
    this.#index = new MachineIndex();
    this.#holders.clear();
  }

  /**
   * Chooses a machine as `placeContainer` of place.ts does over all machines. Among machines that
   * differ only in how full they are and in their share of a deployment, the best of a sample is taken.
   * @returns undefined: no machine can take the request
   */
  find(request: PlacementRequest): Choice | undefined {
    const machine = request.overQuota ? undefined : this.#find(request);
    return machine && chooseOf(machine, request);
  }

  /** Counts why machines cannot take the request, by a look at each of them. */
  reasons(request: PlacementRequest): Rejections {
    return placeContainer(request, this.#machines.values()).rejections;
  }

  #find(request: PlacementRequest): PlacementMachine | undefined {
    const named = namedBy(request);
    if (named !== undefined) {
      const machines = named.flatMap((id) => this.#machines.get(id) ?? []);
      const placement = placeContainer(request, machines);
      return placement.kind === 'placed' ? this.#machines.get(placement.machineId) : undefined;
    }
    const canTake = (machine: PlacementMachine): boolean => rejectionOf(machine, request) === undefined;
    const from = stableHash(request.seed);
    const tiers = this.#index.tiers(request).filter((tier) => mayHaveRoom(tier, request));
    if (tiers.length === 0) return undefined;
    const holders = this.#holdersFor(request).map((index) => index.tiers(request));
    for (const [index, tier] of tiers.entries()) {
      const before = tiers[index - 1];
      // Machines that hold caches or the image come before all others of the same standing.
      const isFirst = before === undefined || compareStanding(before, tier) !== 0;
      const better = isFirst ? holders.flatMap((some) => some.filter((one) => compareStanding(one, tier) === 0)) : [];
      for (const one of [...better, tier]) {
        const found = bestOf(searchTier(one, from, canTake, request), request);
        if (found !== undefined) return found;
      }
    }
    return undefined;
  }

  /** Machines that hold something of the request, the best first: its caches and its image, its caches, its image. */
  #holdersFor(request: PlacementRequest): readonly MachineIndex[] {
    const { caches, image } = request;
    const held: readonly Held[] = [
      ...(caches.length > 0 && image !== '' ? [{ caches, image }] : []),
      ...(caches.length > 0 ? [{ caches, image: '' }] : []),
      ...(image !== '' ? [{ caches: [], image }] : []),
    ];
    return held.map((one) => this.#indexOf(one));
  }

  #indexOf(held: Held): MachineIndex {
    const key = JSON.stringify([held.image, held.caches]);
    const known = this.#holders.get(key);
    if (known !== undefined) return known.index;
    const isOne = (machine: PlacementMachine): boolean =>
      (held.caches.length === 0 || cachesFilled(machine, held) === 1) &&
      (held.image === '' || imagePresent(machine, held) === 1);
    const index = new MachineIndex();
    for (const machine of this.#machines.values()) if (isIndexed(machine) && isOne(machine)) index.put(machine);
    this.#holders.set(key, { index, isOne });
    return index;
  }
}

/** Caches and an image; empty: not asked for. */
type Held = Pick<PlacementRequest, 'caches' | 'image'>;

interface Holders {
  readonly index: MachineIndex;
  readonly isOne: (machine: PlacementMachine) => boolean;
}

/** Machines that alone can serve the request; undefined: any may. */
function namedBy({ volumeHomes, imageOnlyOn, imageInRegistry }: PlacementRequest): readonly MachineId[] | undefined {
  if (volumeHomes.size > 0) return [...volumeHomes];
  return imageOnlyOn === null || imageInRegistry ? undefined : [...imageOnlyOn];
}
