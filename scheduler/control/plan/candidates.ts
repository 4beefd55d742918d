// Machines that placement chooses from, kept up to date by change, and the choice itself. The choice compares a sample
// of the machines that are best for a request, and looks at more where the sample has none. All machines are looked at
// only to say why. Invariants: the chosen machine can take the request. A machine is found whenever place.ts finds
// one, and never one of a less wanted model, pool, cache or image.
import type { MachineId } from '#shared/domain/ids.ts';
import { labelsFit } from '#shared/domain/labels.ts';
import { BoundedMap } from '../../workspaces/deployments/bounded-map.ts';
import type { PlacementMachine, PlacementRequest } from './filter.ts';
import { rejectionOf } from './filter.ts';
import type { Choice, Rejections } from './place.ts';
import { bestInTier, chooseOf, placeContainer } from './place.ts';
import { cachesFilled, imagePresent, preferred, spreadCount, stableHash } from './score.ts';
import { compareStanding, isIndexed, mayHaveRoom, SAMPLE, searchTier, MachineIndex } from './machine-index.ts';
import type { Tier } from './machine-index.ts';

/**
 * Most sets of images, caches and labels asked for recently that are remembered. From its second request on, the
 * machines of a set are kept apart. Of more sets that take turns, machines are told apart at each request.
 */
const MOST_HOLDINGS = 128;

export class Candidates {
  readonly #machines = new Map<MachineId, PlacementMachine>();
  #index = new MachineIndex();
  /** null: the set was asked for once. */
  readonly #holders = new BoundedMap<string, Holders | null>(MOST_HOLDINGS);

  constructor(machines: Iterable<PlacementMachine> = []) {
    for (const machine of machines) this.set(machine);
  }

  get size(): number {
    return this.#machines.size;
  }

  get(id: MachineId): PlacementMachine | undefined {
    return this.#machines.get(id);
  }

  /** Text of all that lasts about a machine on which something may be placed. */
  lastingOf(id: MachineId): string {
    return this.#index.lastingOf(id) ?? '';
  }

  all(): Iterable<PlacementMachine> {
    return this.#machines.values();
  }

  set(machine: PlacementMachine): void {
    this.#machines.set(machine.machineId, machine);
    const indexed = isIndexed(machine);
    if (indexed) this.#index.put(machine);
    else this.#index.drop(machine.machineId);
    for (const [, holders] of this.#holders) {
      if (indexed && holders?.isOne(machine) === true) holders.index.put(machine);
      else holders?.index.drop(machine.machineId);
    }
  }

  delete(id: MachineId): void {
    this.#machines.delete(id);
    this.#index.drop(id);
    for (const [, holders] of this.#holders) holders?.index.drop(id);
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
    const from = stableHash(request.seed);
    const canTake = (machine: PlacementMachine): boolean => rejectionOf(machine, request) === undefined;
    const all = this.#searched(NOTHING_HELD, request);
    const tiers = all.tiers.filter((tier) => mayHaveRoom(tier, request));
    if (tiers.length === 0) return undefined;
    const lists = wishedOf(request).map((wished) =>
      [...heldBy(request), NOTHING_HELD].map((held) =>
        held === NOTHING_HELD && wished === 0 ? { ...all, tiers } : this.#searched({ ...held, wished }, request),
      ),
    );
    const counts = spreadCountsOf(request);
    for (const [index, standing] of tiers.entries()) {
      const before = tiers[index - 1];
      if (before !== undefined && compareStanding(before, standing) === 0) continue;
      // The order of score.ts within a standing: preferred labels, spread, caches, image; then GPUs left over.
      for (const list of lists)
        for (const count of counts) {
          for (const { tiers: some, isOne } of list) {
            const fits = (machine: PlacementMachine): boolean =>
              isOne(machine) && (counts.length === 1 || spreadCount(machine, request) === count) && canTake(machine);
            for (const tier of some) {
              if (compareStanding(tier, standing) !== 0) continue;
              const found = bestInTier(
                searchTier(tier, from, fits, request, isOne === isAny ? SAMPLE : Infinity),
                request,
              );
              if (found !== undefined) return found;
            }
          }
        }
    }
    return undefined;
  }

  /** Tiers in which machines are searched for that hold those things, and which machines there do. */
  #searched(held: Held, request: PlacementRequest): Pick<Holders, 'isOne'> & { readonly tiers: readonly Tier[] } {
    const { labels } = request;
    if (held === NOTHING_HELD && labels === undefined) return { tiers: this.#index.tiers(request), isOne: isAny };
    const { index, isOne } = this.#holdersOf({ ...held, labels });
    return { tiers: index.tiers(request), isOne };
  }

  #holdersOf(held: Held & Pick<PlacementRequest, 'labels'>): Holders {
    const { caches, image, labels, wished } = held;
    const rules = labels && [labels.require, labels.forbid, wished === 0 ? {} : labels.prefer];
    const key = JSON.stringify([image, caches, rules, wished]);
    const known = this.#holders.get(key);
    if (known) return { index: known.index, isOne: isAny };
    const isOne = (machine: PlacementMachine): boolean =>
      (caches.length === 0 || cachesFilled(machine, held) === 1) &&
      (image === '' || imagePresent(machine, held) === 1) &&
      labelsFit(machine.labels ?? {}, labels) &&
      (wished === 0 || preferred(machine, held) >= wished);
    if (known === undefined) {
      this.#holders.set(key, null);
      return { index: this.#index, isOne };
    }
    const index = new MachineIndex();
    for (const machine of this.#machines.values()) if (isIndexed(machine) && isOne(machine)) index.put(machine);
    this.#holders.set(key, { index, isOne });
    return { index, isOne: isAny };
  }
}

const isAny = (): boolean => true;

/** Caches, an image, and a least number of preferred labels; empty and 0: not asked for. */
interface Held extends Pick<PlacementRequest, 'caches' | 'image'> {
  readonly wished: number;
}
const NOTHING_HELD: Held = { caches: [], image: '', wished: 0 };

/** Parts of the request that machines may hold, the best first: its caches and its image, its caches, its image. */
const heldBy = ({ caches, image }: PlacementRequest): readonly Held[] => [
  ...(caches.length > 0 && image !== '' ? [{ caches, image, wished: 0 }] : []),
  ...(caches.length > 0 ? [{ caches, image: '', wished: 0 }] : []),
  ...(image !== '' ? [{ caches: [], image, wished: 0 }] : []),
];

/** Least numbers of preferred labels, the best first. */
const wishedOf = ({ labels }: PlacementRequest): readonly number[] => {
  const most = Object.keys(labels?.prefer ?? {}).length;
  return Array.from({ length: most + 1 }, (_none, index) => most - index);
};

/** Numbers of containers by which places are told apart, the best first. */
const spreadCountsOf = ({ spreadCounts }: PlacementRequest): readonly number[] =>
  spreadCounts === undefined ? [0] : [...new Set([0, ...spreadCounts.values()])].toSorted((a, b) => a - b);

interface Holders {
  readonly index: MachineIndex;
  readonly isOne: (machine: PlacementMachine) => boolean;
}

/** Machines that alone can serve the request; undefined: any may. */
function namedBy({ volumeHomes, imageOnlyOn, imageInRegistry }: PlacementRequest): readonly MachineId[] | undefined {
  if (volumeHomes.size > 0) return [...volumeHomes];
  return imageOnlyOn === null || imageInRegistry ? undefined : [...imageOnlyOn];
}
