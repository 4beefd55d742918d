// The growth of pools on a real database and a real Redis, beside placement and the pools' settings. The test plays the
// provider: it notes what the loop asks for, makes machines that join, and takes them back.
import { describe, expect } from 'vitest';
import type { ContainerId, WorkspaceId } from '#shared/domain/ids.ts';
import { AWAITED_MS, GIVE_UP_MS } from '#scheduler/control/placement/waiting.ts';
import { NO_TROUBLE } from '#scheduler/domain/provisioning.ts';
import type { ContainerEntry } from '#scheduler/fleet/containers/container-entry.ts';
import { Pools } from '#scheduler/fleet/pools.ts';
import { waitFor } from '../helpers/services.ts';
import type { World } from './deciding-fixture.ts';
import { CLOUD, only, SHARED, test, wanting } from './provisioning-fixture.ts';
import type { Growing } from './provisioning-fixture.ts';
import { quiet } from './tasks-fixture.ts';
import { jsonText } from '../helpers/exact-json.ts';

test('work brings a machine, which takes it, and goes when it has been idle', async ({ world, growing }) => {
  const { capacity, pools, loop, poolId } = growing;
  await pools.create(SHARED, 'gpu', CLOUD);
  const entry = await wanting(world);
  const machineId = await only(growing);
  expect(capacity.grown[0]).toMatchObject({ poolId: await poolId('gpu'), reason: 'containers wait for a machine' });
  await waitFor(() => loop.isAwaited(entry.row.id), 'it is awaited');
  expect(loop.explain(entry.row.id)).toMatchObject([{ poolName: 'gpu', verdict: 'awaited', pending: 1, price: 2 }]);
  await capacity.join(machineId);
  await waitFor(() => entry.row.state === 'ASSIGNED', 'it is placed');
  expect(entry.row.machineId).toBe(machineId);
  await waitFor(() => loop.explainPool(capacity.grown[0]?.poolId ?? 0)?.verdict === 'enough', 'nothing more is made');

  await world.containers.transition(entry.row.id, 'abandon');
  const touch = (): void => {
    const machine = world.machines.get(machineId);
    if (machine !== undefined) world.machines.changed(machine);
  };
  const asked = capacity.asked;
  touch();
  await waitFor(() => capacity.asked > asked, 'it is seen to be empty');
  world.clock.aheadMs += 601_000;
  touch();
  await waitFor(() => {
    touch();
    return capacity.shrunk.length > 0;
  }, 'it goes');
  expect([capacity.shrunk, capacity.grown.length]).toEqual([[machineId], 1]);
});

test('a machine counts as empty from when it was seen so, and stays with a container, and where it was admitted by hand', async ({
  world,
  growing,
}) => {
  const { capacity, pools, directory } = growing;
  await pools.create(SHARED, 'gpu', { ...CLOUD, minMachines: 1, idleSeconds: 5 });
  const machineId = await only(growing);
  await capacity.join(machineId);
  const entry = await wanting(world);
  await waitFor(() => entry.row.state === 'ASSIGNED', 'it is placed');
  // The pool `default` has a machine that was admitted by hand, and gets a provider now.
  await pools.change(SHARED, 'default', { ...CLOUD, idleSeconds: 5 });
  await pools.change(SHARED, 'gpu', { minMachines: 0 });
  await waitFor(() => [...directory.all()].length === 2, 'both have a provider');
  for (let times = 0; times < 5; times += 1) {
    world.clock.aheadMs += 10_000;
    for (const machine of world.machines.all()) world.machines.changed(machine);
    const asked = capacity.asked;
    await waitFor(() => capacity.asked > asked, 'a round');
  }
  expect(capacity.shrunk).toEqual([]);
  await pools.change(SHARED, 'default', { provider: null });
});

test('only the leader decides, and a new one looks at everything', async ({ world, growing }) => {
  const { capacity, pools, loop } = growing;
  world.leads = false;
  await pools.create(SHARED, 'gpu', { ...CLOUD, minMachines: 1 });
  await wanting(world, { gpu: [], gpuCount: 0 });
  const rounds = capacity.asked;
  await waitFor(() => [...growing.directory.all()].length === 1, 'it is known');
  expect([capacity.grown, capacity.asked]).toEqual([[], rounds]);
  world.leads = true;
  loop.leads();
  await only(growing);
});

test('a step that cannot be written is tried again after a pause', async ({ world, growing }) => {
  const { capacity, pools, poolId, loop } = growing;
  capacity.grows = 'with an error';
  await pools.create(SHARED, 'gpu', CLOUD);
  const entry = await wanting(world);
  const id = await poolId('gpu');
  await waitFor(() => loop.explainPool(id)?.verdict === 'backing_off', 'it pauses');
  // Explanations have what the executing half says of calls that keep failing.
  const { troubles } = Object.assign(capacity, { troubles: { ...NO_TROUBLE, listFailures: 4 } });
  expect([loop.explainPool(id)?.trouble, loop.explain(entry.row.id)[0]?.trouble]).toEqual([troubles, troubles]);
  capacity.grows = 'as told';
  capacity.changed(id);
  expect(capacity.grown).toEqual([]);
  world.clock.aheadMs += 6_000;
  capacity.changed(id);
  await only(growing);
});

test('settings count at once, also when another replica wrote them and its message was lost', async ({
  db,
  world,
  growing,
}) => {
  const { capacity, pools, loop, poolId } = growing;
  await pools.create(SHARED, 'gpu', { ...CLOUD, maxMachines: 0 });
  const entry = await wanting(world);
  const id = await poolId('gpu');
  await waitFor(() => loop.explain(entry.row.id)[0]?.verdict === 'max_machines', 'it is at its bound');
  expect([loop.isAwaited(entry.row.id), loop.isLimited(entry.row.id), capacity.grown]).toEqual([false, true, []]);
  await new Pools({ db, machines: world.machines, log: quiet }).change(SHARED, 'gpu', { maxMachines: 1 });
  await only(growing);
  expect(capacity.grown[0]?.poolId).toBe(id);
});

describe('a pool that is given a larger size', () => {
  /** A container waits that is too large for the pool. A machine that was ordered since has served another one. */
  const emptyBeside = async (world: World, growing: Growing): Promise<ContainerEntry> => {
    const { capacity, pools, loop } = growing;
    await pools.create(SHARED, 'gpu', CLOUD);
    const large = await wanting(world, { cpuMillicores: 8000 });
    await waitFor(() => loop.explain(large.row.id)[0]?.verdict === 'too_small', 'its machines are too small');
    const small = await wanting(world);
    await capacity.join(await only(growing));
    await waitFor(() => small.row.state === 'ASSIGNED', 'the small one is placed');
    await world.containers.transition(small.row.id, 'abandon');
    return large;
  };

  test('grows for what waited for it, beside an empty machine of the size before', async ({ world, growing }) => {
    const { capacity, pools } = growing;
    const large = await emptyBeside(world, growing);
    await pools.change(SHARED, 'gpu', { machineCpuCores: 16 });
    await waitFor(() => capacity.grown.length === 2, 'a larger machine is asked for');
    expect(large.row.state).toBe('PENDING');
  });

  test('grows also under a leader that began after the change', async ({ world, growing }) => {
    const { capacity, pools, another } = growing;
    const large = await emptyBeside(world, growing);
    world.leads = false;
    await pools.change(SHARED, 'gpu', { machineCpuCores: 16 });
    world.leads = true;
    await another();
    await waitFor(() => capacity.grown.length === 2, 'a larger machine is asked for');
    expect(large.row.state).toBe('PENDING');
  });

  test('does not count on a machine that was ordered with the size before', async ({ world, growing }) => {
    const { capacity, pools, loop } = growing;
    await pools.create(SHARED, 'gpu', { ...CLOUD, minMachines: 1 });
    await only(growing);
    await pools.change(SHARED, 'gpu', { machineCpuCores: 16 });
    const large = await wanting(world, { cpuMillicores: 8000 });
    await waitFor(() => capacity.grown.length === 2, 'a larger machine is asked for');
    await waitFor(() => loop.isAwaited(large.row.id), 'it is awaited');
    expect(capacity.grown).toHaveLength(2);
  });
});

test('a machine that is smaller than was ordered refuses the container that it was made for, until another size is set', async ({
  world,
  growing,
}) => {
  const { capacity, pools, loop } = growing;
  await pools.create(SHARED, 'gpu', CLOUD);
  const entry = await wanting(world, { cpuMillicores: 3000 });
  await capacity.join(await only(growing), 2000);
  await waitFor(() => loop.explain(entry.row.id)[0]?.verdict === 'refused', 'it refuses');
  expect(capacity.grown).toHaveLength(1);
  await pools.change(SHARED, 'gpu', { machineCpuCores: 8 });
  await waitFor(() => capacity.grown.length === 2, 'another machine is asked for');
});

test('pools at rest cost nothing: changes elsewhere start no round', async ({ world, growing }) => {
  const { capacity, pools } = growing;
  await pools.create(SHARED, 'gpu', { ...CLOUD, demandSeconds: 5 });
  await pools.create(SHARED, 'idle', { ...CLOUD, demandSeconds: 5, machineGpuModel: 'H100' });
  await waitFor(() => capacity.asked >= 2, 'they were looked at');
  const placed = await wanting(world, { gpu: [], gpuCount: 0 });
  await waitFor(() => placed.row.state === 'ASSIGNED', 'it is placed');
  const asked = capacity.asked;
  for (let times = 0; times < 20; times += 1) {
    const machine = world.machines.get(world.link.machineId);
    if (machine !== undefined) world.machines.changed(machine);
  }
  const entry = await wanting(world, { gpu: [], gpuCount: 0 });
  await waitFor(() => entry.row.state === 'ASSIGNED', 'it is placed');
  expect(capacity.asked).toBe(asked);
});

test('a call for what a provider can make is no longer refused, and waits for its machine beyond 20 minutes', async ({
  world,
  growing,
}) => {
  const { capacity, pools, feasibility } = growing;
  const asks = (said: object) =>
    feasibility.refusal({ ...world.target, config: { ...world.target.config, gpu: ['T4'], gpuCount: 1, ...said } });
  expect(asks({})).toMatch(/has GPU T4/);
  await pools.create(SHARED, 'gpu', CLOUD);
  expect(asks({})).toBeUndefined();
  expect(asks({ gpuCount: 2 })).toMatch(/has 2 of GPU T4/);
  const named = { extra: { pool: jsonText({ name: 'gpu' }) } };
  expect([asks(named), feasibility.isMakeable('w' as WorkspaceId, 'gpu')]).toEqual([undefined, true]);
  const entry = await wanting(world);
  await only(growing);
  world.clock.aheadMs += GIVE_UP_MS + 1_000;
  // Placement looks at the oldest first.
  const next = await wanting(world, { gpu: [], gpuCount: 0 });
  await waitFor(() => next.row.state === 'ASSIGNED', 'placement looked at all that wait');
  expect([entry.row.state, capacity.grown.length]).toEqual(['PENDING', 1]);
  world.clock.aheadMs += AWAITED_MS;
  world.placer.wake();
  await waitFor(() => entry.row.state === 'FAILED', 'it gives up');
});

test('a container that a bound keeps waiting fails with that reason', async ({ world, growing }) => {
  const { pools, loop } = growing;
  await pools.create(SHARED, 'gpu', { ...CLOUD, hourlyBudget: 1 });
  const entry = await wanting(world);
  await waitFor(() => loop.explain(entry.row.id)[0]?.verdict === 'hourly_budget', 'the budget keeps it waiting');
  world.clock.aheadMs += GIVE_UP_MS + 1_000;
  world.placer.wake();
  await waitFor(() => entry.row.state === 'FAILED', 'it gives up');
  expect(entry.row.reason).toBe('provisioning_limit');
});

test('containers beyond the limits of their workspace bring no machine', async ({ world, growing, db }) => {
  const { capacity, pools, loop } = growing;
  await db.query(`update workspaces set limits = '{"concurrency": {"gpu_limit": 1}}' where id = $1`, [
    world.target.workspaceId,
  ]);
  world.quotas.forget(world.target.workspaceId);
  await pools.create(SHARED, 'gpu', CLOUD);
  const first = await wanting(world);
  const second = await wanting(world);
  await only(growing);
  const verdict = (id: ContainerId) => loop.explain(id)[0]?.verdict;
  await waitFor(() => verdict(second.row.id) === 'quota', 'the second is over the quota');
  expect([verdict(first.row.id), capacity.grown.length]).toEqual(['awaited', 1]);
});

test('a pool grows for the containers that a queue wants and that have no row yet', async ({ world, growing }) => {
  const { capacity, pools, loop, poolId } = growing;
  await pools.create(SHARED, 'gpu', { ...CLOUD, maxMachines: 100 });
  const { config } = world.target;
  const autoscaler = { ...config.autoscaler, maxContainers: 40 };
  world.target = { ...world.target, config: { ...config, gpu: ['T4'], gpuCount: 1, autoscaler } };
  world.most = 40;
  world.waiting = 40;
  world.start();
  world.autoscaler.depthSeen(world.target, 40);
  await waitFor(() => world.entries('PENDING').length === 16, 'as many wait as may');
  const id = await poolId('gpu');
  await waitFor(() => loop.explainPool(id)?.unserved === 35, 'the others count');
  expect(loop.explainPool(id)).toMatchObject({ awaiting: 5, unserved: 35 });
  expect(world.entries()).toHaveLength(16);
  await waitFor(() => capacity.grown.length > 0, 'a machine is made');
  const [first] = capacity.grown;
  await capacity.join(first?.machineId ?? ('' as never));
  await waitFor(() => world.entries('ASSIGNED').length === 1, 'one is placed');
  await waitFor(() => world.entries('PENDING').length === 16, 'another follows');
});
