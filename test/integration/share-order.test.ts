// Two workspaces share a machine: placement on the leader with a real database. The machine is played by the test.
import { expect } from 'vitest';
import { queueNameOf } from '#shared/domain/ids.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import { DEFAULT_SHARING } from '#scheduler/domain/shares.ts';
import type { AgentReports } from '#scheduler/fleet/agent-reports.ts';
import type { ContainerEntry } from '#scheduler/fleet/containers/container-entry.ts';
import { rejectionsOf } from '#scheduler/fleet/containers/container-entry.ts';
import type { Target } from '#scheduler/domain/stub-config.ts';
import { waitFor } from '../helpers/services.ts';
import type { World } from './deciding-fixture.ts';
import { test } from './deciding-fixture.ts';
import { aStub, aWorkspace } from './store-fixture.ts';

/** The machine has so many GPUs, and the leader places. */
async function sharing(world: World, gpus: number): Promise<{ readonly greedy: Target; readonly modest: Target }> {
  const { machineId } = world.link;
  const devices = Array.from({ length: gpus }, (_none, index) => ({
    uuid: `GPU-${index}`,
    model: 'A10G',
    memoryBytes: 24e9,
    numaNode: 0,
    unhealthy: false,
  }));
  const inventory = { hostname: 'h', cpuMillicores: 16_000, memoryBytes: 64e9, gpus: devices, images: [] };
  const hello = { machineId, bootId: 'b', instanceId: 'i', version: '0', protocol: 1, inventory, observed: [] };
  const told = { ...hello, conditions: { names: [] } } as unknown as Parameters<AgentReports['hello']>[2];
  await world.agentReports.hello(machineId, 's2', told);
  await world.agentReports.setOrphans(machineId, 's2', []);
  world.agentReports.ready(machineId, 's2');
  world.placer.start();
  const other = await aWorkspace(world.whole);
  const stub = await aStub(world.whole, other.id);
  const config = { ...world.target.config, gpu: ['A10G'], gpuCount: 1 };
  return {
    greedy: { ...world.target, config },
    modest: { ...world.target, config, workspaceId: other.id, stubId: stub.id, queue: queueNameOf(null, stub.id) },
  };
}

async function hasPlace(entry: ContainerEntry): Promise<void> {
  await waitFor(() => entry.row.state === 'ASSIGNED', 'it is placed');
}

async function isRefused(...entries: readonly ContainerEntry[]): Promise<void> {
  for (const entry of entries) await waitFor(() => rejectionsOf(entry) !== undefined, 'it is refused');
}

async function changeShare(world: World, workspaceId: WorkspaceId, share: object): Promise<void> {
  await world.whole.query('update workspaces set share = $2::jsonb where id = $1', [
    workspaceId,
    JSON.stringify(share),
  ]);
  world.quotas.forget(workspaceId);
  world.placer.limitsChanged(workspaceId);
}

test('a freed GPU goes to the workspace that has less, though another one has waited longer', async ({ world }) => {
  const { greedy, modest } = await sharing(world, 2);
  const held = [await world.containers.create(greedy), await world.containers.create(greedy)];
  for (const one of held) await hasPlace(one);
  const older = await world.containers.create(greedy);
  await isRefused(older);
  const younger = await world.containers.create(modest);
  await isRefused(younger);
  expect(world.placer.placeOf(older.row.id)).toMatchObject({ market: 'A10G', before: 1, others: 1, used: 2 });
  expect(world.placer.placeOf(younger.row.id)).toMatchObject({ before: 0, used: 0, fairShare: 1 });
  await world.containers.transition(held[0]!.row.id, 'abandon');
  await hasPlace(younger);
  expect(older.row.state).toBe('PENDING');
  // Both have one now, and the oldest goes first.
  const youngest = await world.containers.create(modest);
  await isRefused(youngest);
  await world.containers.transition(held[1]!.row.id, 'abandon');
  await hasPlace(older);
  expect(youngest.row.state).toBe('PENDING');
  // A report is good for a second.
  world.clock.aheadMs += 2000;
  expect(world.placer.shareReport().filter(({ market }) => market === 'A10G')).toMatchObject([
    { workspaceId: modest.workspaceId, used: 1, waiting: 1 },
    { workspaceId: greedy.workspaceId, used: 1, waiting: 0 },
  ]);
});

test('by arrival the oldest gets it', async ({ world }) => {
  const { greedy, modest } = await sharing(world, 1);
  world.placer.setSharing({ ...DEFAULT_SHARING, order: 'arrival' });
  const held = await world.containers.create(greedy);
  await hasPlace(held);
  const [older, younger] = [await world.containers.create(greedy), await world.containers.create(modest)];
  await isRefused(older, younger);
  await world.containers.transition(held.row.id, 'abandon');
  await hasPlace(older);
  expect(younger.row.state).toBe('PENDING');
});

test('a guarantee and a limit hold as soon as they are written, for containers that are made at once, too', async ({
  world,
}) => {
  const { greedy, modest } = await sharing(world, 3);
  await changeShare(world, greedy.workspaceId, { limits: { A10G: 1 } });
  const made = await world.placer.create(greedy, 3);
  expect(made.map(({ row }) => row.state).toSorted()).toEqual(['ASSIGNED', 'PENDING', 'PENDING']);
  const others = [await world.containers.create(modest), await world.containers.create(modest)];
  for (const one of others) await hasPlace(one);
  const waiting = made.filter(({ row }) => row.state === 'PENDING');
  await isRefused(...waiting);
  expect(world.placer.placeOf(waiting[0]!.row.id)).toMatchObject({ used: 1, limit: 1 });
  // A free GPU is left to others while the workspace is at its limit.
  await world.containers.transition(others[0]!.row.id, 'abandon');
  const next = await world.containers.create(modest);
  await hasPlace(next);
  const last = await world.containers.create(modest);
  await isRefused(last);
  await changeShare(world, greedy.workspaceId, { limits: { A10G: 2 }, guaranteed: { A10G: 2 } });
  await world.containers.transition(others[1]!.row.id, 'abandon');
  await waitFor(() => waiting.some(({ row }) => row.state === 'ASSIGNED'), 'the guarantee goes first');
  expect(last.row.state).toBe('PENDING');
});
