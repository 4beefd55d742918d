// Why pools grow or do not: as data from the decision, and as sentences.
import { describe, expect, test } from 'vitest';
import { Registry } from '#shared/metrics.ts';
import type { ExplainedContainer } from '#shared/api/explain.ts';
import type { MachineId, QueueName, WorkspaceId } from '#shared/domain/ids.ts';
import { growthTexts, waitSteps } from '#scheduler/api/explain/deployment.ts';
import { shownGrowth } from '#scheduler/api/explain/growth.ts';
import { decideCapacity } from '#scheduler/control/provisioning/decide.ts';
import { explainGrowth, explainPool } from '#scheduler/control/provisioning/explain.ts';
import type { GrowthView } from '#scheduler/control/provisioning/explain.ts';
import type { GrowingPool } from '#scheduler/control/provisioning/facts.ts';
import { NO_TROUBLE } from '#scheduler/domain/provisioning.ts';
import type { StuckMachine } from '#scheduler/domain/provisioning.ts';
import { NO_POOL } from '#scheduler/domain/named-pool.ts';
import { registerProvisionGauges } from '#scheduler/control/provisioning/metrics.ts';
import { FleetMetrics } from '#scheduler/fleet/metrics.ts';
import { aDemand, anOffer, aPool } from './facts.ts';

const NOW = 1_000_000;
const WALL = 1_700_000_000_000;
const times = { nowMs: NOW, wallMs: WALL };
const nobody = { ...times, held: undefined, awaitedFrom: undefined };
const verdictsOf = (pools: readonly GrowingPool[], demand = aDemand(), known = {}) =>
  explainGrowth(pools, demand, { ...nobody, ...known }).map(({ poolName, verdict }) => `${poolName} ${verdict}`);

describe('of a container that waits', () => {
  test.for([
    ['has_room', {}, {}, {}],
    ['awaited', {}, {}, { awaitedFrom: 1 }],
    ['other_first', {}, {}, { awaitedFrom: 2 }],
    ['quota', {}, {}, { held: 'quota' }],
    ['volume', {}, {}, { held: 'volume' }],
    ['too_young', {}, { sinceMs: NOW - 1 }, {}],
    ['too_small', {}, { cpuMillicores: 5_000 }, {}],
    ['gpu_model', {}, { gpu: ['H100'], gpuCount: 1 }, {}],
    [
      'gpu_driver',
      { offer: { ...anOffer(4, 16, ['T4']), gpuDriver: '535.1' } },
      { gpu: ['T4'], gpuCount: 1, minCuda: '12.8' },
      {},
    ],
    [
      'has_room',
      { offer: { ...anOffer(4, 16, ['T4']), gpuDriver: '570.1' } },
      { gpu: ['T4'], gpuCount: 1, minCuda: '12.8' },
      {},
    ],
    ['gpu_link', { offer: anOffer(4, 16, ['T4', 'T4']) }, { gpu: ['T4'], gpuCount: 2, gpuLink: 'island' }, {}],
    ['label', {}, { labels: { require: { zone: ['a'] }, forbid: {}, prefer: {}, spread: '' } }, {}],
    ['gpu_fact_unknown', { offer: anOffer(4, 16, ['T4']) }, { gpu: ['any:>=16GiB'], gpuCount: 1 }, {}],
    ['gpu_model', { offer: anOffer(4, 16, ['T4']) }, { gpu: ['any:cc>=8.0'], gpuCount: 1 }, {}],
    ['kept_for_gpus', { offer: anOffer(4, 16, ['T4']) }, {}, {}],
    ['refused', { refused: new Set(['tq-1' as QueueName]) }, {}, {}],
    ['max_machines', { settings: { maxMachines: 0 } }, {}, {}],
    ['hourly_budget', { settings: { hourlyBudget: 0.5 } }, {}, {}],
    ['backing_off', { capacity: { notBeforeMs: NOW + 7 } }, {}, {}],
    ['pending_bound', { capacity: { pending: 5, alive: 5 } }, {}, {}],
    ['unknown_provider', { isKnown: false }, {}, {}],
  ] as const)('%s', ([verdict, pool, demand, known]) => {
    expect(verdictsOf([aPool(pool)], aDemand(demand), known)).toEqual([`pool-1 ${verdict}`]);
  });

  test('pools that it may not use are left out, and the one that grows comes first', () => {
    const foreign = aPool({ poolId: 3, poolOwner: 'w-2' as WorkspaceId });
    const pools = [aPool(), aPool({ poolId: 2, settings: { hourlyCost: 9 } }), foreign];
    expect(verdictsOf(pools, aDemand(), { awaitedFrom: 2 })).toEqual(['pool-2 awaited', 'pool-1 other_first']);
  });

  test('times are told by the wall clock', () => {
    const [view] = explainGrowth([aPool()], aDemand({ sinceMs: NOW - 1_000 }), nobody);
    expect(view?.untilMs).toBe(WALL + 4_000);
    const [failing] = explainGrowth([aPool({ capacity: { notBeforeMs: NOW + 7 } })], aDemand(), nobody);
    expect(failing?.untilMs).toBe(WALL + 7);
  });
});

describe('of a pool', () => {
  const verdict = (pool: GrowingPool, demands = [aDemand()]) =>
    explainPool(pool, decideCapacity([pool], demands, NOW).pools[0], times).verdict;
  test('says what holds it back only while something asks for more, and a provider that fails always', () => {
    const full = aPool({ settings: { maxMachines: 0 } });
    expect([verdict(full), verdict(full, [])]).toEqual(['max_machines', 'enough']);
    expect(verdict(aPool({ isKnown: false }), [])).toBe('unknown_provider');
    expect(verdict(aPool({ capacity: { notBeforeMs: NOW + 7 } }), [])).toBe('backing_off');
    expect(verdict(aPool({ capacity: { pending: 1, alive: 1 } }))).toBe('awaited');
    expect(verdict(aPool({ settings: { minFreeCpuCores: 1 } }), [])).toBe('too_young');
  });

  test('has the cost of its machines', () => {
    const listed = aPool({ settings: { hourlyCost: null }, capacity: { alive: 3, unpriced: 1, hourlyCost: 8 } });
    expect(explainPool(listed, undefined, times)).toMatchObject({ price: 4, hourlyCost: 12, machines: 3 });
    const unknown = aPool({ settings: { hourlyCost: null }, capacity: { alive: 3, unpriced: 3 } });
    expect(explainPool(unknown, undefined, times)).toMatchObject({ price: null, hourlyCost: 3 });
    const set = aPool({ settings: { hourlyCost: 2 }, capacity: { alive: 3, unpriced: 1, hourlyCost: 8 } });
    expect(explainPool(set, undefined, times)).toMatchObject({ price: 2, hourlyCost: 6 });
  });
});

describe('as a sentence', () => {
  const view = (said: Partial<GrowthView> = {}): GrowthView => ({
    ...explainPool(
      aPool({ capacity: { alive: 3, pending: 1 }, settings: { hourlyCost: 0.1, hourlyBudget: 2 } }),
      undefined,
      times,
    ),
    ...said,
  });

  test('tells the administrator numbers, cost and the remedy, and others of a shared pool only why', () => {
    const full = view({ verdict: 'max_machines', lastFailure: 'no capacity in this zone' });
    expect(shownGrowth(full, true)).toMatchObject({
      text: 'pool pool-1 makes no further machine: it has as many as it may (3 of at most 10 machines, 1 of them on their way; 0.3 of at most 2 an hour); the last call of provider cloud failed: no capacity in this zone',
      step: 'let pool pool-1 have more machines: `longshore pool set pool-1 --max-machines 11`',
      machines: 3,
      hourly_cost: 0.30000000000000004,
    });
    expect(shownGrowth(full, false)).toMatchObject({
      text: 'pool pool-1 makes no further machine: it has as many as it may',
      step: '',
      machines: null,
      pending: null,
      max_machines: null,
      hourly_cost: null,
      hourly_budget: null,
    });
    const own = shownGrowth({ ...full, isShared: false }, false);
    expect(own).toMatchObject({ machines: 3 });
    expect(own.text).toMatch(/; the last call of provider cloud failed, and an administrator sees why$/);
  });

  test('tells machines that cannot go on, and a listing that fails, with the command to run', () => {
    const stuck = (over: Partial<StuckMachine>): StuckMachine => ({
      machineId: 'm-1' as MachineId,
      provider: 'cloud',
      instanceId: 'i-1',
      verb: 'terminate',
      failures: 4,
      failure: 'secret words',
      isComing: false,
      ...over,
    });
    const coming = stuck({ machineId: 'm-2' as MachineId, instanceId: null, verb: 'list', isComing: true });
    const many = Array.from({ length: 6 }, () => stuck({}));
    const failing = view({
      verdict: 'max_machines',
      trouble: { listFailures: 7, listFailure: 'no such region', stuck: [coming, ...many] },
    });
    const told = shownGrowth(failing, true);
    expect(told.text).toMatch(
      /; list of provider cloud has failed 7 times in a row, so instances that ended are not noticed: no such region; 7 machines cannot go on$/,
    );
    expect(told.step).toBe('see why provider cloud fails, and mend it: `longshore provider check cloud`');
    expect([told.stuck_count, told.stuck?.length]).toEqual([7, 5]);
    expect(told.stuck?.slice(0, 2)).toEqual([
      {
        machine_id: 'm-2',
        instance_id: '',
        verb: 'list',
        failures: 4,
        text: 'machine m-2 may have no instance, and no listing shows it: list of provider cloud has failed 4 times in a row: secret words',
        step: 'longshore machine delete m-2',
      },
      {
        machine_id: 'm-1',
        instance_id: 'i-1',
        verb: 'terminate',
        failures: 4,
        text: 'machine m-1 (instance i-1) cannot end, and is tried again by itself: terminate of provider cloud has failed 4 times in a row: secret words',
        step: 'longshore provider list',
      },
    ]);
    const others = shownGrowth(failing, false);
    expect([others.text, others.step, others.stuck_count, others.stuck]).toEqual([
      'pool pool-1 makes no further machine: it has as many as it may',
      '',
      0,
      [],
    ]);
    const own = shownGrowth({ ...failing, isShared: false }, false);
    expect(own.stuck_count).toBe(7);
    expect(JSON.stringify(own)).not.toMatch(/secret words|no such region/);
    // A machine that cannot end is no reason why the pool grows or does not.
    const onlyStuck = view({ verdict: 'enough', trouble: { ...NO_TROUBLE, stuck: [stuck({})] } });
    expect(shownGrowth(onlyStuck, true)).toMatchObject({ step: '', stuck_count: 1 });
  });

  test('says nothing of prices where there are none', () => {
    const unpriced = view({ verdict: 'awaited', price: null, hourlyBudget: null, hourlyCost: 3 });
    expect(shownGrowth(unpriced, true).text).toBe(
      'pool pool-1 makes a machine (3 of at most 10 machines, 1 of them on their way)',
    );
    expect(shownGrowth({ ...unpriced, hourlyBudget: 5 }, true).text).toBe(
      'pool pool-1 makes a machine at a price that is not known (3 of at most 10 machines, 1 of them on their way; 3 of at most 5 an hour)',
    );
  });

  test('is part of what explain says, with steps only where no machine comes by itself', () => {
    const waiting: ExplainedContainer = {
      container_id: 'c',
      state: 'PENDING',
      machine_id: '',
      attempts: null,
      slots: 0,
      idle_since: null,
      keep_warm_until: null,
      kept_forever: false,
      rejections: {},
      main_rejection: 'no_machine',
      gives_up_at: null,
      gives_up_with: '',
    };
    const steps = (...growth: ReturnType<typeof shownGrowth>[]) => waitSteps({ growth }, [waiting], NO_POOL);
    const admit = 'admit a machine: `longshore machine create`';
    const awaited = shownGrowth(view({ verdict: 'awaited' }), false);
    const soon = shownGrowth(view({ verdict: 'too_young', untilMs: 0 }), true);
    const full = shownGrowth(view({ verdict: 'max_machines' }), true);
    expect(growthTexts({ growth: [awaited] })).toEqual(['pool pool-1 makes a machine at 0.1 an hour']);
    expect(growthTexts({ growth: [soon] })).toEqual([
      'pool pool-1 is about to make a machine at 0.1 an hour (3 of at most 10 machines, 1 of them on their way; 0.3 of at most 2 an hour), at 1970-01-01T00:00:00.000Z',
    ]);
    expect([steps(awaited, full), steps(soon), steps(full)]).toEqual([[], [], [full.step, admit]]);
    expect([growthTexts({ growth: [] }), waitSteps({ growth: [] }, [waiting], NO_POOL)]).toEqual([[], [admit]]);
    const failing = shownGrowth(view({ verdict: 'awaited', lastFailure: 'no quota' }), true);
    expect(failing.text).toMatch(/^pool pool-1 tries to make a machine .*failed: no quota$/);
    expect(steps(failing)).toEqual([
      'see why provider cloud fails, and mend it: `longshore provider check cloud`',
      admit,
    ]);
    const later = shownGrowth(view({ verdict: 'backing_off', untilMs: 0 }), false);
    expect(growthTexts({ growth: [later] })[0]).toMatch(/its provider failed, until 1970-01-01T00:00:00\.000Z$/);
  });
});

test('gauges show machines, cost, and containers that wait, by pool', async () => {
  const registry = new Registry();
  const pool = aPool({ settings: { maxMachines: 4 }, capacity: { alive: 4, pending: 2 } });
  const demands = Array.from({ length: 10 }, (_none, index) => aDemand({ id: `c-${index}` }));
  const stuck: StuckMachine = {
    machineId: 'm-1' as MachineId,
    provider: 'cloud',
    instanceId: null,
    verb: 'list',
    failures: 3,
    failure: null,
    isComing: true,
  };
  const trouble = { ...NO_TROUBLE, stuck: [stuck, { ...stuck, isComing: false }] };
  const view = explainPool(pool, decideCapacity([pool], demands, NOW).pools[0], times, trouble);
  registerProvisionGauges({
    registry,
    metrics: new FleetMetrics(new Registry()),
    views: () => [view],
    isLeader: () => true,
  });
  const text = await registry.metrics();
  const value = (series: string): string | undefined =>
    text
      .split('\n')
      .find((line) => line.startsWith(`longshore_scheduler_provision_${series} `))
      ?.split(' ')[1];
  expect([
    value('machines{pool="pool-1",state="pending"}'),
    value('machines{pool="pool-1",state="present"}'),
    value('machines{pool="pool-1",state="stuck"}'),
    value('hourly_cost{pool="pool-1"}'),
    value('waiting_containers{pool="pool-1",state="awaiting"}'),
    value('waiting_containers{pool="pool-1",state="unserved"}'),
    value('blocked_pools{reason="max_machines"}'),
  ]).toEqual(['1', '1', '2', '4', '8', '2', '1']);
});
