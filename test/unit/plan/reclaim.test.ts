// PossibleVictim containers that end for others: who claims, whom it hits, and how many at a time.
import fc from 'fast-check';
import { describe, expect, test, vi } from 'vitest';
import type { ContainerId, MachineId, QueueName, WorkspaceId } from '#shared/domain/ids.ts';
import * as clearing from '#scheduler/control/plan/clearing.ts';
import type { PlacementMachine } from '#scheduler/control/plan/filter.ts';
import type { Wanted } from '#scheduler/control/plan/fit-class.ts';
import type { PossibleVictim, Preemption } from '#scheduler/control/plan/reclaim.ts';
import type { Sharing, WorkspaceShare } from '#scheduler/domain/shares.ts';
import { DEFAULT_SHARE, DEFAULT_SHARING } from '#scheduler/domain/shares.ts';
import { stories } from '../../helpers/stories.ts';
import { aMachine, aWanted, gpus, MIB } from './made.ts';
import { Played } from './played.ts';
import { Recorded } from './recorded.ts';

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const WORKSPACES = ['a', 'b', 'c', 'd'];
/** By then all that runs has run for long enough. */
const LATER = 3600 * SECOND;

const machineOf = (n: number, devices: number): PlacementMachine =>
  aMachine({
    machineId: `m-${n}` as MachineId,
    freeCpuMillicores: 100_000,
    totalCpuMillicores: 100_000,
    gpus: gpus(
      'H100',
      Array.from({ length: devices }, () => true),
      `m-${n}`,
    ),
  });
const asks = (workspace: string, said: Partial<Wanted> = {}): Wanted =>
  aWanted({
    workspaceId: workspace as WorkspaceId,
    queue: `q-${workspace}` as QueueName,
    gpu: ['H100'],
    gpuCount: 1,
    cpuMillicores: 10,
    memoryBytes: MIB,
    createdAtMs: LATER,
    ...said,
  });

/** A fleet that is full: `held` says how many GPUs each workspace has. */
class World {
  readonly played: Played;
  readonly planner;
  /** Workspaces whose containers nothing may interrupt. */
  readonly firm = new Set<string>();
  /** Containers that run a synchronous call. */
  readonly busy = new Set<ContainerId>();
  readonly sinceMs = new Map<ContainerId, number>();
  readonly asked = new Map<ContainerId, Wanted>();
  readonly leaving = new Map<ContainerId, Preemption>();
  /** Idle containers that warmth alone keeps. */
  warm = new Set<ContainerId>();
  /** Containers that stayed after all, by the last look. */
  spared: readonly ContainerId[] = [];
  /** Containers that the last look chose, with those that were leaving. */
  chosen: readonly Preemption[] = [];
  growing: ContainerId[] = [];
  nowMs = LATER;

  constructor(
    devices: readonly number[],
    held: Readonly<Record<string, number>>,
    shares: Readonly<Record<string, Partial<WorkspaceShare>>> = {},
    tape?: Recorded,
  ) {
    this.played = new Played([], tape);
    this.planner = this.played.planner;
    for (const [n, count] of devices.entries()) this.played.set(machineOf(n, count));
    for (const [id, share] of Object.entries(shares)) this.played.shares.set(id, { ...DEFAULT_SHARE, ...share });
    for (const id of WORKSPACES) this.planner.setShare(id as WorkspaceId, this.played.shareOf(id));
    for (const [id, count] of Object.entries(held))
      for (let n = 0; n < count; n += 1) this.waits(id, { createdAtMs: 0, id: `${id}-${n}` as ContainerId });
    this.round();
    for (const { wanted } of this.played.placed) this.sinceMs.set(wanted.id, 0);
  }

  waits(workspace: string, said: Partial<Wanted> = {}): Wanted {
    const wanted = asks(workspace, { createdAtMs: this.nowMs, ...said });
    this.asked.set(wanted.id, wanted);
    this.planner.add(wanted);
    return wanted;
  }

  round(): Wanted[] {
    const placed = this.played.round();
    for (const { id } of placed) this.sinceMs.set(id, this.nowMs);
    return placed;
  }

  candidates(): PossibleVictim[] {
    return this.played.placed.flatMap(({ wanted: { id, workspaceId } }) =>
      this.busy.has(id) ||
      (this.leaving.has(id) && this.leaving.get(id)?.isWarm !== true) ||
      (this.firm.has(workspaceId) && !this.warm.has(id))
        ? []
        : { id, sinceMs: this.sinceMs.get(id) ?? 0, ...(this.warm.has(id) ? { isWarm: true } : {}) },
    );
  }

  reclaim(afterSeconds = 0): readonly Preemption[] {
    this.nowMs += afterSeconds * SECOND;
    this.round();
    const { nowMs, growing } = this;
    const { told, spared, chosen } = this.planner.reclaim({ nowMs, candidates: this.candidates(), growing });
    for (const one of told) this.leaving.set(one.id, one);
    for (const id of spared) this.leaving.delete(id);
    // The scaling loop reads who is to end. It did not end these in time, and others are chosen.
    for (const [id, { isWarm }] of this.leaving)
      if (isWarm === true && !this.planner.leaving.isAwaited(id)) this.leaving.delete(id);
    this.spared = spared;
    this.chosen = chosen;
    return told;
  }

  ends(id: ContainerId): void {
    this.leaving.delete(id);
    this.played.end(this.played.placed.findIndex(({ wanted }) => wanted.id === id));
  }

  /** Containers that were told to end do. */
  allEnd(): void {
    for (const id of [...this.leaving.keys()]) this.ends(id);
  }

  ofWorkspace(workspace: string): readonly ContainerId[] {
    return this.played.placed.flatMap(({ wanted }) => (wanted.workspaceId === workspace ? wanted.id : []));
  }

  count(workspace: string): number {
    return this.ofWorkspace(workspace).length;
  }
}

const guaranteed = (n: number) => ({ b: { guaranteed: { H100: n } } });
const saying = (world: World, said: Partial<Sharing>): World => {
  world.planner.setSharing({ ...DEFAULT_SHARING, ...said });
  return world;
};

describe('a container whose workspace has less than is guaranteed to it', () => {
  test('gets the GPU of another workspace after five seconds, though that has just begun', () => {
    const world = new World([4], { a: 4 }, guaranteed(2));
    for (const id of world.sinceMs.keys()) world.sinceMs.set(id, LATER);
    const waits = world.waits('b');
    expect(world.reclaim(4)).toEqual([]);
    const told = world.reclaim(1);
    expect(told).toMatchObject([{ claimant: waits.id, reason: 'guarantee' }]);
    // Nothing more ends while that one does.
    expect(world.reclaim(1)).toEqual([]);
    world.allEnd();
    expect(world.round()).toEqual([waits]);
    expect(world.reclaim(10)).toEqual([]);
  });

  test('gets as many as are guaranteed, and the next one waits for its fair share', () => {
    const world = new World([8], { a: 8 }, guaranteed(2));
    for (let n = 0; n < 4; n += 1) world.waits('b');
    // A quarter of eight leave at a time.
    expect(world.reclaim(5).map(({ reason }) => reason)).toEqual(['guarantee', 'guarantee']);
    world.allEnd();
    expect(world.reclaim(1)).toEqual([]);
    expect(world.count('b')).toBe(2);
    // By half an hour of waiting its fair share counts, which is five: two are its own already.
    expect(world.reclaim(60).map(({ reason }) => reason)).toEqual(['fair_share']);
  });

  test('does not take what is guaranteed to another, what nothing may interrupt, nor what answers a call', () => {
    const own = new World([4], { a: 2, c: 2 }, { a: { guaranteed: { H100: 2 } }, ...guaranteed(2) });
    own.firm.add('c');
    own.waits('b');
    expect(own.reclaim(10)).toEqual([]);
    const firm = new World([4], { a: 4 }, guaranteed(2));
    firm.firm.add('a');
    firm.waits('b');
    expect(firm.reclaim(10)).toEqual([]);
    const busy = new World([4], { a: 4 }, guaranteed(2));
    for (const n of [0, 1, 3]) busy.busy.add(`a-${n}` as ContainerId);
    busy.waits('b');
    expect(busy.reclaim(10).map(({ id }) => id)).toEqual(['a-2']);
  });

  test('waits while a pool makes a machine for it, or a container ends by itself', () => {
    const world = new World([4], { a: 4 }, guaranteed(2));
    const waits = world.waits('b');
    world.growing = [waits.id];
    expect(world.reclaim(10)).toEqual([]);
    world.growing = [];
    const { wanted, choice } = world.played.placed[0]!;
    world.planner.hold(wanted.id, { ...wanted, ...choice, endsAtMs: world.nowMs + MINUTE });
    expect(world.reclaim(1)).toEqual([]);
    expect(world.reclaim(61)).toHaveLength(1);
  });
});

describe('a container whose workspace has less than its fair share', () => {
  test('gets a GPU after a minute from who has more than theirs and has run long, until shares are equal', () => {
    const world = new World([4], { a: 4 });
    for (let n = 0; n < 4; n += 1) world.waits('b');
    expect(world.reclaim(59)).toEqual([]);
    expect(world.reclaim(1)).toMatchObject([{ reason: 'fair_share' }]);
    world.allEnd();
    expect(world.reclaim(1)).toHaveLength(1);
    world.allEnd();
    for (let n = 0; n < 20; n += 1) {
      // Who lost containers waits, too, and neither takes from the other.
      if (n === 3) for (let one = 0; one < 4; one += 1) world.waits('a');
      expect(world.reclaim(MINUTE)).toEqual([]);
    }
    expect([world.count('a'), world.count('b')]).toEqual([2, 2]);
  });

  test('not from a container that began less than ten minutes ago', () => {
    const world = new World([4], { a: 4 });
    for (const id of world.sinceMs.keys()) world.sinceMs.set(id, LATER);
    world.waits('b');
    expect(world.reclaim(599)).toEqual([]);
    expect(world.reclaim(1)).toHaveLength(1);
  });

  test('takes the youngest of the workspace that holds most', () => {
    const world = new World([8], { a: 3, c: 5 });
    world.sinceMs.set('c-3' as ContainerId, 1);
    world.waits('b');
    expect(world.reclaim(60).map(({ id }) => id)).toEqual(['c-3']);
  });

  test('a quarter of a deployment leaves at a time, and ten of a workspace are told in a minute', () => {
    const world = new World([64], { a: 64 }, { b: { guaranteed: { H100: 40 } } });
    for (let n = 0; n < 40; n += 1) world.waits('b');
    expect(world.reclaim(5)).toHaveLength(10);
    world.allEnd();
    expect(world.reclaim(1)).toEqual([]);
    expect(world.count('b')).toBe(10);
    expect(world.reclaim(59)).toHaveLength(10);
    const small = new World([8], { a: 8 }, { b: { guaranteed: { H100: 8 } } });
    for (let n = 0; n < 8; n += 1) small.waits('b');
    expect(small.reclaim(5)).toHaveLength(2);
  });

  test('nor are more told in a minute where nothing may end meanwhile, or another lease begins', () => {
    const world = new World([64], { a: 64 }, { b: { guaranteed: { H100: 40 } } });
    for (let n = 0; n < 40; n += 1) world.waits('b');
    expect(world.reclaim(5)).toHaveLength(10);
    world.allEnd();
    // Many machines went silent for a moment.
    world.planner.reclaim(null);
    expect(world.reclaim(1)).toEqual([]);
    expect(world.reclaim(59)).toHaveLength(10);
  });

  test('claims of one workspace do not keep those of another waiting', () => {
    const world = new World(
      [80],
      { a: 40, c: 40 },
      { b: { guaranteed: { H100: 30 } }, d: { guaranteed: { H100: 4 } } },
    );
    for (const id of ['a', 'c']) world.warm = world.warm.union(new Set(world.ofWorkspace(id)));
    for (let n = 0; n < 30; n += 1) world.waits('b');
    const told = world.reclaim(5);
    expect(told).toHaveLength(16);
    const other = world.waits('d');
    expect(world.reclaim(5).map(({ claimant }) => claimant)).toEqual([other.id]);
  });

  test('as many containers end as wait beyond those for which others make room by themselves', () => {
    const world = new World([8], { a: 8 }, { b: { guaranteed: { H100: 8 } } });
    world.warm = new Set(world.ofWorkspace('a'));
    for (const { wanted, choice } of world.played.placed.slice(0, 3))
      world.planner.hold(wanted.id, { ...wanted, ...choice, endsAtMs: world.nowMs + MINUTE });
    for (let n = 0; n < 5; n += 1)
      world.waits('b', { queue: `q-b-${n % 2}` as QueueName, cpuMillicores: 10 - (n % 2) });
    expect(world.reclaim(5)).toHaveLength(2);
  });
});

describe('a container that warmth alone keeps', () => {
  test('ends before any that is interruptible, at once, and under no bound of these', () => {
    const world = new World([4, 4], { a: 8 }, guaranteed(8));
    for (const id of world.sinceMs.keys()) world.sinceMs.set(id, LATER);
    for (const n of [1, 5, 6]) world.warm.add(`a-${n}` as ContainerId);
    for (let n = 0; n < 4; n += 1) world.waits('b');
    const told = world.reclaim(5);
    expect(told.map(({ id, isWarm }) => `${id} ${isWarm === true ? 'warm' : 'interrupted'}`).toSorted()).toEqual([
      'a-0 interrupted',
      'a-1 warm',
      'a-5 warm',
      'a-6 warm',
    ]);
    for (const { id, isWarm } of told) expect(world.planner.leaving.isAwaited(id)).toBe(isWarm === true);
  });

  test('need not be interruptible, and keeps to the rule of shares', () => {
    const world = new World([4], { a: 2, c: 2 }, { a: { guaranteed: { H100: 2 } }, ...guaranteed(2) });
    for (const id of ['a', 'c']) world.firm.add(id);
    for (const id of ['a-0', 'c-1']) world.warm.add(id as ContainerId);
    world.waits('b');
    world.waits('b');
    // The guarantee of `a` stays its own, however idle.
    expect(world.reclaim(5)).toMatchObject([{ id: 'c-1', isWarm: true }]);
    expect(world.reclaim(1)).toEqual([]);
  });

  test('is given up when it works again: another one ends', () => {
    const world = new World([4], { a: 4 }, guaranteed(1));
    world.firm.add('a');
    world.warm.add('a-2' as ContainerId);
    world.waits('b');
    expect(world.reclaim(5).map(({ id }) => id)).toEqual(['a-2']);
    world.warm.add('a-0' as ContainerId);
    expect(world.reclaim(1)).toEqual([]);
    world.busy.add('a-2' as ContainerId);
    expect(world.reclaim(1).map(({ id }) => id)).toEqual(['a-0']);
    expect(world.planner.leaving.isAwaited('a-2' as ContainerId)).toBe(false);
  });

  test('makes its machine the cheapest to reserve, and holds no reservation up', () => {
    const world = new World([2, 2, 2], { a: 6 });
    world.firm.add('a');
    const there = Map.groupBy(world.played.placed, ({ choice }) => choice.machineId);
    const [last] = [...there].toSorted(([a], [b]) => (a < b ? 1 : -1));
    for (const { wanted } of last?.[1] ?? []) world.warm.add(wanted.id);
    // A first look learns who is only kept warm.
    world.waits('b', { arch: 'aarch64' });
    world.reclaim();
    world.waits('b', { gpuCount: 2, queue: 'q-large' as QueueName });
    world.nowMs += MINUTE;
    world.played.nowMs = world.nowMs;
    expect(world.reclaim()).toEqual([]);
    expect([...world.planner.reservations.all()].map(({ machineId }) => machineId)).toEqual([last?.[0]]);
  });
});

describe('a container that was told to end', () => {
  const told = (): { world: World; waits: Wanted } => {
    const world = new World([4], { a: 4 }, guaranteed(1));
    const waits = world.waits('b');
    expect(world.reclaim(5)).toHaveLength(1);
    return { world, waits };
  };

  test('stays when nobody needs its end any more', () => {
    const { world, waits } = told();
    const [victim] = world.leaving.keys();
    world.planner.remove(waits.id);
    expect(world.reclaim(1)).toEqual([]);
    expect(world.spared).toEqual([victim]);
    expect(world.reclaim(1)).toEqual([]);
    expect(world.spared).toEqual([]);
    // The same one may be told once more.
    world.waits('b');
    expect(world.reclaim(5)).toHaveLength(1);
  });

  test('stays when the other one has its place elsewhere', () => {
    const { world, waits } = told();
    const [victim] = world.leaving.keys();
    world.ends(world.played.placed.find(({ wanted }) => wanted.id !== victim)!.wanted.id);
    expect(world.round()).toEqual([waits]);
    expect(world.reclaim(1)).toEqual([]);
    expect(world.spared).toEqual([victim]);
  });

  test('ends for another one that needs its place, without a second one that ends', () => {
    const { world, waits } = told();
    world.planner.remove(waits.id);
    world.waits('b', { queue: 'q-other' as QueueName, createdAtMs: 0 });
    expect(world.reclaim(1)).toEqual([]);
    expect(world.spared).toEqual([]);
    expect(world.reclaim(1)).toEqual([]);
    expect(world.spared).toEqual([]);
  });

  test('is waited for as long as its task may take', () => {
    const world = new World([8], { a: 8 }, guaranteed(1));
    world.waits('b');
    const [victim] = world.reclaim(5).map(({ id }) => id);
    const { wanted, choice } = world.played.placed.find((one) => one.wanted.id === victim)!;
    world.planner.hold(wanted.id, { ...wanted, ...choice, endsAtMs: world.nowMs + 10 * MINUTE });
    const fitClass = [...world.planner.classes()][0]!;
    expect(world.reclaim(599)).toEqual([]);
    expect(world.planner.leaving.countFor(fitClass)).toBe(1);
    world.reclaim(2);
    expect(world.planner.leaving.countFor(fitClass)).toBe(0);
  });

  test('stays when the reservation that it held up has moved or ended', () => {
    const world = new World([8, 8], { a: 16 });
    const large = world.waits('b', { gpuCount: 2, queue: 'q-large' as QueueName });
    world.nowMs += MINUTE;
    world.played.nowMs = world.nowMs;
    const victims = world.reclaim().map(({ id }) => id);
    expect(victims).toHaveLength(2);
    world.planner.remove(large.id);
    world.reclaim(1);
    expect(world.spared.toSorted()).toEqual(victims.toSorted());
  });
});

test('nothing is reclaimed by arrival, when it is off, and while nothing may be', () => {
  const made = (): World => {
    const world = new World([4], { a: 4 }, guaranteed(2));
    world.waits('b');
    return world;
  };
  expect(saying(made(), { order: 'arrival' }).reclaim(600)).toEqual([]);
  expect(saying(made(), { reclaimAfterSeconds: null }).reclaim(600)).toEqual([]);
  const world = made();
  world.reclaim();
  expect(world.planner.reclaim(null)).toEqual({ told: [], spared: [], chosen: [] });
  expect(world.reclaim(5)).toHaveLength(1);
});

describe('in a large fleet', () => {
  test('a look compares so many machines, and the next one goes on with who was not looked at', () => {
    const world = new World(
      Array.from({ length: 600 }, () => 1),
      { a: 600 },
      { b: { guaranteed: { H100: 10 } }, c: { guaranteed: { H100: 10 } } },
    );
    const compared = vi.spyOn(clearing, 'withEnded');
    // No machine is such, whoever ends.
    world.waits('b', { arch: 'aarch64' });
    world.nowMs += 1;
    const wanted = world.waits('c');
    const looks = [5, 1, 1].map((seconds) => {
      compared.mockClear();
      const told = world.reclaim(seconds);
      return { told: told.map(({ claimant }) => claimant), compared: compared.mock.calls.length };
    });
    compared.mockRestore();
    expect(looks.map(({ told }) => told)).toEqual([[], [wanted.id], []]);
    expect(looks[0]?.compared).toBeGreaterThan(500);
    for (const look of looks) expect(look.compared).toBeLessThanOrEqual(2 * 512);
  });
});

describe('a reserved machine', () => {
  const crowded = (): { world: World; large: Wanted } => {
    const world = new World([8, 8], { a: 16 });
    const large = world.waits('b', { gpuCount: 2, queue: 'q-large' as QueueName });
    world.nowMs += MINUTE;
    world.played.nowMs = world.nowMs;
    return { world, large };
  };

  test('is cleared of what may be interrupted, all at once', () => {
    const { world, large } = crowded();
    const told = world.reclaim();
    expect(told.map(({ reason }) => reason)).toEqual(['reservation', 'reservation']);
    expect(world.reclaim(1)).toEqual([]);
    world.allEnd();
    expect(world.round()).toEqual([large]);
  });

  test('is cleared for a guarantee of what has just begun, too', () => {
    const told = ['b', 'c'].map((id) => {
      const world = new World([8, 8], { a: 16 }, guaranteed(2));
      for (const one of world.sinceMs.keys()) world.sinceMs.set(one, LATER);
      world.waits(id, { gpuCount: 2, queue: 'q-large' as QueueName });
      world.nowMs += MINUTE;
      world.played.nowMs = world.nowMs;
      return world.reclaim().length;
    });
    expect(told).toEqual([2, 0]);
  });

  test('is not, while something else keeps it that does not end', () => {
    const { world } = crowded();
    world.reclaim(-1);
    world.leaving.clear();
    const [reservation] = [...world.planner.reservations.all()];
    const [one] = world.planner.reservations.clearingOf(reservation!).must;
    world.planner.reclaim(null);
    world.busy.add(one!.id);
    expect(world.reclaim(1)).toEqual([]);
    world.busy.delete(one!.id);
    expect(world.reclaim(1)).toHaveLength(2);
  });
});

const step = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constant('wait' as const),
      workspace: fc.constantFrom(...WORKSPACES),
      gpuCount: fc.constantFrom(0, 1, 1, 1, 1, 2),
      count: fc.integer({ min: 1, max: 4 }),
    }),
  },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('end' as const), at: fc.nat() }) },
  { weight: 4, arbitrary: fc.record({ kind: fc.constant('leave' as const), at: fc.nat() }) },
  { weight: 8, arbitrary: fc.record({ kind: fc.constant('round' as const), ms: fc.constantFrom(1000, 6000, 61_000) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('busy' as const), at: fc.nat() }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('warm' as const), at: fc.nat() }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('goes' as const), at: fc.nat() }) },
  {
    weight: 1,
    arbitrary: fc.record({ kind: fc.constant('cordon' as const), n: fc.nat({ max: 3 }), is: fc.boolean() }),
  },
);
const share = fc.record({
  weight: fc.constantFrom(0.5, 1, 2),
  guaranteed: fc.constantFrom<Record<string, number>>({}, { H100: 1 }, { H100: 3 }, { H100: 30 }),
});

/** Share of a workspace in the market, counted from containers. */
function shareOf(world: World, workspace: string, more: readonly Wanted[], without: ReadonlySet<ContainerId>) {
  const there = world.played.machines();
  const capacity = {
    gpus: there.reduce((sum, one) => sum + one.gpus.length, 0),
    cpuMillicores: there.reduce((sum, one) => sum + one.totalCpuMillicores, 0),
    memoryBytes: there.reduce((sum, one) => sum + one.totalMemoryBytes, 0),
  };
  const own = world.played.placed.filter(
    ({ wanted }) => wanted.workspaceId === workspace && wanted.gpuCount > 0 && !without.has(wanted.id),
  );
  const all = [...own.map(({ wanted }) => wanted), ...more];
  const part = Math.max(
    ...(['cpuMillicores', 'memoryBytes'] as const).map((key) =>
      all.reduce((sum, one) => sum + one[key] / capacity[key], 0),
    ),
    all.reduce((sum, one) => sum + one.gpuCount / capacity.gpus, 0),
  );
  const given = world.played.shareOf(workspace);
  const sum = WORKSPACES.reduce((all_, id) => all_ + (world.played.shareOf(id).guaranteed['H100'] ?? 0), 0);
  const floor = (given.guaranteed['H100'] ?? 0) / Math.max(capacity.gpus, sum);
  return { isBelow: part < floor - 1e-12, share: Math.max(0, part - floor) / given.weight };
}

test('whatever happens, a victim may be interrupted, and its workspace keeps its guarantee and no smaller share', () => {
  let seen = 0;
  let spared = 0;
  fc.assert(
    fc.property(
      fc.array(fc.integer({ min: 2, max: 6 }), { minLength: 1, maxLength: 3 }),
      fc.tuple(share, share, share, share),
      fc.subarray(WORKSPACES, { maxLength: 2 }),
      fc.array(step, { minLength: 10, maxLength: 50 }),
      (devices, given, firm, steps) => {
        const recorded = new Recorded();
        const shares = Object.fromEntries(WORKSPACES.map((id, index) => [id, given[index] ?? {}]));
        const world = new World(devices, { a: 9, b: 9 }, shares, recorded);
        world.planner.setSharing({ ...DEFAULT_SHARING, minRunSeconds: 30 });
        for (const id of firm) world.firm.add(id);
        for (const one of steps) {
          if (one.kind === 'wait')
            for (let n = 0; n < one.count; n += 1) {
              const { gpuCount } = one;
              const queue = `q-${one.workspace}-${gpuCount}` as QueueName;
              world.waits(one.workspace, { gpuCount, queue, gpu: gpuCount === 0 ? [] : ['H100'] });
            }
          else if (one.kind === 'end') {
            const id = world.played.placed[one.at % Math.max(1, world.played.placed.length)]?.wanted.id;
            if (id !== undefined) world.ends(id);
          } else if (one.kind === 'leave') {
            const id = [...world.leaving.keys()][one.at % Math.max(1, world.leaving.size)];
            if (id !== undefined) world.ends(id);
          } else if (one.kind === 'busy') {
            const id = world.played.placed[one.at % Math.max(1, world.played.placed.length)]?.wanted.id;
            if (id !== undefined) world.busy.add(id);
            if (id !== undefined && world.leaving.get(id)?.isWarm === true) world.leaving.delete(id);
          } else if (one.kind === 'warm') {
            const id = world.played.placed[one.at % Math.max(1, world.played.placed.length)]?.wanted.id;
            if (id !== undefined && !world.warm.delete(id)) world.warm.add(id);
            else if (id !== undefined && world.leaving.get(id)?.isWarm === true) world.leaving.delete(id);
          } else if (one.kind === 'goes') {
            const waiting = [...world.planner.waiting];
            const item = waiting[one.at % Math.max(1, waiting.length)];
            if (item !== undefined) world.planner.remove(item.wanted.id);
          } else if (one.kind === 'cordon') {
            const machine = world.planner.machine(`m-${one.n}` as MachineId);
            if (machine !== undefined) world.played.set({ ...machine, intentActive: !one.is });
          } else {
            world.nowMs += one.ms;
            world.played.nowMs = world.nowMs;
            world.round();
            const may = new Set(world.candidates().map(({ id }) => id));
            const before = new Set(world.leaving.keys());
            const told = world.reclaim();
            seen += told.length;
            spared += world.spared.length;
            for (const id of world.spared) expect(before.has(id)).toBe(true);
            expect(new Set(told.map(({ id }) => id)).size).toBe(told.length);
            for (const { id } of told) expect(may.has(id)).toBe(true);
            const { chosen } = world;
            for (const [at, one] of chosen.entries()) {
              const { id, claimant, reason, isWarm = false } = one;
              const isAgain = !told.includes(one);
              if (isAgain) expect(before.has(id)).toBe(true);
              const victim = world.played.placed.find((held) => held.wanted.id === id)!.wanted;
              const waits = world.asked.get(claimant)!;
              expect(victim.workspaceId).not.toBe(waits.workspaceId);
              if (isWarm) expect(isAgain || world.warm.has(id)).toBe(true);
              else expect(isAgain || !world.firm.has(victim.workspaceId)).toBe(true);
              // With the claimant placed, and all gone that were chosen by then.
              const last = chosen.findLastIndex((other) => other.claimant === claimant && other.reason === reason);
              const later = new Set(chosen.slice(Math.max(at, last) + 1).map((other) => other.id));
              const gone = new Set(world.leaving.keys()).difference(later);
              const after = shareOf(world, victim.workspaceId, [], gone);
              expect(after.isBelow).toBe(false);
              const its = shareOf(world, waits.workspaceId, [waits], gone);
              expect(after.share).toBeGreaterThanOrEqual(its.share - 1e-9);
              if (reason === 'guarantee') expect(its.share).toBeLessThan(1e-9);
              if (its.share > 1e-9 && !isWarm && !isAgain)
                expect(world.nowMs - (world.sinceMs.get(id) ?? 0)).toBeGreaterThanOrEqual(30 * SECOND);
            }
            for (const some of Map.groupBy(
              [...world.leaving.values()]
                .flatMap(({ id, isWarm }) => (isWarm === true ? [] : id))
                .map((id) => world.played.placed.find((held) => held.wanted.id === id)!.wanted),
              ({ queue }) => queue,
            )) {
              const count = world.played.placed.filter((held) => held.wanted.queue === some[0]).length;
              if (told.some(({ id, isWarm }) => isWarm !== true && some[1].some((left) => left.id === id)))
                expect(some[1].length).toBeLessThanOrEqual(Math.max(1, Math.floor(count / 4)));
            }
          }
        }
        expect(recorded.replayed()).toBeUndefined();
      },
    ),
    { numRuns: stories(250) },
  );
  expect(seen).toBeGreaterThan(stories(250) / 5);
  expect(spared).toBeGreaterThan(0);
});
