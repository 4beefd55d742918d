// The growth of pools as a decision: who grows, how far, and which machines go.
import { describe, expect, test } from 'vitest';
import type { QueueName, WorkspaceId } from '#shared/domain/ids.ts';
import { REFUSED_MS, decideCapacity } from '#scheduler/control/provisioning/decide.ts';
import type { Decision, GrowingPool } from '#scheduler/control/provisioning/facts.ts';
import { aDemand, aPool, aRoom, anOffer } from './facts.ts';

const NOW = 1_000_000;
const many = (count: number, said: Parameters<typeof aDemand>[0] = {}) =>
  Array.from({ length: count }, (_none, index) => aDemand({ id: `c-${index}`, ...said }));
const grown = (decision: Decision): readonly number[] =>
  decision.steps.flatMap((step) => (step.kind === 'grow' ? [step.poolId] : []));
const gone = (decision: Decision): readonly string[] =>
  decision.steps.flatMap((step) => (step.kind === 'shrink' ? [step.machineId] : []));
const stated = (decision: Decision, poolId = 1) => decision.pools.find((one) => one.poolId === poolId);

describe('a container that waits', () => {
  test('gets a machine once it has waited for as long as the pool says', () => {
    const pool = aPool({ settings: { demandSeconds: 5 } });
    const demand = aDemand({ sinceMs: NOW - 4_999 });
    const early = decideCapacity([pool], [demand], NOW);
    expect([grown(early), early.againAtMs.get(1)]).toEqual([[], NOW + 1]);
    const now = decideCapacity([pool], [demand], NOW + 1);
    expect([grown(now), now.awaited.get(demand.id)]).toEqual([[1], 1]);
  });

  test('is not counted again while a machine on its way will take it', () => {
    const pool = aPool({ capacity: { pending: 1, alive: 1 } });
    const decision = decideCapacity([pool], many(4), NOW);
    expect([grown(decision), stated(decision)]).toMatchObject([[], { awaiting: 4, unserved: 0, blocked: null }]);
    expect(grown(decideCapacity([pool], many(5), NOW))).toEqual([1]);
  });

  test('counts on a machine on its way only for what was ordered: the pool may ask for another size since', () => {
    const [small, large] = [anOffer(1, 16), anOffer(16, 64)];
    const pool = { capacity: { pending: 1, alive: 1 } };
    const larger = aPool({ ...pool, offer: large, coming: [small] });
    const first = decideCapacity([larger], [aDemand({ cpuMillicores: 8000 })], NOW);
    expect([grown(first), stated(first)]).toMatchObject([[1], { awaiting: 1 }]);
    // The container that brought the small one still gets it.
    expect(grown(decideCapacity([larger], [aDemand()], NOW))).toEqual([]);
    const smaller = aPool({ ...pool, offer: small, coming: [large] });
    expect([grown(decideCapacity([smaller], many(16), NOW)), grown(decideCapacity([smaller], many(17), NOW))]).toEqual([
      [],
      [1],
    ]);
    const floor = { settings: { minFreeCpuCores: 4 }, shortSinceMs: NOW - 5_000 };
    expect(grown(decideCapacity([aPool({ ...pool, ...floor })], [], NOW))).toEqual([]);
    expect(grown(decideCapacity([aPool({ ...pool, ...floor, coming: [small] })], [], NOW))).toEqual([1]);
  });

  test('shares a machine with others: as many are made as are needed, at most five on their way', () => {
    expect(grown(decideCapacity([aPool()], many(9), NOW))).toEqual([1, 1, 1]);
    const burst = decideCapacity([aPool({ settings: { maxMachines: 100 } })], many(100), NOW);
    expect(grown(burst)).toHaveLength(5);
    expect(stated(burst)).toMatchObject({ blocked: 'pending_bound', awaiting: 20, unserved: 80 });
  });

  test('is left to placement for half a minute, while a machine has room', () => {
    const pool = aPool({ rooms: [aRoom({ emptySinceMs: null, offersSinceMs: NOW })], capacity: { alive: 1 } });
    const decision = decideCapacity([pool], [aDemand()], NOW);
    expect([grown(decision), decision.againAtMs.get(1)]).toEqual([[], NOW + REFUSED_MS]);
    expect(grown(decideCapacity([pool], [aDemand()], NOW + REFUSED_MS))).toEqual([1]);
  });

  test('that an empty machine does not take gets no other one of that pool', () => {
    const pool = aPool({ rooms: [aRoom({ offersSinceMs: NOW })], capacity: { alive: 1 } });
    const decision = decideCapacity([pool], [aDemand()], NOW + REFUSED_MS);
    expect([grown(decision), decision.refused]).toEqual([[], [{ poolId: 1, queue: 'tq-1', machineId: 'm-1' }]]);
    const known = { ...pool, refused: new Set([aDemand().queue]) };
    expect(grown(decideCapacity([known], [aDemand()], NOW))).toEqual([]);
    // An empty machine that is smaller than its pool says was made for it in vain.
    const small = aRoom({ total: anOffer(0.5, 16), createdAtMs: 10, offersSinceMs: NOW });
    const wrong = decideCapacity([aPool({ rooms: [small] })], [aDemand({ sinceMs: 5 })], NOW);
    expect([grown(wrong), wrong.refused]).toEqual([[], [{ poolId: 1, queue: 'tq-1', machineId: 'm-1' }]]);
    // Another size was ordered: the machine is as large as it should be.
    const before = { ...small, isOrderOfToday: false };
    const resized = decideCapacity([aPool({ rooms: [before] })], [aDemand({ sinceMs: 5 })], NOW);
    expect([grown(resized), resized.refused]).toEqual([[1], []]);
    // Both kinds are there: the one that was ordered as today refuses.
    const faulty = { ...small, machineId: aRoom({ machineId: 'm-2' }).machineId };
    const both = decideCapacity([aPool({ rooms: [before, faulty] })], [aDemand({ sinceMs: 5 })], NOW);
    expect([grown(both), both.refused]).toEqual([[], [{ poolId: 1, queue: 'tq-1', machineId: 'm-2' }]]);
  });

  test('that a machine admitted by hand does not take gets one of the provider', () => {
    const pool = aPool({ rooms: [aRoom({ isMade: false, offersSinceMs: NOW })] });
    expect(grown(decideCapacity([pool], [aDemand()], NOW))).toEqual([1]);
  });

  test.for([
    ['of another pool', { poolName: 'other' }],
    ['of a pool that must be named', { settings: { requiresPoolSelector: true } }],
    ["of another workspace's pool", { poolOwner: 'w-2' }],
    ['that is too large', { cpuMillicores: 4_001 }],
    ['for a GPU that it has not', { gpu: ['H100'], gpuCount: 1 }],
    ['without a GPU, where machines have some', { offer: anOffer(4, 16, ['H100']) }],
    ['for more GPUs than it has', { gpu: ['H100'], gpuCount: 2, offer: anOffer(4, 16, ['H100']) }],
  ] as const)('makes no pool grow that cannot serve it: %s', ([, said]) => {
    const { settings, poolOwner, offer, ...demand } = { settings: {}, poolOwner: null, offer: anOffer(4, 16), ...said };
    const pool = aPool({ settings, poolOwner: poolOwner as WorkspaceId | null, offer });
    expect(decideCapacity([pool], [aDemand(demand)], NOW)).toMatchObject({ steps: [], pools: [{ blocked: null }] });
  });
});

describe('of pools that can serve it', () => {
  const prices = (...costs: readonly (number | null)[]): GrowingPool[] =>
    costs.map((hourlyCost, index) => aPool({ poolId: index + 1, settings: { hourlyCost } }));

  test('the cheapest grows, one without a price last, and priority decides between equals', () => {
    expect(grown(decideCapacity(prices(null, 3, 2), [aDemand()], NOW))).toEqual([3]);
    const equals = [aPool(), aPool({ poolId: 2, settings: { priority: 1 } })];
    expect(grown(decideCapacity(equals, [aDemand()], NOW))).toEqual([2]);
  });

  test('the cheapest for each container counts: a large machine for many, a small one for one', () => {
    const small = aPool({ settings: { hourlyCost: 4 }, offer: anOffer(4, 16, ['H100']) });
    const eight = Array.from({ length: 8 }, () => 'H100');
    const large = aPool({ poolId: 2, settings: { hourlyCost: 20 }, offer: anOffer(32, 128, eight) });
    const wanted = { gpu: ['H100'], gpuCount: 1 };
    expect(grown(decideCapacity([small, large], many(1, wanted), NOW))).toEqual([1]);
    expect(grown(decideCapacity([small, large], many(8, wanted), NOW))).toEqual([2]);
  });

  test('the order of the GPU models, then the own pool, come before the price', () => {
    const pools = [
      aPool({ settings: { hourlyCost: 1 }, offer: anOffer(4, 16, ['T4']) }),
      aPool({ poolId: 2, settings: { hourlyCost: 9 }, offer: anOffer(4, 16, ['A100-80']) }),
      aPool({
        poolId: 3,
        settings: { hourlyCost: 10 },
        offer: anOffer(4, 16, ['A100-80']),
        poolOwner: 'w-1' as WorkspaceId,
      }),
    ];
    const asks = (...gpu: readonly string[]) => grown(decideCapacity(pools, [aDemand({ gpu, gpuCount: 1 })], NOW));
    expect([asks('T4', 'A100'), asks('A100', 'T4'), asks('any')]).toEqual([[1], [3], [3]]);
  });

  test('the next one grows where the first is at a bound or fails, and not while its machines are on their way', () => {
    const [first, second] = prices(1, 2);
    const grows = (said: Parameters<typeof aPool>[0]) =>
      grown(decideCapacity([aPool({ ...said }), second ?? aPool()], many(50), NOW));
    expect(first?.poolId).toBe(1);
    expect(grows({ settings: { maxMachines: 1 }, capacity: { alive: 1 } })).toEqual([2, 2, 2, 2, 2]);
    expect(grows({ settings: { hourlyBudget: 0.5 } })).toEqual([2, 2, 2, 2, 2]);
    expect(grows({ capacity: { notBeforeMs: NOW + 1 } })).toEqual([2, 2, 2, 2, 2]);
    expect(grows({ isKnown: false })).toEqual([2, 2, 2, 2, 2]);
    expect(grows({ capacity: { pending: 5, alive: 5 } })).toEqual([]);
  });
});

describe('a pool stays within', () => {
  test.for([
    ['its number of machines', { settings: { maxMachines: 3 } }, 3, 'max_machines'],
    ['those that leave included', { settings: { maxMachines: 3 }, capacity: { alive: 2 } }, 1, 'max_machines'],
    ['its budget', { settings: { hourlyCost: 0.1, hourlyBudget: 0.3 } }, 3, 'hourly_budget'],
    [
      'its budget by listed prices',
      { settings: { hourlyCost: null, hourlyBudget: 10 }, capacity: { alive: 2, hourlyCost: 6 } },
      1,
      'hourly_budget',
    ],
    [
      'its budget in machines, without prices',
      { settings: { hourlyCost: null, hourlyBudget: 3 }, capacity: { alive: 1, unpriced: 1 } },
      2,
      'hourly_budget',
    ],
    ['one machine until its price is known', { settings: { hourlyCost: null, hourlyBudget: 100 } }, 1, 'price_unknown'],
    ['what it had until its provider may be asked again', { capacity: { notBeforeMs: NOW + 7 } }, 0, 'backing_off'],
  ] as const)('%s', ([, said, machines, blocked]) => {
    const decision = decideCapacity([aPool(said)], many(100), NOW);
    expect(grown(decision)).toHaveLength(machines);
    expect(stated(decision)?.blocked).toBe(blocked);
    if (blocked === 'backing_off') expect(decision.againAtMs.get(1)).toBe(NOW + 7);
  });
});

describe('floors', () => {
  const short = { shortSinceMs: NOW - 5_000 };
  test('are kept, once they have been missed for a while', () => {
    const settings = { minFreeCpuCores: 6 };
    const young = decideCapacity([aPool({ settings })], [], NOW);
    expect([grown(young), young.againAtMs.get(1), stated(young)?.isShort]).toEqual([[], NOW + 5_000, true]);
    expect(grown(decideCapacity([aPool({ settings, ...short })], [], NOW))).toEqual([1, 1]);
    expect(grown(decideCapacity([aPool({ settings, ...short, capacity: { pending: 1, alive: 1 } })], [], NOW))).toEqual(
      [1],
    );
    const gpus = aPool({ settings: { minFreeGpu: 3 }, ...short, offer: anOffer(4, 16, ['H100', 'H100']) });
    expect(grown(decideCapacity([gpus], [], NOW))).toEqual([1, 1]);
    expect(grown(decideCapacity([aPool({ settings: { minFreeMemoryMib: 16_385 }, ...short })], [], NOW))).toEqual([
      1, 1,
    ]);
  });

  test('count what machines admitted by hand have free, and not what waits for a place', () => {
    const hand = aRoom({ isMade: false });
    const settings = { minFreeCpuCores: 4 };
    expect(grown(decideCapacity([aPool({ settings, ...short, rooms: [hand] })], [], NOW))).toEqual([]);
    expect(
      grown(decideCapacity([aPool({ settings, ...short, rooms: [{ ...hand, isOpen: false }] })], [], NOW)),
    ).toEqual([1]);
    const pending = { pending: 1, alive: 1 };
    expect(grown(decideCapacity([aPool({ settings, ...short, capacity: pending })], [aDemand()], NOW))).toEqual([1]);
  });

  test('as well as the least number of machines, hold machines back', () => {
    const rooms = [aRoom(), aRoom({ machineId: 'm-2', emptySinceMs: 1 })];
    const idle = (settings: Parameters<typeof aPool>[0]) =>
      gone(decideCapacity([aPool({ rooms, capacity: { alive: 2 }, ...settings })], [], NOW));
    expect(idle({})).toEqual(['m-1', 'm-2']);
    expect(idle({ settings: { minMachines: 1 } })).toEqual(['m-1']);
    expect(idle({ settings: { minFreeCpuCores: 4 } })).toEqual(['m-1']);
    expect(idle({ settings: { minFreeCpuCores: 4.1 } })).toEqual([]);
    expect(
      grown(
        decideCapacity([aPool({ settings: { minMachines: 2 }, rooms: [aRoom()], capacity: { alive: 1 } })], [], NOW),
      ),
    ).toEqual([1]);
  });
});

describe('an empty machine', () => {
  const idle = (said: Parameters<typeof aRoom>[0], demands = many(0)) =>
    decideCapacity([aPool({ rooms: [aRoom(said)], capacity: { alive: 1 } })], demands, NOW);
  test('goes after its time without work', () => {
    expect(gone(idle({ emptySinceMs: NOW - 600_000 }))).toEqual(['m-1']);
    const early = idle({ emptySinceMs: NOW - 599_999 });
    expect([gone(early), early.againAtMs.get(1)]).toEqual([[], NOW + 1]);
  });
  test.for([
    ['has a container', { emptySinceMs: null }],
    ['was admitted by hand', { isMade: false }],
    ['is in doubt, or cordoned by a person', { mayLeave: false }],
  ] as const)('stays where it %s', ([, said]) => {
    expect(idle(said).steps).toEqual([]);
  });
  test('does not go because a machine that has just connected is seen twice: as there, and as on its way', () => {
    const rooms = [aRoom(), aRoom({ machineId: 'm-2', isMade: false, isPending: true })];
    const pool = { rooms, capacity: { pending: 1, alive: 2 } };
    const asks = (minFreeCpuCores: number) =>
      decideCapacity([aPool({ ...pool, settings: { minFreeCpuCores }, shortSinceMs: NOW - 5_000 })], [], NOW);
    expect([gone(asks(4)), gone(asks(8)), grown(asks(12))]).toEqual([['m-1'], [], [1]]);
  });
  test('stays in a round in which its pool grows, and goes in the next', () => {
    const small = aRoom({ total: anOffer(1, 16) });
    const demand = aDemand({ cpuMillicores: 4000, sinceMs: NOW - 10_000 });
    const first = decideCapacity([aPool({ rooms: [small], capacity: { alive: 1 } })], [demand], NOW);
    expect([grown(first), gone(first)]).toEqual([[1], []]);
    const next = decideCapacity([aPool({ rooms: [small], capacity: { alive: 2, pending: 1 } })], [demand], NOW);
    expect([grown(next), gone(next)]).toEqual([[], ['m-1']]);
  });
  test('stays while placement may yet use it for what waits', () => {
    expect(gone(idle({ offersSinceMs: NOW }, [aDemand({ sinceMs: NOW })]))).toEqual([]);
    expect(gone(idle({ offersSinceMs: NOW - REFUSED_MS }, [aDemand({ sinceMs: NOW - REFUSED_MS })]))).toEqual(['m-1']);
  });
});

describe('a container that needs a newer driver', () => {
  const wants = { gpu: ['T4'], gpuCount: 1, minCuda: '12.8' };
  const driven = (gpuDriver: string) => ({ ...anOffer(4, 16, ['T4', 'T4']), gpuDriver });
  test('brings no machine of a pool whose machines have an older one, and does not wait for their free GPUs', () => {
    const rooms = [aRoom({ total: driven('535.183.01'), emptySinceMs: null })];
    const pool = aPool({ offer: driven('535.183.01'), rooms, capacity: { alive: 1 } });
    const decision = decideCapacity([pool], [aDemand(wants)], NOW);
    expect([grown(decision), decision.awaited.size, decision.againAtMs.size]).toEqual([[], 0, 0]);
    const other = aPool({ poolId: 2, offer: driven('570.86.15') });
    expect(grown(decideCapacity([pool, other], [aDemand(wants)], NOW))).toEqual([2]);
  });

  test('is another kind of demand than one that needs none', () => {
    const pool = aPool({ offer: driven('535.183.01') });
    const both = [aDemand(wants), aDemand({ ...wants, id: 'c-2', minCuda: '' })];
    const decision = decideCapacity([pool], both, NOW);
    expect([grown(decision), [...decision.awaited.keys()]]).toEqual([[1], ['c-2']]);
  });

  test('gets a machine where the driver of the pool is not known', () => {
    expect(grown(decideCapacity([aPool({ offer: driven('') })], [aDemand(wants)], NOW))).toEqual([1]);
  });
});

describe('a container with a condition on its GPU', () => {
  const sized = (gib: number, gpuDriver: string | null = null) => ({
    ...anOffer(4, 16),
    gpus: [{ model: 'H100', memoryBytes: gib * 1024 ** 3 }],
    gpuDriver,
  });
  const grownFor = (gpu: string, ...offers: readonly ReturnType<typeof sized>[]) =>
    grown(
      decideCapacity(
        offers.map((offer, index) => aPool({ poolId: index + 1, offer })),
        [aDemand({ gpu: [gpu], gpuCount: 1 })],
        NOW,
      ),
    );
  test('grows the pool whose machines meet it, and none of which it is not known', () => {
    expect(grownFor('any:>=80GiB', sized(40), sized(80))).toEqual([2]);
    expect(grownFor('any:>=80GiB', sized(40), sized(0))).toEqual([]);
    expect(grownFor('any:cc>=9.0', sized(0))).toEqual([1]);
    expect(grownFor('any:cc>=10.0', sized(0))).toEqual([]);
  });

  test('counts a driver that no machine has told yet as new enough', () => {
    expect(grownFor('any:driver>=550', sized(0, '535.1'), sized(0))).toEqual([2]);
    expect(grownFor('any:cuda>=12.4', sized(0, '535.1'))).toEqual([]);
  });
});

test('a container that requires a label grows the pool whose machines will have it, and waits for no other machine', () => {
  const labels = { require: { zone: ['a'] }, forbid: {}, prefer: {}, spread: '' };
  const offered = (zone: string) => ({ ...anOffer(4, 16), labels: { zone } });
  const pools = ['b', 'a'].map((zone, index) =>
    aPool({ poolId: index + 1, offer: offered(zone), rooms: [aRoom({ machineId: zone, total: offered('b') })] }),
  );
  const demand = aDemand({ labels, sinceMs: NOW - 10_000 });
  expect(grown(decideCapacity(pools, [demand], NOW))).toEqual([2]);
  const both = [demand, aDemand({ id: 'c-2', sinceMs: NOW - 10_000 })];
  expect(decideCapacity([aPool({ offer: offered('b') })], both, NOW).awaited.has(demand.id)).toBe(false);
});

test('a container whose GPUs must be linked grows no pool whose machines are known to have others', () => {
  const offered = (...islands: readonly number[]) => ({
    ...anOffer(8, 64),
    gpus: islands.map((nvlinkIsland) => ({ model: 'H100', nvlinkIsland })),
  });
  const demand = aDemand({ gpu: ['H100'], gpuCount: 2, gpuLink: 'island', sinceMs: NOW - 10_000 });
  const grownFor = (...pools: readonly ReturnType<typeof offered>[]) =>
    grown(
      decideCapacity(
        pools.map((offer, index) => aPool({ poolId: index + 1, offer })),
        [demand],
        NOW,
      ),
    );
  expect(grownFor(offered(1, 2), offered(2, 2, 1))).toEqual([2]);
  // After the first container a machine has no two GPUs left that are linked.
  const two = [demand, { ...demand, id: 'c-2' as typeof demand.id }];
  const decided = decideCapacity([aPool({ offer: offered(1, 2, 2, 3) })], two, NOW);
  expect(grown(decided)).toEqual([1, 1]);
  expect(grown(decideCapacity([aPool({ offer: offered(1, 1, 2, 2) })], two, NOW))).toEqual([1]);
});

describe('containers of several workspaces', () => {
  const ofB = (count: number) =>
    Array.from({ length: count }, (_none, index) =>
      aDemand({ id: `b-${index}`, queue: 'tq-b' as QueueName, workspaceId: 'w-2' as WorkspaceId, sinceMs: 500 }),
    );

  test('grow the pool of one of them alike, however many of another no pool can serve', () => {
    const demands = Array.from({ length: 100_000 }, (_none, index) =>
      aDemand({ id: `c-${index}`, queue: `tq-${index % 1_000}` as QueueName, gpu: ['H100'], gpuCount: 1 }),
    );
    const alone = decideCapacity([aPool()], ofB(9), NOW);
    expect(grown(alone)).toEqual([1, 1, 1]);
    expect(decideCapacity([aPool()], [...demands, ...ofB(9)], NOW)).toEqual(alone);
  });

  test('share the machines that a pool can make now, also where those of one waited for longer', () => {
    const decision = decideCapacity([aPool({ settings: { maxMachines: 2 } })], [...many(2_500), ...ofB(8)], NOW);
    const awaited = [...decision.awaited.keys()];
    expect([awaited.filter((id) => id.startsWith('b-')).length, awaited.length]).toEqual([4, 8]);
  });

  test('of one workspace, the oldest come first', () => {
    const young = many(4, { sinceMs: 10, queue: 'tq-young' as QueueName });
    const old = many(4).map((one) => ({ ...one, id: `old-${one.id}` as typeof one.id }));
    const decision = decideCapacity([aPool({ settings: { maxMachines: 1 } })], [...young, ...old], NOW);
    expect([...decision.awaited.keys()]).toEqual(old.map(({ id }) => id));
  });

  test('share a machine where both fit', () => {
    const decision = decideCapacity([aPool()], [...many(2), ...ofB(2)], NOW);
    expect([grown(decision), decision.awaited.size]).toEqual([[1], 4]);
  });
});

test('a container counts with those that follow it', () => {
  const demands = [aDemand({ count: 6 }), aDemand({ id: 'c-2' })];
  const decision = decideCapacity([aPool({ settings: { maxMachines: 100 } })], demands, NOW);
  expect([grown(decision), stated(decision)?.awaiting]).toEqual([[1, 1], 7]);
  const many = decideCapacity([aPool({ settings: { maxMachines: 100 } })], [aDemand({ count: 100_000 })], NOW);
  expect(stated(many)).toMatchObject({ awaiting: 20, unserved: 1_980, blocked: 'pending_bound' });
});

describe('workspaces', () => {
  const of = (workspace: string, said: Parameters<typeof aDemand>[0] = {}) =>
    aDemand({
      id: `c-${workspace}`,
      queue: `q-${workspace}` as QueueName,
      workspaceId: workspace as WorkspaceId,
      ...said,
    });
  const awaited = (pools: readonly GrowingPool[], demands: Parameters<typeof decideCapacity>[1]): string[] => [
    ...decideCapacity(pools, demands, NOW).awaited.keys(),
  ];
  const onlyOne = aPool({ settings: { maxMachines: 1 }, offer: anOffer(1, 16) });

  test('are served in the order in which they stand, whoever waits longer', () => {
    const [first, second, third] = [
      of('w-1', { sinceMs: 1, standing: { tier: 2, share: 0.5 } }),
      of('w-2', { sinceMs: 2, standing: { tier: 2, share: 0.1 } }),
      of('w-3', { sinceMs: 3, standing: { tier: 1, share: 0 } }),
    ];
    expect(awaited([onlyOne], [first, second, third])).toEqual(['c-w-3']);
    expect(awaited([onlyOne], [first, second])).toEqual(['c-w-2']);
    // By arrival nobody says how a workspace stands.
    expect(awaited([onlyOne], [of('w-1', { sinceMs: 2 }), of('w-2', { sinceMs: 1 })])).toEqual(['c-w-2']);
  });

  test('take turns, so that the machines of a pool are not all made for the first one', () => {
    const two = aPool({ settings: { maxMachines: 2 }, offer: anOffer(1, 16) });
    const demands = [
      ...many(5, { workspaceId: 'w-1' as WorkspaceId, standing: { tier: 2, share: 0 } }),
      of('w-2', { standing: { tier: 2, share: 0.9 } }),
    ];
    expect(awaited([two], demands)).toEqual(['c-0', 'c-w-2']);
  });

  test('have a container with a head start served before an older one', () => {
    const older = of('w-1', { id: 'c-older', queue: 'q-1' as QueueName, sinceMs: NOW - 60_000 });
    const high = of('w-1', { id: 'c-high', queue: 'q-2' as QueueName, sinceMs: NOW - 10_000, headStartMs: 900_000 });
    expect(awaited([onlyOne], [older, high])).toEqual(['c-high']);
  });

  test('at the limit of a market bring a machine of their own pool only', () => {
    const demand = of('w-1', { fullIn: ['cpu'] });
    expect(grown(decideCapacity([aPool()], [demand], NOW))).toEqual([]);
    const own = aPool({ poolId: 2, poolOwner: 'w-1' as WorkspaceId });
    expect(grown(decideCapacity([aPool(), own], [demand], NOW))).toEqual([2]);
    expect(grown(decideCapacity([aPool()], [{ ...demand, fullIn: ['H100'] }], NOW))).toEqual([1]);
  });

  test('at the limit of one model bring a machine of another one that will do', () => {
    const [first, second] = ['H100', 'A100'].map((model, at) =>
      aPool({ poolId: at + 1, offer: { ...anOffer(8, 64), gpus: [{ model }] } }),
    );
    const demand = of('w-1', { gpu: ['H100', 'A100'], gpuCount: 1 });
    expect(grown(decideCapacity([first!, second!], [demand], NOW))).toEqual([1]);
    expect(grown(decideCapacity([first!, second!], [{ ...demand, fullIn: ['H100'] }], NOW))).toEqual([2]);
  });

  test('get the same machines beside 100,000 containers of another workspace that no pool can serve', () => {
    const pool = aPool({ settings: { maxMachines: 10 }, offer: anOffer(1, 16) });
    const own = Array.from({ length: 3 }, (_none, n) => of('w-b', { id: `c-b-${n}`, sinceMs: NOW - 60_000 }));
    const others = many(100_000, { workspaceId: 'w-a' as WorkspaceId, cpuMillicores: 64_000, sinceMs: NOW - 600_000 });
    const alone = decideCapacity([pool], own, NOW);
    const beside = decideCapacity([pool], [...others, ...own], NOW);
    expect(alone.steps).toHaveLength(3);
    expect(beside.steps).toEqual(alone.steps);
    expect([...beside.awaited]).toEqual([...alone.awaited]);
    // Containers of one row that many follow are no other case.
    const followed = [{ ...others[0]!, count: 100_000 }, ...own];
    expect(decideCapacity([pool], followed, NOW).steps).toEqual(alone.steps);
  });
});
