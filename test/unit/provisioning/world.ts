// A small world for random stories of pools that grow: containers come and end, placement puts them where they fit,
// providers make machines late, at other prices than said, or fail. The decision is the product's own.
import { isDeepStrictEqual } from 'node:util';
import type { ContainerId, MachineId } from '#shared/domain/ids.ts';
import { costOf, fits, MOST_PENDING, unfitFor, without } from '#scheduler/control/provisioning/choose.ts';
import { decideCapacity } from '#scheduler/control/provisioning/decide.ts';
import { Refusals } from '#scheduler/control/provisioning/refusals.ts';
import type { Decision, Demand, GrowingPool, Offer, Room } from '#scheduler/control/provisioning/facts.ts';

interface Machine {
  readonly id: MachineId;
  readonly pool: SimPool;
  /** Size that its pool had when it was ordered. */
  readonly ordered: Offer;
  readonly offer: Offer;
  /** Cost of an hour, as its provider lists it. */
  readonly cost: number | null;
  /** The agent joins then, and is seen. */
  readonly joinsAtMs: number;
  /** Containers may come from then on. */
  readonly readyAtMs: number;
  /** Whether it is noted as ready: a round after it is. */
  joined: boolean;
  createdAtMs: number;
  /** Since when it can take containers; null: it cannot yet. */
  offersSinceMs: number | null;
  emptySinceMs: number | null;
  readonly containers: Set<Demand>;
}

export interface SimPool {
  base: GrowingPool;
  shortSinceMs: number | null;
  notBeforeMs: number;
  /** Listed price of its machines. */
  readonly listed: number | null;
}

export class World {
  readonly pools: readonly SimPool[];
  readonly machines: Machine[] = [];
  readonly waiting: Demand[] = [];
  readonly story: string[] = [];
  /** So many of the next machines offer half of what their pools say. */
  broken = 0;
  nowMs = 1_000_000;
  grown = 0;
  shrunk = 0;
  readonly #refusals = new Refusals();
  #ids = 0;

  constructor(pools: readonly { readonly base: GrowingPool; readonly listed: number | null }[]) {
    this.pools = pools.map((pool) => ({ ...pool, shortSinceMs: null, notBeforeMs: 0 }));
  }

  want(demand: Omit<Demand, 'id' | 'sinceMs'>): void {
    this.waiting.push({ ...demand, id: `c-${(this.#ids += 1)}` as ContainerId, sinceMs: this.nowMs });
  }

  end(index: number): void {
    const running = this.machines.flatMap((machine) => [...machine.containers].map((one) => ({ machine, one })));
    const chosen = running[index % Math.max(1, running.length)];
    if (chosen === undefined) {
      this.waiting.splice(index % Math.max(1, this.waiting.length), 1);
      return;
    }
    chosen.machine.containers.delete(chosen.one);
    chosen.machine.offersSinceMs = this.nowMs;
    if (chosen.machine.containers.size === 0) chosen.machine.emptySinceMs = this.nowMs;
  }

  endAll(): void {
    this.waiting.splice(0);
    while (this.machines.some(({ containers }) => containers.size > 0)) this.end(0);
  }

  /** Pools without floors that have more machines than their least. */
  idle(): readonly number[] {
    return this.pools
      .filter(({ base: { settings } }) => settings.minFreeGpu === 0 && settings.minFreeCpuCores === 0)
      .filter(({ base }) => this.machines.filter(({ pool }) => pool.base === base).length > base.settings.minMachines)
      .map(({ base }) => base.poolId);
  }

  fail(index: number, forMs: number): void {
    const pool = this.pools[index % this.pools.length];
    if (pool !== undefined) pool.notBeforeMs = this.nowMs + forMs;
  }

  /** A person changes the size of machines that are made from now on. */
  resize(index: number, cores: number): void {
    const pool = this.pools[index % this.pools.length];
    if (pool === undefined) return;
    const { gpus } = pool.base.offer;
    const offer = { cpuMillicores: cores * 1000, memoryBytes: cores * 4 * 1024 ** 3, gpus };
    pool.base = { ...pool.base, offer };
    this.#refusals.delete(pool.base.poolId);
  }

  /** Lets time pass to the next due moment, at most so far, and decides. */
  pass(ms: number): void {
    const untilMs = this.nowMs + ms;
    for (let rounds = 0; rounds < 10_000; rounds += 1) {
      const dueMs = this.round();
      if (dueMs > untilMs) break;
      this.nowMs = Math.max(this.nowMs + 1, dueMs);
    }
    this.nowMs = untilMs;
    this.round();
  }

  /** @returns when to look again */
  round(): number {
    for (const machine of this.machines) {
      if (machine.emptySinceMs === null && machine.containers.size === 0 && machine.joinsAtMs <= this.nowMs)
        machine.emptySinceMs = this.nowMs;
      // The row is written after the round that sees it ready.
      if (!machine.joined && machine.offersSinceMs !== null) machine.joined = true;
      if (machine.readyAtMs <= this.nowMs) machine.offersSinceMs ??= this.nowMs;
    }
    this.#place();
    const facts = this.pools.map((pool) => this.#factsOf(pool));
    const decision = decideCapacity(facts, this.waiting, this.nowMs);
    this.#verify(facts, decision);
    this.#remember(decision);
    this.#carryOut(decision);
    const coming = this.machines
      .filter(({ joined }) => !joined)
      .map(({ joinsAtMs, readyAtMs }) => (joinsAtMs > this.nowMs ? joinsAtMs : readyAtMs));
    // A step changes the facts, so the next round comes at once.
    return decision.steps.length > 0 ? this.nowMs : Math.min(...decision.againAtMs.values(), ...coming);
  }

  /** Placement: what fits goes to the first machine, in the order of waiting. */
  #place(): void {
    for (const demand of [...this.waiting]) {
      const machine = this.machines.find(
        (one) => one.offersSinceMs !== null && isUsable(one.pool, demand) && fits(freeOf(one), one.offer, demand),
      );
      if (machine === undefined) continue;
      machine.containers.add(demand);
      machine.emptySinceMs = null;
      this.waiting.splice(this.waiting.indexOf(demand), 1);
    }
  }

  #factsOf(pool: SimPool): GrowingPool {
    const alive = this.machines.filter((one) => one.pool === pool);
    const known = alive.filter(({ cost }) => cost !== null);
    const coming = alive.filter(({ joined }) => !joined).map(({ ordered }) => ordered);
    return {
      ...pool.base,
      refused: this.#refusals.of(pool.base.poolId, (id) => alive.some((one) => one.id === id), this.nowMs),
      shortSinceMs: pool.shortSinceMs,
      coming,
      capacity: {
        ...pool.base.capacity,
        alive: alive.length,
        pending: coming.length,
        hourlyCost: known.reduce((sum, { cost }) => sum + (cost ?? 0), 0),
        unpriced: alive.length - known.length,
        notBeforeMs: pool.notBeforeMs,
      },
      rooms: alive.filter(({ joinsAtMs }) => joinsAtMs <= this.nowMs).map(roomOf),
    };
  }

  #verify(facts: readonly GrowingPool[], { steps }: Decision): void {
    for (const pool of facts) {
      const grows = steps.filter((step) => step.kind === 'grow' && step.poolId === pool.poolId).length;
      const shrinks = steps.filter((step) => step.kind === 'shrink' && step.poolId === pool.poolId);
      if (grows > 0 && shrinks.length > 0) throw new Error(`pool ${pool.poolId} grows and shrinks at once`);
      const { settings, capacity } = pool;
      if (grows > 0) {
        const after = {
          ...pool,
          capacity: { ...capacity, alive: capacity.alive + grows, unpriced: capacity.unpriced + grows },
        };
        if (after.capacity.alive > settings.maxMachines) throw new Error(`pool ${pool.poolId} exceeds its machines`);
        if (capacity.pending + grows > MOST_PENDING) throw new Error(`pool ${pool.poolId} has too many on their way`);
        if (costOf(after) > (settings.hourlyBudget ?? Infinity) + 1e-6)
          throw new Error(`pool ${pool.poolId} exceeds its budget`);
        if (capacity.notBeforeMs > this.nowMs) throw new Error(`pool ${pool.poolId} grows while its provider fails`);
      }
      const left = pool.rooms.filter(({ isMade }) => isMade).length + capacity.pending - shrinks.length;
      if (shrinks.length > 0 && left < settings.minMachines)
        throw new Error(`pool ${pool.poolId} goes below its least`);
      for (const step of shrinks) {
        const machine = this.machines.find(({ id }) => step.kind === 'shrink' && id === step.machineId);
        if (machine === undefined || machine.containers.size > 0) throw new Error('a machine with containers goes');
        if (this.nowMs - (machine.emptySinceMs ?? this.nowMs) < settings.idleSeconds * 1000)
          throw new Error(`machine ${machine.id} goes before its time`);
      }
    }
  }

  #remember(decision: Decision): void {
    for (const { poolId, isShort } of decision.pools) {
      const pool = this.#pool(poolId);
      pool.shortSinceMs = isShort ? (pool.shortSinceMs ?? this.nowMs) : null;
    }
    for (const { poolId, queue, machineId } of decision.refused)
      this.#refusals.note(poolId, queue, machineId, this.nowMs);
  }

  #carryOut({ steps }: Decision): void {
    for (const step of steps) {
      this.story.push(
        `${this.nowMs} ${step.kind} ${step.poolId} ${step.kind === 'grow' ? step.cause : step.machineId}`,
      );
      if (step.kind === 'shrink') {
        this.shrunk += 1;
        this.machines.splice(
          this.machines.findIndex(({ id }) => id === step.machineId),
          1,
        );
        continue;
      }
      this.grown += 1;
      const pool = this.#pool(step.poolId);
      this.machines.push({
        id: `m-${(this.#ids += 1)}` as MachineId,
        pool,
        ordered: pool.base.offer,
        offer: this.broken > 0 ? halfOf(pool.base.offer) : pool.base.offer,
        cost: pool.listed,
        createdAtMs: this.nowMs,
        joinsAtMs: this.nowMs + 1_000 * (1 + (this.#ids % 240)),
        readyAtMs: this.nowMs + 1_000 * (1 + (this.#ids % 240) + (this.#ids % 7) * 20),
        joined: false,
        offersSinceMs: null,
        emptySinceMs: null,
        containers: new Set(),
      });
      this.broken = Math.max(0, this.broken - 1);
    }
  }

  #pool(poolId: number): SimPool {
    const pool = this.pools.find(({ base }) => base.poolId === poolId);
    if (pool === undefined) throw new Error(`pool ${poolId} is not there`);
    return pool;
  }

  /** Containers that some pool could serve, and that are not served although it has not reached a bound. */
  unserved(): readonly string[] {
    const facts = this.pools.map((pool) => this.#factsOf(pool));
    return this.waiting
      .filter((demand) =>
        facts.some(
          (pool) =>
            unfitFor(pool, demand) === undefined &&
            pool.capacity.alive < pool.settings.maxMachines &&
            costOf({
              ...pool,
              capacity: { ...pool.capacity, alive: pool.capacity.alive + 1, unpriced: pool.capacity.unpriced + 1 },
            }) <= (pool.settings.hourlyBudget ?? Infinity),
        ),
      )
      .map(({ id }) => id);
  }
}

const isUsable = ({ base }: SimPool, demand: Demand): boolean => {
  const unfit = unfitFor({ ...base, refused: new Set() }, demand);
  return unfit === undefined;
};

function freeOf({ offer, containers }: Machine): Offer {
  let free = offer;
  for (const one of containers) free = without(free, offer, one);
  return free;
}

const halfOf = (offer: Offer): Offer => ({ ...offer, cpuMillicores: offer.cpuMillicores / 2 });

const roomOf = (machine: Machine): Room => ({
  machineId: machine.id,
  isMade: machine.joined,
  isPending: !machine.joined,
  isOrderOfToday: machine.joined && isDeepStrictEqual(machine.ordered, machine.pool.base.offer),
  isOpen: machine.offersSinceMs !== null,
  mayLeave: true,
  total: machine.offer,
  free: freeOf(machine),
  createdAtMs: machine.createdAtMs,
  offersSinceMs: machine.offersSinceMs ?? 0,
  emptySinceMs: machine.emptySinceMs,
});
