// `fair` (G17): who waits for whom on a full fleet, in made-up time and with the product's planner. Waits are seconds
// of that time, so each run has the same.
import type { ContainerId, MachineId, QueueName, WorkspaceId } from '#shared/domain/ids.ts';
import type { PriorityClass } from '#scheduler/domain/shares.ts';
import { DEFAULT_SHARE, DEFAULT_SHARING } from '#scheduler/domain/shares.ts';
import type { PlacementMachine } from '#scheduler/control/plan/filter.ts';
import type { Wanted } from '#scheduler/control/plan/fit-class.ts';
import { Heap } from '#scheduler/control/plan/heap.ts';
import { jain } from '#scheduler/control/plan/fair-share.ts';
import type { Choice } from '#scheduler/control/plan/place.ts';
import { Planner } from '#scheduler/control/plan/planner.ts';
import { PLAIN_MACHINE, PLAIN_WANTED } from '#scheduler/control/simulator/plain.ts';
import type { Figures } from '../measure.ts';
import { measureOf } from '../measure.ts';
import { inTurn } from '../rounds.ts';
import { percentile } from '../stats.ts';
import { queuedFigures } from './queued.ts';
import type { SuiteContext, SuiteResult } from './suite.ts';

const MACHINES = 50;
const GPUS = 8;
const WORKSPACES = 100;
/** Containers run for a minute on average. */
const LIFE_MS = 60_000;
/** Load of a workspace, as a part of its fair share of the fleet. */
const LOAD = 0.9;
const HEAVY = 100;
const WARM_MS = 5 * 60_000;
const FULL_MS = 30 * 60_000;
const QUICK_MS = 10 * 60_000;
const LOWS = 100_000;
const QUICK_LOWS = 10_000;
/** Containers that wait on a fleet where decisions for each end are counted. */
const FEW = 1_000;
const HIGH_EVERY_MS = 2_000;
/** Containers that need a whole machine come so often, beside requests for one GPU that never end. */
const WHOLE_EVERY_MS = 5 * 60_000;
const RESERVE_AFTER_MS = 60_000;
/** A workspace of this weight is served when no other one waits. */
const LAST = 1e-6;

export async function fair(context: SuiteContext): Promise<SuiteResult> {
  const { slack, isQuick } = context;
  const forMs = isQuick ? QUICK_MS : FULL_MS;
  const lows = isQuick ? QUICK_LOWS : LOWS;
  const rounds = await context.runRounds(
    'fair',
    inTurn(
      // On a fleet with room nobody waits. So each is compared with the same full fleet, and nobody in its way.
      () =>
        Promise.resolve({
          ...crowd(LAST, forMs),
          ...behindLow(0, forMs),
          ...decisions(FEW),
          'whole machine': amongOnes(true, forMs).boundS,
          ones: amongOnes(false, forMs).ones,
        }),
      () => {
        const { waitS, ones } = amongOnes(true, forMs);
        const beside = { ...crowd(1, forMs), ...behindLow(lows, forMs), ...decisions(lows) };
        return Promise.resolve({ ...beside, 'whole machine': waitS, ones });
      },
    ),
  );
  return {
    measures: [
      measureOf('fair', 'others p95', 's', rounds, slack),
      measureOf('fair', 'jain', '', rounds, slack),
      measureOf('fair', 'high p95', 's', rounds, slack),
      measureOf('fair', 'decisions', 'an end', rounds, slack),
      measureOf('fair', 'whole machine', 's', rounds, slack),
      measureOf('fair', 'ones', 'GPU min', rounds, slack),
    ],
    rounds,
  };
}

/**
 * A hundred workspaces, of which the first one asks for a hundred times as much as each of the others.
 * @param weight - of the first one
 */
export function crowd(weight: number, forMs: number): Figures {
  const world = new World();
  world.planner.setShare(nameOf(0), { ...DEFAULT_SHARE, weight });
  const eachMs = LIFE_MS / ((LOAD * MACHINES * GPUS) / WORKSPACES);
  for (let n = 0; n < WORKSPACES; n += 1) world.arrive(nameOf(n), n === 0 ? eachMs / HEAVY : eachMs);
  const minutes: number[] = [];
  const held = new Map<WorkspaceId, { used: number; fair: number }>();
  world.every(1000, () => {
    if (world.nowMs < WARM_MS) return;
    const report = world.planner.shares(world.nowMs).find(({ market }) => market === MODEL);
    for (const { workspaceId, used, fairShare } of report?.rows ?? []) {
      const sum = held.get(workspaceId) ?? { used: 0, fair: 0 };
      held.set(workspaceId, { used: sum.used + used, fair: sum.fair + fairShare });
    }
    if (world.nowMs % 60_000 !== 0) return;
    minutes.push(jain([...held.values()].flatMap(({ used, fair: is }) => (is > 0 ? used / is : []))));
    held.clear();
  });
  const waits = world.run(WARM_MS + forMs, ({ workspaceId }) => workspaceId !== nameOf(0));
  return { 'others p95': percentile(waits, 95), jain: Math.min(...minutes) };
}

/** Containers of priority `high` come while so many of priority `low` of their workspace wait, or none. */
function behindLow(lows: number, forMs: number): Figures {
  const world = new World();
  const workspaceId = nameOf(0);
  for (let n = 0; n < lows; n += 1) world.want(workspaceId, 'low');
  // As many follow as keep the fleet full.
  if (lows === 0) world.whenFree = (free) => void Array.from({ length: free }, () => world.want(workspaceId, 'low'));
  world.every(HIGH_EVERY_MS, () => world.want(workspaceId, 'high'));
  return {
    'high p95': percentile(
      world.run(forMs / 2, ({ priority }) => priority === 'high'),
      95,
    ),
  };
}

/**
 * A workspace asks for a whole machine now and then, while the others want more single GPUs than there are.
 * @returns how long each waited at most, and how long it had to: until the last container ended that was on its
 * machine when that was reserved; minutes of GPUs that the others' containers got, whose end is known
 */
export function amongOnes(
  isAsking: boolean,
  forMs: number,
): { readonly waitS: number; readonly boundS: number; readonly ones: number } {
  const world = new World();
  world.planner.setSharing({ ...DEFAULT_SHARING, reserveAfterSeconds: RESERVE_AFTER_MS / 1000 });
  const asks = nameOf(WORKSPACES);
  for (let n = 0; n < WORKSPACES; n += 1) world.arrive(nameOf(n), LIFE_MS / ((2 * MACHINES * GPUS) / WORKSPACES));
  if (isAsking) world.every(WHOLE_EVERY_MS, () => world.want(asks, 'normal', GPUS));
  const bounds: number[] = [];
  const reserved = new Set<ContainerId>();
  world.every(1000, () => {
    world.planner.reserve(world.nowMs);
    for (const { item, machineId } of world.planner.reservations.all()) {
      const { id, createdAtMs } = item.wanted;
      if (reserved.has(id)) continue;
      reserved.add(id);
      const last = Math.max(...world.planner.ledger.on(machineId).map((one) => world.endOf(one.id)));
      bounds.push((last - createdAtMs) / 1000);
    }
  });
  const waits = world.run(2 * forMs, ({ workspaceId }) => workspaceId === asks);
  return {
    waitS: Math.max(0, ...waits, ...world.waitingMs(asks).map((ms) => ms / 1000)),
    boundS: Math.max(0, ...bounds),
    ones: world.minutesOf(({ workspaceId }) => workspaceId !== asks),
  };
}

const decisions = (waiting: number): Figures => ({
  decisions: queuedFigures({ machines: 500, waiting, classes: 200, workspaces: 100 }).decisions,
});

const MODEL = 'H100';
const nameOf = (n: number): WorkspaceId => `w-${n}` as WorkspaceId;

interface Event {
  readonly atMs: number;
  readonly happen: () => void;
}

/** A fleet in made-up time: containers come, get GPUs as the planner says, and end. */
class World {
  readonly planner = new Planner();
  nowMs = 0;
  /** Told of the GPUs that nobody took. */
  whenFree: (free: number) => void = () => undefined;
  readonly #events = new Heap<Event>((a, b) => a.atMs < b.atMs);
  readonly #waits: { readonly wanted: Wanted; readonly ms: number; readonly lifeMs: number }[] = [];
  readonly #ends = new Map<ContainerId, number>();
  #free = MACHINES * GPUS;
  #made = 0;
  /** The same numbers in each run. */
  #seed = 1;

  constructor() {
    for (let n = 0; n < MACHINES; n += 1) this.planner.setMachine(anEmptyMachine(n));
  }

  /** @returns seconds that such containers waited, once the fleet was full */
  run(untilMs: number, counts: (wanted: Wanted) => boolean): number[] {
    for (let event = this.#events.pop(); event !== undefined && event.atMs <= untilMs; event = this.#events.pop()) {
      this.nowMs = event.atMs;
      event.happen();
      this.#round();
    }
    return this.#waits
      .filter(({ wanted }) => counts(wanted) && wanted.createdAtMs >= Math.min(WARM_MS, untilMs / 10))
      .map(({ ms }) => ms / 1000);
  }

  /** Time at which a container ends that has a place. */
  endOf(id: ContainerId): number {
    return this.#ends.get(id) ?? this.nowMs;
  }

  /** Milliseconds for which containers of the workspace wait. */
  waitingMs(of: WorkspaceId): readonly number[] {
    return [...this.planner.waiting].flatMap(({ wanted: { workspaceId, createdAtMs } }) =>
      workspaceId === of ? [this.nowMs - createdAtMs] : [],
    );
  }

  /** Minutes of GPUs that such containers got. */
  minutesOf(counts: (wanted: Wanted) => boolean): number {
    return (
      this.#waits.reduce((sum, { wanted, lifeMs }) => sum + (counts(wanted) ? wanted.gpuCount * lifeMs : 0), 0) / 60_000
    );
  }

  every(ms: number, happen: () => void): void {
    this.#in(ms, () => {
      happen();
      this.every(ms, happen);
    });
  }

  /** Containers of a workspace come at random times, so many milliseconds apart on average. */
  arrive(workspaceId: WorkspaceId, eachMs: number): void {
    this.#in(this.#random(eachMs), () => {
      this.want(workspaceId, 'normal');
      this.arrive(workspaceId, eachMs);
    });
  }

  want(workspaceId: WorkspaceId, priority: PriorityClass, gpuCount = 1): void {
    this.#made += 1;
    this.planner.add({
      ...PLAIN_WANTED,
      id: `c-${this.#made}` as ContainerId,
      workspaceId,
      queue: `q-${workspaceId}` as QueueName,
      createdAtMs: this.nowMs,
      priority,
      cpuMillicores: 1,
      memoryBytes: 1,
      gpu: WANTED_GPU,
      gpuCount,
    });
  }

  #round(): void {
    const { planner } = this;
    planner.forgetFacts();
    for (let isFull = false; !isFull;) {
      for (let step = planner.next(); step !== undefined; step = planner.next())
        if (step.kind === 'ask')
          for (const one of step.classes) planner.know(one, { quota: NO_QUOTA, volumeHomes: new Set(), image: null });
        else if (step.kind === 'chosen') this.#start(step.item.wanted, step.choice);
      isFull = this.#free === 0;
      if (!isFull) this.whenFree(this.#free);
      if (!planner.isBusy) return;
    }
  }

  #start(wanted: Wanted, choice: Choice): void {
    this.planner.take(wanted, choice);
    this.#free -= wanted.gpuCount;
    const lifeMs = this.#random(LIFE_MS);
    this.#waits.push({ wanted, ms: this.nowMs - wanted.createdAtMs, lifeMs });
    this.#ends.set(wanted.id, this.nowMs + lifeMs);
    this.#in(lifeMs, () => {
      this.planner.release(wanted.id, wanted.workspaceId);
      const machine = this.planner.machine(choice.machineId);
      if (machine === undefined) throw new Error('there is no such machine');
      this.#free += wanted.gpuCount;
      this.#ends.delete(wanted.id);
      const gpus = machine.gpus.map((gpu) => (choice.gpuUuids.includes(gpu.uuid) ? { ...gpu, free: true } : gpu));
      this.planner.setMachine({ ...machine, gpus, freeCpuMillicores: machine.freeCpuMillicores + 1 });
    });
  }

  #in(ms: number, happen: () => void): void {
    this.#events.push({ atMs: this.nowMs + ms, happen });
  }

  /** A random time with that mean, after which something happens that comes without memory. */
  #random(meanMs: number): number {
    this.#seed = (Math.imul(this.#seed, 1_664_525) + 1_013_904_223) >>> 0;
    return -meanMs * Math.log((this.#seed + 1) / 2 ** 32);
  }
}

const NO_QUOTA = { gpus: null, cpuMillicores: null };
const WANTED_GPU = [MODEL];

const anEmptyMachine = (n: number): PlacementMachine => ({
  ...PLAIN_MACHINE,
  machineId: `machine-${n}` as MachineId,
  freeCpuMillicores: 64_000,
  freeMemoryBytes: 2 ** 40,
  totalCpuMillicores: 64_000,
  totalMemoryBytes: 2 ** 40,
  gpus: Array.from({ length: GPUS }, (_none, gpu) => ({
    uuid: `${n}-${gpu}`,
    model: MODEL,
    free: true,
    healthy: true,
    numaNode: 0,
    leasedAtMs: 0,
  })),
});
