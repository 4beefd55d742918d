// A machine is reserved for a container that needs all of it: placement and scaling on the leader with a real database.
// The machine is played by the test.
import { randomUUID } from 'node:crypto';
import { expect } from 'vitest';
import { queueNameOf } from '#shared/domain/ids.ts';
import type { ContainerId, DeploymentId } from '#shared/domain/ids.ts';
import { DEFAULT_SHARING } from '#scheduler/domain/shares.ts';
import type { Target } from '#scheduler/domain/stub-config.ts';
import type { AgentReports } from '#scheduler/fleet/agent-reports.ts';
import type { ContainerEntry } from '#scheduler/fleet/containers/container-entry.ts';
import { rejectionsOf } from '#scheduler/fleet/containers/container-entry.ts';
import { waitFor } from '../helpers/services.ts';
import type { World } from './deciding-fixture.ts';
import { test } from './deciding-fixture.ts';
import { aStub, aWorkspace } from './store-fixture.ts';

const GPUS = 2;

/** The machine has two GPUs. */
async function withGpus(world: World): Promise<void> {
  const { machineId } = world.link;
  const gpus = Array.from({ length: GPUS }, (_none, index) => ({
    uuid: `GPU-${index}`,
    model: 'A10G',
    memoryBytes: 24e9,
    numaNode: 0,
    unhealthy: false,
  }));
  const inventory = { hostname: 'h', cpuMillicores: 16_000, memoryBytes: 64e9, gpus, images: [] };
  const hello = { machineId, bootId: 'b', instanceId: 'i', version: '0', protocol: 1, inventory, observed: [] };
  const told = { ...hello, conditions: { names: [] } } as unknown as Parameters<AgentReports['hello']>[2];
  await world.agentReports.hello(machineId, 's2', told);
  await world.agentReports.setOrphans(machineId, 's2', []);
  world.agentReports.ready(machineId, 's2');
}

/** A target of another workspace, whose containers need so many GPUs. */
async function asking(world: World, gpuCount: number): Promise<Target> {
  const other = await aWorkspace(world.whole);
  const stub = await aStub(world.whole, other.id);
  const config = { ...world.target.config, gpu: ['A10G'], gpuCount };
  return { ...world.target, config, workspaceId: other.id, stubId: stub.id, queue: queueNameOf(null, stub.id) };
}

const isPlaced = (entry: ContainerEntry) => waitFor(() => entry.row.state === 'ASSIGNED', 'it is placed');
const isRefused = (entry: ContainerEntry, reason: string) =>
  waitFor(() => rejectionsOf(entry)?.[reason] === 1, `it is refused: ${reason}`);
/** Containers for which a machine is reserved. */
const reservedFor = (world: World): ContainerId[] => world.placer.reservations().map(({ containerId }) => containerId);

function later(world: World, seconds: number): void {
  world.clock.aheadMs += seconds * 1000;
  world.placer.wake();
}

/** Both GPUs are held, and a container waits that needs both. */
async function crowded(world: World) {
  await withGpus(world);
  world.placer.start();
  const [one, two] = [await asking(world, 1), await asking(world, GPUS)];
  const held = [await world.containers.create(one), await world.containers.create(one)];
  for (const entry of held) await isPlaced(entry);
  const large = await world.containers.create(two);
  await isRefused(large, 'gpu_count');
  return { one, held, large };
}

test('a container that needs two GPUs gets them, though one of them is asked for again and again', async ({
  world,
}) => {
  const { one, held, large } = await crowded(world);
  const small = await world.containers.create(one);
  await isRefused(small, 'gpu_count');
  // Before a minute is over, a freed GPU is taken at once.
  await world.containers.transition(held[0]!.row.id, 'abandon');
  await isPlaced(small);
  later(world, 61);
  await waitFor(() => reservedFor(world).includes(large.row.id), 'a machine is reserved');
  expect(world.placer.reservations()).toMatchObject([
    {
      machineId: world.link.machineId,
      market: 'A10G',
      gpus: 2,
      freeGpus: 0,
      heldBy: [
        { gpus: 1, endsAtMs: null },
        { gpus: 1, endsAtMs: null },
      ],
    },
  ]);
  expect(world.placer.waitOf(large.row.id)?.givesUpAtMs).toBe(large.row.createdAtMs + 60 * 60_000);
  const next = await world.containers.create(one);
  await world.containers.transition(held[1]!.row.id, 'abandon');
  await isRefused(next, 'reserved');
  // A container that would be written with its place at once gets none there either.
  expect((await world.placer.create(one, 1)).map(({ row }) => row.state)).toEqual(['PENDING']);
  await world.containers.transition(small.row.id, 'abandon');
  await isPlaced(large);
  expect(reservedFor(world)).toEqual([]);
  expect(large.row.gpuUuids.toSorted()).toEqual(['GPU-0', 'GPU-1']);
  await world.containers.transition(large.row.id, 'abandon');
  await isPlaced(next);
});

test('a machine is reserved when the time has come, though nothing else happens', async ({ world }) => {
  const { large } = await crowded(world);
  world.placer.setSharing({ ...DEFAULT_SHARING, reserveAfterSeconds: 1 });
  await waitFor(() => reservedFor(world).includes(large.row.id), 'a machine is reserved');
});

test('nothing is reserved while many machines are silent, by arrival, and when it is off', async ({ world }) => {
  const { large } = await crowded(world);
  later(world, 61);
  await waitFor(() => reservedFor(world).includes(large.row.id), 'a machine is reserved');
  world.guarded = true;
  later(world, 2);
  await waitFor(() => reservedFor(world).length === 0, 'it is given up');
  world.guarded = false;
  later(world, 2);
  await waitFor(() => reservedFor(world).length === 1, 'it is reserved again');
  for (const sharing of [
    { ...DEFAULT_SHARING, order: 'arrival' as const },
    { ...DEFAULT_SHARING, reserveAfterSeconds: null },
  ]) {
    world.placer.setSharing(sharing);
    await waitFor(() => reservedFor(world).length === 0, 'it is given up');
    world.placer.setSharing(DEFAULT_SHARING);
    later(world, 2);
    await waitFor(() => reservedFor(world).length === 1, 'it is reserved again');
  }
});

test('another leader reserves by the time of the row, once it has led for two minutes', async ({ world }) => {
  const { large } = await crowded(world);
  later(world, 61);
  await waitFor(() => reservedFor(world).includes(large.row.id), 'a machine is reserved');
  world.fence = 2;
  const next = world.next(120_000);
  next.fence = 2;
  next.clock.aheadMs = world.clock.aheadMs;
  await next.containers.load();
  await next.machines.start();
  await withGpus(next);
  next.placer.start();
  next.placer.wake();
  await waitFor(() => rejectionsOf(next.containers.get(large.row.id)!)?.['gpu_count'] === 1, 'it tries the container');
  expect(reservedFor(next)).toEqual([]);
  later(next, 121);
  await waitFor(() => reservedFor(next).includes(large.row.id), 'it reserves the machine');
  expect(next.placer.reservations()[0]?.heldBy.map(({ gpus }) => gpus)).toEqual([1, 1]);
  // A reservation that this process made under an earlier lease is forgotten.
  next.fence = 3;
  later(next, 2);
  await waitFor(() => reservedFor(next).length === 0, 'it is given up');
});

test('an idle container there that is kept for its warmth ends at once, and one of the least number stays', async ({
  world,
}) => {
  await withGpus(world);
  const { autoscaler } = world.target.config;
  const config = { ...world.target.config, gpu: ['A10G'], gpuCount: 1, keepWarmSeconds: 600 };
  world.target = { ...world.target, config: { ...config, autoscaler: { ...autoscaler, minContainers: 1 } } };
  world.waiting = 2;
  world.start();
  await waitFor(() => world.entries('ASSIGNED').length === 2, 'both are placed');
  const warm = world.entries('ASSIGNED');
  for (const entry of warm) await world.runs(entry);
  world.waiting = 0;
  // Only a deployment has a least number.
  world.target = { ...world.target, deploymentId: randomUUID() as DeploymentId };
  world.autoscaler.wake(world.target.queue);
  await world.decided('hold', 'busy_or_warm');
  // The scaling loop leaves a container alone that was made by hand.
  const large = await world.containers.create(await asking(world, GPUS), { byHand: true });
  await isRefused(large, 'gpu_count');
  later(world, 61);
  await waitFor(() => warm.filter(({ row }) => row.state === 'STOPPING').length === 1, 'one ends');
  await world.decided('hold', 'at_target');
  expect(warm.filter(({ row }) => row.state === 'RUNNING')).toHaveLength(1);
  // The one that stops ends by a known time, and the other one does not.
  const [row] = world.placer.reservations();
  expect(row?.heldBy.map(({ endsAtMs }) => endsAtMs !== null)).toEqual([true, false]);
});
