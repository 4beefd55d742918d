// Interruptible containers that end for those of other workspaces: placement on the leader with a real database. The
// machine is played by the test.
import { randomUUID } from 'node:crypto';
import { expect } from 'vitest';
import { newId, queueNameOf } from '#shared/domain/ids.ts';
import type { DeploymentId, WorkspaceId } from '#shared/domain/ids.ts';
import { DEFAULT_SHARING } from '#scheduler/domain/shares.ts';
import type { Target } from '#scheduler/domain/stub-config.ts';
import type { ContainerEntry } from '#scheduler/fleet/containers/container-entry.ts';
import { ContainerActions } from '#scheduler/fleet/containers/actions.ts';
import { isRefused } from '#scheduler/fleet/containers/container-entry.ts';
import { isPreempted } from '#scheduler/fleet/containers/spec.ts';
import { waitFor } from '../helpers/services.ts';
import type { World } from './deciding-fixture.ts';
import { test } from './deciding-fixture.ts';
import { aStub, aWorkspace } from './store-fixture.ts';

/** A target of another workspace, whose containers need a quarter of the machine's CPU. */
async function asking(world: World, said: { readonly interruptible?: true; readonly guaranteed?: number } = {}) {
  const { id: workspaceId } = await aWorkspace(world.whole);
  if (said.guaranteed !== undefined)
    await world.whole.query('update workspaces set share = $1 where id = $2', [
      JSON.stringify({ guaranteed: { cpu: said.guaranteed } }),
      workspaceId,
    ]);
  return await sameOf(world, workspaceId, said.interruptible === true ? { interruptible: true } : {});
}

async function sameOf(world: World, workspaceId: WorkspaceId, said: Partial<Target['config']>): Promise<Target> {
  const stub = await aStub(world.whole, workspaceId, randomUUID());
  const config = { ...world.target.config, cpuMillicores: 1000, memoryMib: 128, ...said };
  return { ...world.target, config, workspaceId, stubId: stub.id, queue: queueNameOf(null, stub.id) };
}

/** The machine is full of ready containers of one workspace. */
async function crowded(world: World, target: Target): Promise<ContainerEntry[]> {
  world.placer.start();
  const held: ContainerEntry[] = [];
  for (;;) {
    const entry = await world.containers.create(target);
    await waitFor(() => entry.row.state === 'ASSIGNED' || isRefused(entry), 'it is placed, or has no place');
    if (entry.row.state === 'PENDING') {
      await world.containers.transition(entry.row.id, 'abandon');
      return held;
    }
    await world.runs(entry);
    held.push(entry);
  }
}

function later(world: World, seconds: number): void {
  world.clock.aheadMs += seconds * 1000;
  world.placer.wake();
}
const leaving = (held: readonly ContainerEntry[]): ContainerEntry[] =>
  held.filter(({ row }) => row.state === 'DRAINING');
/** A round has looked at what may end. */
async function looked(world: World): Promise<void> {
  const { recordings } = await tape(world);
  await waitFor(() => recordings.length > 0, 'a look at what may end');
}

/** Questions to the planner about containers that may end, from now on. */
async function tape(world: World) {
  const recordings: object[] = [];
  world.placer.record({
    write: (line) => {
      if (line.do === 'reclaim') recordings.push(line);
      return true;
    },
  });
  later(world, 2);
  return { recordings };
}

test('an interruptible container leaves for a workspace that has less than its guarantee', async ({ world }) => {
  const held = await crowded(world, await asking(world, { interruptible: true }));
  expect(held.length).toBeGreaterThan(1);
  const claims = await asking(world, { guaranteed: 1 });
  const waiting = await world.containers.create(claims);
  await waitFor(() => isRefused(waiting), 'it has no place');
  later(world, 6);
  const [victim] = await waitFor(() => leaving(held).length === 1 && leaving(held), 'one leaves');
  expect(victim?.row.reason).toBe('preempted');
  expect(world.slots.get(victim!.row.id)?.accepting).toBe(false);
  await looked(world);
  expect(leaving(held)).toHaveLength(1);
  await world.containers.transition(victim!.row.id, 'stop');
  await world.containers.transition(victim!.row.id, 'gone');
  await waitFor(() => waiting.row.state === 'ASSIGNED', 'the other one has its place');
  await looked(world);
  expect(leaving(held)).toEqual([]);
});

test('a container that nothing may interrupt stays, and so does one with a call', async ({ world }) => {
  const own = await asking(world, { interruptible: true });
  const held = await crowded(world, own);
  // All of them answer calls but one, which nothing may interrupt.
  for (const { row } of held) world.slots.get(row.id)!.inFlight = 1;
  await world.containers.transition(held[0]!.row.id, 'stop');
  await world.containers.transition(held[0]!.row.id, 'gone');
  const [firm] = await crowded(world, await sameOf(world, own.workspaceId, {}));
  const waiting = await world.containers.create(await asking(world, { guaranteed: 1 }));
  await waitFor(() => isRefused(waiting), 'it has no place');
  later(world, 6);
  await looked(world);
  expect(leaving([...held, firm!])).toEqual([]);
  world.slots.get(held[1]!.row.id)!.inFlight = 0;
  later(world, 2);
  await waitFor(() => leaving(held).length === 1, 'the idle one leaves');
  expect(leaving(held)[0]).toBe(held[1]);
});

test('a container that yields leaves after its task, which is not interrupted', async ({ world }) => {
  const own = await asking(world, { interruptible: true });
  const held = await crowded(world, await sameOf(world, own.workspaceId, { interruptible: 'after_task' }));
  const waiting = await world.containers.create(await asking(world, { guaranteed: 1 }));
  await waitFor(() => isRefused(waiting), 'it has no place');
  later(world, 6);
  const [victim] = await waitFor(() => leaving(held).length === 1 && leaving(held), 'one leaves');
  expect(victim?.row.reason).toBe('yielded');
  expect(isPreempted(victim!.row)).toBe(false);
  // The other one goes away, and the container takes tasks again.
  await world.containers.transition(waiting.row.id, 'abandon');
  later(world, 2);
  await waitFor(() => victim!.row.state === 'RUNNING', 'it stays');
  expect(victim!.row.reason).toBeNull();
});

test('an idle container that warmth alone keeps is let go before an interruptible one leaves', async ({ world }) => {
  const own = await asking(world, { interruptible: true });
  world.target = await sameOf(world, own.workspaceId, { keepWarmSeconds: 3600 });
  world.placer.start();
  const warm = await world.containers.create(world.target);
  await waitFor(() => warm.row.state === 'ASSIGNED', 'it has its place');
  await world.runs(warm);
  const wants = (target: Target, minContainers: number): Target => {
    const autoscaler = { ...target.config.autoscaler, minContainers, maxContainers: minContainers };
    const wanted = { ...target, deploymentId: newId<DeploymentId>(), config: { ...target.config, autoscaler } };
    world.known.set(target.queue, wanted);
    return wanted;
  };
  const held = await crowded(world, own);
  wants(own, held.length);
  world.autoscaler.start();
  // Nothing is stopped right after a start, so nothing is surplus before.
  world.clock.aheadMs += 200_000;
  await waitFor(() => {
    world.autoscaler.sweep();
    return [...world.autoscaler.spare()].includes(warm.row.id);
  }, 'warmth alone keeps it');
  const waiting = await world.containers.create(wants(await asking(world, { guaranteed: 1 }), 1));
  await waitFor(() => isRefused(waiting), 'it has no place');
  later(world, 6);
  await waitFor(() => warm.row.state === 'STOPPING', 'it is let go');
  expect(warm.row.reason).toBe('scaled_in');
  expect(leaving(held)).toEqual([]);
  expect(held.every(({ row }) => row.state === 'RUNNING')).toBe(true);
});

test('no container of a version that is rolled out leaves, nor of the one before it', async ({ world }) => {
  const own = await asking(world, { interruptible: true });
  const held = await crowded(world, own);
  world.rollingOut.add(own.queue);
  const waiting = await world.containers.create(await asking(world, { guaranteed: 1 }));
  await waitFor(() => isRefused(waiting), 'it has no place');
  later(world, 6);
  await looked(world);
  expect(leaving(held)).toEqual([]);
  world.rollingOut.clear();
  later(world, 2);
  await waitFor(() => leaving(held).length === 1, 'one leaves');
});

test('none leaves while many machines are silent, by arrival, when it is off, nor right after a start', async ({
  world,
}) => {
  const held = await crowded(world, await asking(world, { interruptible: true }));
  const waiting = await world.containers.create(await asking(world, { guaranteed: 1 }));
  await waitFor(() => isRefused(waiting), 'it has no place');
  world.guarded = true;
  later(world, 6);
  await looked(world);
  world.guarded = false;
  world.placer.setSharing({ ...DEFAULT_SHARING, order: 'arrival' });
  await looked(world);
  world.placer.setSharing({ ...DEFAULT_SHARING, reclaimAfterSeconds: null });
  await looked(world);
  expect(leaving(held)).toEqual([]);
  world.placer.setSharing(DEFAULT_SHARING);
  later(world, 2);
  await waitFor(() => leaving(held).length === 1, 'one leaves');
});

test('an operator has any container leave that is ready and was not made by hand, with its calls or without', async ({
  world,
}) => {
  const [first, second] = await crowded(world, await asking(world));
  const actions = new ContainerActions(world.containers, world.slots);
  await actions.preempt(first!.row.id, false);
  expect(first?.row).toMatchObject({ state: 'DRAINING', reason: 'admin_preempted' });
  expect(world.slots.get(first!.row.id)?.accepting).toBe(false);
  await actions.preempt(second!.row.id, true);
  expect(second?.row).toMatchObject({ state: 'DRAINING', reason: 'admin_preempted_with_calls' });
  // Neither is told twice, and one that waits is not told at all.
  const waiting = await world.containers.create(await asking(world));
  for (const { row } of [first!, waiting]) {
    await expect(actions.preempt(row.id, true)).rejects.toMatchObject({ code: 'container_not_running' });
    expect(row.reason).not.toBe('admin_preempted_with_calls');
  }
  await expect(actions.preempt('nobody', false)).rejects.toMatchObject({ code: 'container_not_found' });
});
