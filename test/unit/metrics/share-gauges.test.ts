// Gauges of how workspaces share a market.
import { expect, test } from 'vitest';
import { Registry } from '#shared/metrics.ts';
import type { MachineId, QueueName, WorkspaceId } from '#shared/domain/ids.ts';
import { registerShareGauges } from '#scheduler/control/placement/share-gauges.ts';
import { Planner } from '#scheduler/control/plan/planner.ts';
import { FleetMetrics } from '#scheduler/fleet/metrics.ts';
import { aMachine, aWanted, gpus } from '../plan/made.ts';

const NOW_MS = 60_000;
const machineId = 'm-1' as MachineId;

/** Workspaces of which each holds one GPU more than the one before, and one container of each waits. */
function aSharedMarket(workspaces: number) {
  const planner = new Planner();
  const total = (workspaces * (workspaces - 1)) / 2;
  const free = Array.from({ length: total }, () => false);
  planner.setMachine(aMachine({ machineId, gpus: gpus('H100', free, 'g') }));
  for (let n = 0; n < workspaces; n += 1) {
    const workspaceId = `w-${n}` as WorkspaceId;
    planner.setShare(workspaceId, { weight: 1, guaranteed: {}, limits: {} });
    for (let held = 0; held < n; held += 1)
      planner.hold(aWanted().id, {
        workspaceId,
        queue: 'q' as QueueName,
        machineId,
        gpuCount: 1,
        cpuMillicores: 1,
        memoryBytes: 1,
      });
    planner.add(
      aWanted({ workspaceId, gpu: ['H100'], gpuCount: 1, createdAtMs: 1000 * n, priority: n === 3 ? 'low' : 'normal' }),
    );
  }
  const registry = new Registry();
  const state = { leads: true };
  registerShareGauges({
    registry,
    metrics: new FleetMetrics(registry),
    reports: () => planner.shares(NOW_MS),
    reservations: () => [{ market: 'H100' }, { market: 'H100' }, { market: 'cpu' }],
    nowMs: () => NOW_MS,
    isLeader: () => state.leads,
  });
  const series = async (name: string): Promise<Record<string, number>> => {
    const metric = registry.getSingleMetric(`longshore_scheduler_${name}`);
    const { values } = (await metric?.get()) ?? { values: [] };
    return Object.fromEntries(
      values.map(({ labels, value }) => [
        [labels['market'], labels['workspace'] ?? labels['class']].filter((one) => one !== undefined).join(' '),
        value,
      ]),
    );
  };
  /** The first gauge counts for all of them. */
  const read = async (name: string): Promise<Record<string, number>> => {
    await registry.metrics();
    return await series(name);
  };
  return { read, state };
}

test('the largest workspaces have series of their own, and the others are one', async () => {
  const { read } = aSharedMarket(23);
  const shares = await read('dominant_share');
  expect(Object.keys(shares)).toHaveLength(21);
  expect(shares['H100 w-22']).toBeCloseTo(22 / 253, 9);
  expect(shares['H100 other']).toBeCloseTo((0 + 1 + 2) / 253, 9);
  expect(await read('waiting_containers')).toMatchObject({ 'H100 w-22': 1, 'H100 other': 3 });
  const fair = await read('fair_share');
  expect(Object.values(fair).reduce((sum, one) => sum + one, 0)).toBeCloseTo(253, 6);
});

test('fairness, and the oldest wait of each priority, are by market; another replica shows nothing', async () => {
  const { read, state } = aSharedMarket(5);
  const { H100 = 0 } = await read('fairness_jain');
  expect(H100).toBeGreaterThan(0.5);
  expect(H100).toBeLessThan(0.95);
  expect(await read('oldest_wait_seconds')).toEqual({ 'H100 normal': 60, 'H100 low': 57 });
  expect(await read('reservations')).toEqual({ H100: 2, cpu: 1 });
  state.leads = false;
  for (const name of [
    'dominant_share',
    'fair_share',
    'fairness_jain',
    'waiting_containers',
    'oldest_wait_seconds',
    'reservations',
  ])
    expect(await read(name)).toEqual({});
});
