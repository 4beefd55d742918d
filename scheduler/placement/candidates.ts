// The machines that placement chooses from, kept up to date by change, and the choice itself: of the machines that are best for a request a sample is compared; all of them are looked at only when
// that finds none, and to say why. What must stay true: what it chooses can take the request; it finds a machine whenever place.ts does, and none of a model, pool or image that is wanted less.
import type { MachineId } from '#shared/domain/ids.ts';
import { BoundedMap } from '../deployments/bounded-map.ts';
import type { PlacementMachine, PlacementRequest } from './filter.ts';
import { rejectionOf } from './filter.ts';
import type { Placement, Rejections } from './place.ts';
import { bestOf, chooseOf, placeContainer } from './place.ts';
import { stableHash } from './score.ts';
import { compareStanding, isShelved, searchTier, Shelves } from './shelves.ts';

/** Images that were asked for of late, whose machines are kept apart. */
const MOST_IMAGES = 64;
const MOST_REJECTED = 256;

export class Candidates {
  readonly #machines = new Map<MachineId, PlacementMachine>();
  readonly #shelves = new Shelves();
  readonly #holding = new BoundedMap<string, Shelves>(MOST_IMAGES);
  /** What was just refused everywhere; true until a machine changes. */
  readonly #rejected = new Map<string, Rejections>();

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
    this.#rejected.clear();
    this.#machines.set(machine.machineId, machine);
    const shelved = isShelved(machine);
    if (shelved) this.#shelves.put(machine);
    else this.#shelves.drop(machine.machineId);
    for (const [image, shelves] of this.#holding) {
      if (shelved && machine.images.has(image)) shelves.put(machine);
      else shelves.drop(machine.machineId);
    }
  }

  delete(id: MachineId): void {
    this.#rejected.clear();
    this.#machines.delete(id);
    this.#shelves.drop(id);
    for (const [, shelves] of this.#holding) shelves.drop(id);
  }

  /** As `placeContainer` of place.ts with all of them; of machines that are equal but for how full they are, and for their share of a deployment, one of a sample is taken. */
  place(request: PlacementRequest): Placement {
    const machine = request.overQuota ? undefined : this.#find(request);
    if (machine !== undefined) return { ...chooseOf(machine, request), rejections: {} };
    const key = keyOf(request);
    const known = this.#rejected.get(key);
    if (known !== undefined) return { kind: 'rejected', rejections: known };
    const placement = placeContainer(request, this.#machines.values());
    if (placement.kind === 'placed') return placement;
    if (this.#rejected.size >= MOST_REJECTED) this.#rejected.clear();
    this.#rejected.set(key, placement.rejections);
    return placement;
  }

  /** undefined: none was found, and perhaps there is none. */
  #find(request: PlacementRequest): PlacementMachine | undefined {
    const named = namedBy(request);
    if (named !== undefined) {
      const machines = named.flatMap((id) => this.#machines.get(id) ?? []);
      const placement = placeContainer(request, machines);
      return placement.kind === 'placed' ? this.#machines.get(placement.machineId) : undefined;
    }
    const canTake = (machine: PlacementMachine): boolean => rejectionOf(machine, request) === undefined;
    const from = stableHash(request.seed);
    const tiers = this.#shelves.tiers(request);
    const withImage = this.#holders(request.image)?.tiers(request) ?? [];
    for (const [index, tier] of tiers.entries()) {
      const before = tiers[index - 1];
      // Those that hold the image come before all others of the same standing.
      const holders = before !== undefined && compareStanding(before, tier) === 0 ? [] : withImage;
      for (const one of [...holders.filter((other) => compareStanding(other, tier) === 0), tier]) {
        const { machines, complete } = searchTier(one, from, canTake, request);
        if (machines.length > 0) return bestOf(machines, request);
        // One that is wanted more than what comes next may be among those not looked at.
        if (!complete) return undefined;
      }
    }
    return undefined;
  }

  #holders(image: string): Shelves | undefined {
    if (image === '') return undefined;
    const known = this.#holding.get(image);
    if (known !== undefined) return known;
    const holders = new Shelves();
    for (const machine of this.#machines.values())
      if (isShelved(machine) && machine.images.has(image)) holders.put(machine);
    this.#holding.set(image, holders);
    return holders;
  }
}

/** The only machines that can serve it; undefined: any may. */
function namedBy({ volumeHomes, imageOnlyOn }: PlacementRequest): readonly MachineId[] | undefined {
  if (volumeHomes.size > 0) return [...volumeHomes];
  return imageOnlyOn === null ? undefined : [...imageOnlyOn];
}

/** All that decides whether any machine takes it. */
function keyOf(request: PlacementRequest): string {
  const { siblings, seed: _seed, volumeHomes, imageOnlyOn, avoid, ...rest } = request;
  // Where one of its deployment is it needs no room for its code.
  const withCode = rest.diskBytes > 0 ? [...siblings.keys()] : [];
  return JSON.stringify([rest, [...volumeHomes], imageOnlyOn === null ? null : [...imageOnlyOn], [...avoid], withCode]);
}
