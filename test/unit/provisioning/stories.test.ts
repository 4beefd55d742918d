// Random stories of pools that grow and shrink: bounds hold in every round, everything that can be served is, and once
// nothing changes, nothing is made or ended any more. `npm run properties` plays 10 000 stories.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { QueueName, WorkspaceId } from '#shared/domain/ids.ts';
import type { Demand, GrowingPool } from '#scheduler/control/provisioning/facts.ts';
import { aDemand, anOffer, aPool } from './facts.ts';
import { World } from './world.ts';
import { stories } from '../../helpers/stories.ts';

const SEEDS = stories(1_000);
const HOUR = 3_600_000;

const aModel = fc.constantFrom('T4', 'A100-80', 'H100');

const pools = fc
  .array(
    fc.record({
      owner: fc.constantFrom(null, null, 'w-1', 'w-2'),
      model: fc.option(aModel, { nil: undefined }),
      gpus: fc.integer({ min: 1, max: 8 }),
      cores: fc.integer({ min: 1, max: 32 }),
      requiresPoolSelector: fc.boolean(),
      price: fc.option(fc.integer({ min: 1, max: 30 }), { nil: null }),
      listed: fc.option(fc.integer({ min: 1, max: 30 }), { nil: null }),
      hourlyBudget: fc.option(fc.integer({ min: 0, max: 100 }), { nil: null }),
      maxMachines: fc.integer({ min: 0, max: 20 }),
      minMachines: fc.integer({ min: 0, max: 3 }),
      minFreeCpuCores: fc.constantFrom(0, 0, 2, 20),
      minFreeGpu: fc.constantFrom(0, 0, 1, 5),
      idleSeconds: fc.integer({ min: 5, max: 600 }),
      demandSeconds: fc.integer({ min: 0, max: 60 }),
      priority: fc.integer({ min: 0, max: 3 }),
    }),
    { minLength: 1, maxLength: 3 },
  )
  .map((all) =>
    all.map(({ owner, model, gpus, cores, price, listed, minFreeGpu, ...settings }, index) => ({
      listed,
      base: aPool({
        poolId: index + 1,
        poolOwner: owner as WorkspaceId | null,
        offer: anOffer(cores, cores * 4, model === undefined ? [] : Array.from({ length: gpus }, () => model)),
        settings: {
          ...settings,
          hourlyCost: price,
          minFreeGpu: model === undefined ? 0 : minFreeGpu,
          minMachines: Math.min(settings.minMachines, settings.maxMachines),
        },
      }) satisfies GrowingPool,
    })),
  );

const demand = fc
  .record({
    workspace: fc.constantFrom('w-1', 'w-2'),
    poolName: fc.constantFrom('', '', 'pool-1', 'pool-2'),
    cpuMillicores: fc.constantFrom(100, 1000, 4000, 40_000),
    gib: fc.constantFrom(1, 1, 8, 200),
    gpu: fc.uniqueArray(fc.oneof(aModel, fc.constant('any')), { maxLength: 2 }),
    gpuCount: fc.integer({ min: 1, max: 3 }),
  })
  .map(({ workspace, gib, gpu, gpuCount, ...rest }): Omit<Demand, 'id' | 'sinceMs'> => {
    const wanted = { ...rest, gpu, gpuCount: gpu.length === 0 ? 0 : gpuCount, memoryBytes: gib * 1024 ** 3 };
    const queue = `tq-${JSON.stringify([workspace, wanted])}` as QueueName;
    return { ...aDemand({ ...wanted, queue, workspaceId: workspace as WorkspaceId }) };
  });

type Step = (world: World) => void;
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.tuple(demand, fc.integer({ min: 1, max: 12 })).map(([one, count]): Step => (world) => {
      for (let index = 0; index < count; index += 1) world.want(one);
      world.round();
    }),
  },
  {
    weight: 3,
    arbitrary: fc.tuple(fc.nat(1_000), fc.integer({ min: 1, max: 40 })).map(([index, count]): Step => (world) => {
      for (let times = 0; times < count; times += 1) world.end(index);
      world.round();
    }),
  },
  {
    weight: 4,
    arbitrary: fc.integer({ min: 1, max: 900_000 }).map(
      (ms): Step =>
        (world) =>
          world.pass(ms),
    ),
  },
  {
    weight: 1,
    arbitrary: fc.tuple(fc.nat(2), fc.integer({ min: 1, max: 300_000 })).map(
      ([index, ms]): Step =>
        (world) =>
          world.fail(index, ms),
    ),
  },
  {
    weight: 1,
    arbitrary: fc.tuple(fc.nat(2), fc.integer({ min: 1, max: 64 })).map(
      ([index, cores]): Step =>
        (world) =>
          world.resize(index, cores),
    ),
  },
);

test('a pool that grows for a container keeps an idle machine that is too small for it, and ends it in a later round', () => {
  const world = new World([{ listed: null, base: aPool({ settings: { idleSeconds: 60, demandSeconds: 5 } }) }]);
  world.want(aDemand());
  world.pass(HOUR);
  expect([world.grown, world.machines.map(({ containers }) => containers.size)]).toEqual([1, [1]]);
  // A person sets a larger size; the machine that is there keeps its own.
  world.resize(0, 16);
  world.endAll();
  world.pass(55_000);
  world.want(aDemand({ cpuMillicores: 8000, queue: 'tq-large' as QueueName }));
  // The machine may go at the moment from which the container counts; a round that does both fails.
  world.pass(5_000);
  expect(world.grown).toBe(2);
  world.pass(HOUR);
  expect([world.grown, world.shrunk, world.unserved()]).toEqual([2, 1, []]);
  expect(world.machines.map(({ offer, containers }) => [offer.cpuMillicores, containers.size])).toEqual([[16_000, 1]]);
});

test('machines that are made at the moment of a larger size refuse nothing: containers of that size are served', () => {
  const settings = { minMachines: 2, maxMachines: 5, idleSeconds: 900, demandSeconds: 0 };
  const world = new World([{ listed: null, base: aPool({ offer: anOffer(1, 4), settings }) }]);
  world.round();
  expect(world.machines.map(({ offer }) => offer.cpuMillicores)).toEqual([1_000, 1_000]);
  world.resize(0, 40);
  for (let times = 0; times < 3; times += 1) world.want(aDemand({ cpuMillicores: 40_000 }));
  // The provider makes none until those machines are there, and empty.
  world.fail(0, HOUR / 12);
  world.pass(HOUR / 12 - 1);
  expect(world.machines.map(({ joined }) => joined)).toEqual([true, true]);
  // Within ten minutes, for which a refusal would hold.
  world.pass(HOUR / 12);
  expect([world.waiting, world.grown, world.shrunk]).toEqual([[], 5, 0]);
  expect(world.machines.map(({ containers }) => containers.size)).toEqual([0, 0, 1, 1, 1]);
});

test('a container of a larger size gets a machine at once, although one of the size before is on its way', () => {
  const settings = { minMachines: 1, maxMachines: 2, idleSeconds: 5, demandSeconds: 0 };
  const world = new World([{ listed: null, base: aPool({ offer: anOffer(1, 4), settings }) }]);
  world.round();
  world.resize(0, 40);
  world.want(aDemand({ cpuMillicores: 40_000 }));
  world.round();
  expect(world.machines.map(({ offer, joined }) => [offer.cpuMillicores, joined])).toEqual([
    [1_000, false],
    [40_000, false],
  ]);
  world.pass(HOUR);
  expect([world.waiting, world.grown, world.machines.map(({ containers }) => containers.size)]).toEqual([[], 2, [1]]);
});

test('a machine with less than its pool says is followed by another one, and many of them by ever fewer', () => {
  const start = (broken: number): World => {
    const world = new World([{ listed: null, base: aPool({ settings: { idleSeconds: 60, demandSeconds: 5 } }) }]);
    world.broken = broken;
    world.want(aDemand({ cpuMillicores: 4000 }));
    return world;
  };
  const healed = start(1);
  healed.pass(HOUR);
  expect([healed.grown, healed.shrunk, healed.waiting.length]).toEqual([2, 1, 0]);
  const broken = start(Infinity);
  // Nothing changes when a refusal ends: the sweep sees it.
  const sweep = (hours: number): void => {
    for (let times = 0; times < hours * 12; times += 1) broken.pass(HOUR / 12);
  };
  sweep(24);
  expect(broken.grown).toBeGreaterThan(5);
  expect(broken.grown).toBeLessThan(14);
  broken.broken = 0;
  sweep(5);
  expect(broken.waiting).toEqual([]);
});

describe('whatever comes and ends, and whatever providers do', () => {
  let [grown, shrunk, served] = [0, 0, 0];
  test(
    `bounds hold, everything is served that can be, and then it rests (${SEEDS} stories)`,
    { timeout: 600_000 },
    () => {
      fc.assert(
        fc.property(pools, fc.array(step, { minLength: 1, maxLength: 25, size: 'max' }), (some, steps) => {
          const world = new World(some);
          for (const one of steps) one(world);
          world.pass(HOUR);
          const unserved = world.unserved();
          if (unserved.length > 0) throw new Error(`never served: ${unserved.join(', ')}\n${world.story.join('\n')}`);
          const before = [world.grown, world.shrunk];
          world.pass(24 * HOUR);
          if (world.grown !== before[0] || world.shrunk !== before[1])
            throw new Error(`it does not rest\n${world.story.slice(-40).join('\n')}`);
          grown += world.grown;
          served += world.machines.filter(({ containers }) => containers.size > 0).length;
          world.endAll();
          world.pass(HOUR);
          const kept = world.idle();
          if (kept.length > 0) throw new Error(`machines stay without work: ${kept.join(', ')}`);
          shrunk += world.shrunk;
        }),
        { numRuns: SEEDS, unbiased: true },
      );
    },
  );

  test('the stories went far', () => {
    expect(Math.min(grown, shrunk, served), `${grown} ${shrunk} ${served}`).toBeGreaterThan(SEEDS / 10);
  });
});
