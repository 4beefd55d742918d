// Placement on the leader with a real database: leased devices, recovery after a crash, statements without an answer,
// and containers that wait with a reason. The machine is played by the test.
import { randomUUID } from 'node:crypto';
import { describe, expect } from 'vitest';
import { wireGivenUp } from '#scheduler/compose/wiring.ts';
import { queueNameOf } from '#shared/domain/ids.ts';
import type { ContainerId, StubId } from '#shared/domain/ids.ts';
import { rejectionsOf } from '#scheduler/fleet/containers/container-entry.ts';
import type { ContainerEntry } from '#scheduler/fleet/containers/container-entry.ts';
import { HandMadeContainers } from '#scheduler/fleet/containers/hand-made.ts';
import { ContainerWaits } from '#scheduler/fleet/containers/waits.ts';
import type { AgentReports } from '#scheduler/fleet/agent-reports.ts';
import { Limits } from '#scheduler/workspaces/identity/workspace-limits.ts';
import { useOf } from '#scheduler/control/placement/snapshot.ts';
import { ContainerRegistry } from '#scheduler/fleet/containers/container-registry.ts';
import { databaseTimeout } from '#scheduler/stores/store/limits.ts';
import { containerById } from '#scheduler/stores/store/queries/containers.ts';
import { bindVolumes, getOrCreateVolume, volumeHomes } from '#scheduler/stores/store/queries/volumes.ts';
import { waitFor } from '../helpers/services.ts';
import type { World } from './deciding-fixture.ts';
import { test } from './deciding-fixture.ts';
import { quiet } from './tasks-fixture.ts';

/** Owner of each leased device. */
const devices = async ({ whole, link }: World): Promise<Record<string, string>> => {
  const { rows } = await whole.query<{ uuid: string; owner: string }>(
    "select uuid, container_id || ' ' || epoch as owner from leased_gpus where machine_id = $1",
    [link.machineId],
  );
  return Object.fromEntries(rows.map(({ uuid, owner }) => [uuid, owner]));
};
const ownerOf = ({ row }: ContainerEntry): string => `${row.id} ${row.epoch}`;

/** The machine says hello again, with so many GPUs. */
async function withGpus(
  world: World,
  count: number,
  session = 's2',
  {
    volumeDrivers = [],
    conditions = [],
    orphans = [],
  }: {
    volumeDrivers?: string[];
    conditions?: string[];
    orphans?: Parameters<AgentReports['setOrphans']>[2];
  } = {},
): Promise<void> {
  const { machineId } = world.link;
  const gpus = Array.from({ length: count }, (_none, index) => ({
    uuid: `GPU-${index}`,
    model: 'A10G',
    memoryBytes: 24e9,
    numaNode: 0,
    unhealthy: false,
  }));
  const inventory = { hostname: 'h', cpuMillicores: 4000, memoryBytes: 8e9, gpus, images: [], volumeDrivers };
  const rest = { version: '0', protocol: 1, inventory, observed: [], conditions: { names: conditions } };
  const hello = { machineId, bootId: 'b', instanceId: 'i', ...rest };
  await world.agentReports.hello(machineId, session, hello as unknown as Parameters<AgentReports['hello']>[2]);
  await world.agentReports.setOrphans(machineId, session, orphans);
  world.agentReports.ready(machineId, session);
}

const wanting = (world: World, gpu: readonly string[], gpuCount = 1): Promise<ContainerEntry> =>
  world.containers.create({ ...world.target, config: { ...world.target.config, gpu, gpuCount } });
const isAssigned = (entry: ContainerEntry) => waitFor(() => entry.row.state === 'ASSIGNED', 'it is placed');

describe('GPUs', () => {
  test('that fail between two hellos are leased to nobody, block no other, and are leased again when they are well', async ({
    world,
  }) => {
    await withGpus(world, 2);
    world.placer.start();
    const { machineId } = world.link;
    const say = async (...states: readonly string[]): Promise<void> => {
      const gpus = (world.machines.get(machineId)?.inventory?.gpus ?? []).map((gpu, index) => ({
        ...gpu,
        unhealthy: states[index] !== 'healthy',
        state: states[index] ?? '',
      }));
      await world.agentReports.devices(machineId, 's2', { gpus });
    };
    const first = await wanting(world, ['A10G']);
    await isAssigned(first);
    const failing = first.row.gpuUuids[0] === 'GPU-0' ? 0 : 1;
    // The leased device fails, so only the other one is free for the next container.
    await say(...[0, 1].map((index) => (index === failing ? 'unhealthy' : 'healthy')));
    const second = await wanting(world, ['A10G']);
    await isAssigned(second);
    expect(second.row.gpuUuids).toEqual([`GPU-${1 - failing}`]);
    await world.containers.transition(first.row.id, 'abandon');
    const third = await wanting(world, ['A10G']);
    await waitFor(() => rejectionsOf(third)?.['gpu_count'] === 1, 'it waits for a GPU');
    await say('healthy', 'healthy');
    await isAssigned(third);
    expect(third.row.gpuUuids).toEqual([`GPU-${failing}`]);
    // The row has it, too, for the replica that leads next.
    const row = await world.machines.byId(machineId);
    expect(row?.inventory).toMatchObject({ gpus: [{ state: 'healthy' }, { state: 'healthy' }] });
  });

  test('whose driver is too old for the CUDA version that an app asks for are taken once it is upgraded', async ({
    world,
  }) => {
    await withGpus(world, 2);
    world.placer.start();
    const { machineId } = world.link;
    const gpus = world.machines.get(machineId)?.inventory?.gpus ?? [];
    await world.agentReports.devices(machineId, 's2', { gpus, gpuDriver: '535.183.01' });
    const { config } = world.target;
    const asked = { ...config, gpu: ['A10G'], gpuCount: 1, minCuda: '12.8' };
    const waiting = await world.containers.create({ ...world.target, config: asked });
    await waitFor(() => rejectionsOf(waiting)?.['gpu_driver'] === 1, 'it waits for a newer driver');
    await isAssigned(await wanting(world, ['A10G']));
    // An agent that does not say its driver has the one it said before.
    await world.agentReports.devices(machineId, 's2', { gpus: [...gpus].toReversed(), gpuDriver: '' });
    expect(world.machines.get(machineId)?.inventory?.gpuDriver).toBe('535.183.01');
    expect(waiting.row.state).toBe('PENDING');
    await world.agentReports.devices(machineId, 's2', { gpus, gpuDriver: '570.86.15' });
    await isAssigned(waiting);
  });

  test('without the Python of a base image are passed over until they can make it', async ({ world }) => {
    await withGpus(world, 2);
    world.placer.start();
    const { machineId } = world.link;
    await world.agentReports.basePythons(machineId, 's2', { versions: ['3.11'], known: true });
    const { config } = world.target;
    const asked = { ...config, imageId: '', pythonVersion: 'python3.13', gpu: ['A10G'], gpuCount: 1 };
    const waiting = await world.containers.create({ ...world.target, config: asked });
    await waitFor(() => rejectionsOf(waiting)?.['base_python'] === 1, 'it waits for a machine with that Python');
    await isAssigned(await wanting(world, ['A10G']));
    await world.agentReports.basePythons(machineId, 's2', { versions: ['3.11', '3.13'], known: true });
    await isAssigned(waiting);
  });

  test('are leased by UUID in rows, to one each; given back when the container is gone', async ({ world }) => {
    await withGpus(world, 2);
    world.placer.start();
    const entries = await Promise.all([wanting(world, ['A10G']), wanting(world, ['any']), wanting(world, ['A10G'])]);
    await waitFor(() => world.entries('ASSIGNED').length === 2, 'two are placed');
    const placed = world.entries('ASSIGNED');
    const leased = placed.map((entry) => [entry.row.gpuUuids[0], ownerOf(entry)]);
    expect(await devices(world)).toEqual(Object.fromEntries(leased));
    expect(new Set(leased.map(([uuid]) => uuid)).size).toBe(2);
    const waiting = entries.find((entry) => entry.row.state === 'PENDING');
    const [first] = placed;
    if (waiting === undefined || first === undefined) throw new Error('none waits');
    await waitFor(() => rejectionsOf(waiting)?.['gpu_count'] === 1, 'it says why');
    await world.containers.transition(first.row.id, 'abandon');
    await isAssigned(waiting);
    expect(waiting.row.gpuUuids).toEqual(first.row.gpuUuids);
    expect((await devices(world))[first.row.gpuUuids[0] ?? '']).toBe(ownerOf(waiting));
  });
});

test('a container of high priority goes before older ones of its workspace, and low behind them', async ({ world }) => {
  await withGpus(world, 1);
  world.placer.start();
  const { config } = world.target;
  const one = (priority?: 'high' | 'low'): Promise<ContainerEntry> =>
    world.containers.create({
      ...world.target,
      config: { ...config, gpu: ['A10G'], gpuCount: 1, ...(priority === undefined ? {} : { priority }) },
    });
  const holder = await one();
  await isAssigned(holder);
  const waiting = [await one('low'), await one(), await one('high')] as const;
  await waitFor(() => waiting.every((entry) => rejectionsOf(entry)?.['gpu_count'] === 1), 'all wait');
  const [low, normal, high] = waiting;
  for (const [before, next] of [
    [holder, high],
    [high, normal],
    [normal, low],
  ] as const) {
    await world.containers.transition(before.row.id, 'abandon');
    await isAssigned(next);
  }
});

describe('what a workspace may have at once', () => {
  test.for([
    ['containers', { container_limit: 1 }, { container_limit: 2 }],
    ['memory', { memory_mib_limit: 100 }, { memory_mib_limit: 200 }],
    ['CPU', { cpu_millicore_limit: 150 }, { cpu_millicore_limit: null }],
    ['GPUs', { gpu_limit: 1 }, { gpu_limit: 2 }],
  ] as const)(
    'holds the next one back, and lets it go as soon as it is raised: %s',
    async ([, low, high], { world, db }) => {
      await withGpus(world, 2);
      const limits = new Limits({ db, clock: world.clock, maxContainers: 10 });
      limits.onChange((id) => {
        world.quotas.forget(id);
        world.placer.limitsChanged(id);
      });
      const { workspaceId } = world.target;
      const one = (): Promise<ContainerEntry> =>
        world.containers.create({
          ...world.target,
          config: { ...world.target.config, gpu: ['A10G'], gpuCount: 1, cpuMillicores: 100, memoryMib: 64 },
        });
      await limits.change(workspaceId, { concurrency: low });
      world.placer.start();
      const first = await one();
      await isAssigned(first);
      const second = await one();
      await waitFor(() => rejectionsOf(second)?.['quota'] === 1, 'it says that its workspace has what it may have');
      expect(second.row.state).toBe('PENDING');
      expect(useOf(world.containers, workspaceId)).toEqual({
        gpu: 1,
        cpu_millicores: 100,
        memory_mib: 64,
        containers: 1,
      });
      await limits.change(workspaceId, { concurrency: high });
      await isAssigned(second);
    },
  );
});

describe('what has no place', () => {
  test('says why in its row; woken by uncordon', async ({ world, db }) => {
    const machine = world.machines.get(world.link.machineId);
    if (machine === undefined) throw new Error('no machine');
    world.machines.setRow(machine, { intent: 'cordoned' });
    world.placer.start();
    const entry = await world.containers.create(world.target);
    await waitFor(
      async () => (await containerById(db, entry.row.id))?.rejections?.['cordoned'] === 1,
      'its row says that the machine is cordoned',
    );
    expect(world.placer.waitOf(entry.row.id)).toMatchObject({ mainReason: 'cordoned', givesUpWith: 'no_capacity' });
    world.machines.setRow(machine, { intent: 'active' });
    await isAssigned(entry);
    expect(world.placer.waitOf(entry.row.id)).toBeUndefined();
  });

  test('gives up after 20 minutes with the reason, and who waits for it is told', async ({ world }) => {
    const told: unknown[] = [];
    wireGivenUp(world.containers, { failWaiting: (...all) => Promise.resolve(told.push(all)) });
    world.placer.start();
    const entry = await wanting(world, ['H100']);
    await waitFor(() => rejectionsOf(entry)?.['gpu_model'] === 1, 'it waits');
    expect(entry.row.state).toBe('PENDING');
    world.clock.aheadMs = 20 * 60_000;
    world.placer.wake();
    await waitFor(() => entry.row.state === 'FAILED', 'it has failed');
    expect(entry.row).toMatchObject({ reason: 'gpu_unavailable', rejections: { gpu_model: 1 } });
    const how = { notPlaced: 'gpu_unavailable' };
    expect(told).toEqual([[world.target.queue, expect.stringContaining('gpu_unavailable'), how]]);
  });

  test('a container made by hand gives up, too: its place in the limit is free, and who waits hears why', async ({
    world,
    db,
  }) => {
    const handMade = new HandMadeContainers({ containers: world.containers, mostOf: () => Promise.resolve(1) });
    const waits = new ContainerWaits(world.containers, db);
    world.containers.onChange((change) => waits.containerChanged(change));
    world.placer.start();
    const target = { ...world.target, config: { ...world.target.config, gpu: ['H100'], gpuCount: 1 } };
    const made = await handMade.create(target);
    const id = made.kind === 'made' ? made.containerId : undefined;
    if (id === undefined) throw new Error('not made');
    expect(await handMade.create(target)).toEqual({ kind: 'full', most: 1 });
    await waitFor(() => rejectionsOf(world.containers.get(id)!)?.['gpu_model'] === 1, 'it waits');
    expect(await waits.waitUntilRunning(id, 1)).toMatchObject({
      why: 'late',
      reason: expect.stringMatching(/no machine has taken it yet, machines refused it \(gpu_model 1\).*explain/),
    });
    const waiting = waits.waitUntilRunning(id, 60_000);
    world.clock.aheadMs = 20 * 60_000;
    world.placer.wake();
    const reason = 'the container did not start: no machine took it in 20 minutes: gpu_unavailable (gpu_model)';
    expect(await waiting).toEqual({ ok: false, why: 'ended', reason });
    expect(await waits.waitUntilRunning(id, 1)).toEqual({ ok: false, why: 'ended', reason });
    expect(await handMade.create(target)).toMatchObject({ kind: 'made' });
  });

  test('that machines always send back gives up at the same time', async ({ world }) => {
    world.placer.start();
    const entry = await world.containers.create(world.target);
    for (let times = 0; times < 3; times += 1) {
      await isAssigned(entry);
      await world.containers.transition(entry.row.id, 'revoke');
    }
    world.clock.aheadMs = 20 * 60_000;
    world.placer.wake();
    await waitFor(() => entry.row.state === 'FAILED', 'it has failed');
    expect(entry.row).toMatchObject({
      reason: 'machine_rejected',
      message: 'no machine took it in 20 minutes: machine_rejected',
    });
  });

  test('waits for the machine that has its volume, and makes the first one its home', async ({ world, db }) => {
    const { workspaceId } = world.target;
    const newVolume = async (name: string): Promise<string> =>
      (await getOrCreateVolume(db, { newId: randomUUID(), workspaceId, name, driver: 'local', most: 10 }))?.id ?? '';
    const [here, elsewhere] = [await newVolume('here'), await newVolume('elsewhere')];
    await bindVolumes(db, [elsewhere], 'another0' as World['link']['machineId']);
    const mounting = (volumeId: string): Promise<ContainerEntry> =>
      world.containers.create({
        ...world.target,
        config: { ...world.target.config, volumes: [{ volumeId, mountPath: 'data' }] },
      });
    world.placer.start();
    await isAssigned(await mounting(here));
    expect(await bindVolumes(db, [here], 'another0' as World['link']['machineId'])).toBe(false);
    const waiting = await mounting(elsewhere);
    await waitFor(() => rejectionsOf(waiting)?.['volume'] === 1, 'it says that its volume is elsewhere');
  });

  test('a shared volume has no home: its containers go where the machine has that driver and its files answer', async ({
    world,
    db,
  }) => {
    const { workspaceId } = world.target;
    const { machineId } = world.link;
    const volume = await getOrCreateVolume(db, {
      newId: randomUUID(),
      workspaceId,
      name: 'everywhere',
      driver: 'shared',
      most: 10,
    });
    const volumes = [{ volumeId: volume?.id ?? '', mountPath: 'data', driver: 'shared' as const }];
    world.placer.start();
    const waiting = await world.containers.create({ ...world.target, config: { ...world.target.config, volumes } });
    await waitFor(() => rejectionsOf(waiting)?.['volume'] === 1, 'the machine has no shared volumes');
    await withGpus(world, 0, 's2', { volumeDrivers: ['shared'], conditions: ['SharedVolumesDown'] });
    await waitFor(() => (world.placer.wake(), rejectionsOf(waiting)?.['volume'] === 1), 'they do not answer');
    expect(waiting.row.state).toBe('PENDING');
    world.agentReports.heartbeat(machineId, 's2', []);
    await isAssigned(waiting);
    expect(await volumeHomes(db, [volume?.id ?? ''])).toEqual(new Map());
  });
});

describe('an image that a machine cannot get', () => {
  test.for([
    ['with its place from the first row on', true],
    ['placed by a round', false],
  ] as const)(
    'is tried on another machine first, others go there as before: a container %s',
    async ([, direct], { world }) => {
      const { joining, agentReports, link, target } = world;
      const { machineId, joinToken } = await joining.create({ workspaceId: null }, 'default');
      const facts = { nonce: 'n', fingerprint: 'f', publicKey: 'k', hostname: 'h', agentVersion: '0' };
      await joining.join({ secret: joinToken.split('.')[2] ?? '', ...facts });
      const says = async (id: typeof machineId, images: readonly string[]): Promise<void> => {
        const inventory = { hostname: 'h', cpuMillicores: 4000, memoryBytes: 8e9, gpus: [], images };
        const hello = {
          machineId: id,
          bootId: 'b',
          instanceId: 'i',
          version: '0',
          protocol: 1,
          inventory,
          observed: [],
        };
        await agentReports.hello(id, 's3', hello as unknown as Parameters<AgentReports['hello']>[2]);
        agentReports.ready(id, 's3');
      };
      // An image in a machine's report draws containers there, also when the image is broken.
      await says(link.machineId, ['registry.test/app:1', 'registry.test/other:1']);
      await says(machineId, []);
      world.placer.start();
      const placedOn = async (imageId: string): Promise<ContainerEntry> => {
        const wanted = { ...target, config: { ...target.config, imageId } };
        const entry = direct ? (await world.placer.create(wanted, 1))[0] : await world.containers.create(wanted);
        if (entry === undefined) throw new Error('none was made');
        await isAssigned(entry);
        return entry;
      };
      const cannotPull = async (entry: ContainerEntry): Promise<void> => {
        await world.containers.transition(entry.row.id, 'ack');
        await world.fails(entry.row.id, 'image_error');
      };
      const first = await placedOn('registry.test/app:1');
      expect(first.row.machineId).toBe(link.machineId);
      await cannotPull(first);
      const second = await placedOn('registry.test/app:1');
      expect(second.row.machineId).toBe(machineId);
      const other = await placedOn('registry.test/other:1');
      expect(other.row.machineId).toBe(link.machineId);
      // No other machine is left, so the container still gets its place there.
      await cannotPull(second);
      expect((await placedOn('registry.test/app:1')).row.machineId).toBe(link.machineId);
    },
  );
});

describe('a container that has exited and is not removed', () => {
  test('keeps its devices', async ({ world }) => {
    await withGpus(world, 1);
    world.placer.start();
    const first = await wanting(world, ['A10G']);
    await isAssigned(first);
    const { id: containerId, assignmentId, epoch } = first.row;
    await world.runs(first);
    const second = await wanting(world, ['A10G']);
    const waits = () => waitFor(() => rejectionsOf(second)?.['gpu_count'] === 1, 'it waits for a GPU');
    await waits();
    // The agent reports the container as gone, except for its devices.
    const orphan = { containerId, assignmentId: assignmentId ?? '', epoch, gpuUuids: ['GPU-0'] };
    const nothing = { cpuMillicores: 0, memoryBytes: 0 };
    await world.agentReports.setOrphans(world.link.machineId, 's2', [{ ...orphan, ...nothing }]);
    await world.containers.transition(containerId, 'exit');
    world.placer.wake();
    await waitFor(async () => Object.keys(await devices(world)).length === 0, 'no row has the device');
    await isAssigned(await wanting(world, [], 0));
    expect(second.row.state).toBe('PENDING');
    await world.agentReports.setOrphans(world.link.machineId, 's2', []);
    await isAssigned(second);
    expect(await devices(world)).toEqual({ 'GPU-0': ownerOf(second) });
  });

  test('keeps them, too, when its agent reports it at its return', async ({ world }) => {
    const containerId = 'endpoint-of-nobody-00000001' as ContainerId;
    const holds = { cpuMillicores: 0, memoryBytes: 0, gpuUuids: ['GPU-0'] };
    await withGpus(world, 1, 's2', { orphans: [{ containerId, assignmentId: 'a-1', epoch: 1, ...holds }] });
    world.placer.start();
    const waiting = await wanting(world, ['A10G']);
    await waitFor(() => rejectionsOf(waiting)?.['gpu_count'] === 1, 'it waits for a GPU');
    await withGpus(world, 1, 's3');
    await isAssigned(waiting);
  });

  test('takes its CPU from what rows may hold there', async ({ world }) => {
    const containerId = 'endpoint-of-nobody-00000001' as ContainerId;
    const holds = { cpuMillicores: 3550, memoryBytes: 0, gpuUuids: [] };
    await withGpus(world, 0, 's2', { orphans: [{ containerId, assignmentId: 'a-1', epoch: 1, ...holds }] });
    world.placer.start();
    const waiting = await wanting(world, [], 0);
    await waitFor(() => rejectionsOf(waiting)?.['cpu'] === 1, 'it waits for CPU');
    await withGpus(world, 0, 's3');
    await isAssigned(waiting);
  });
});

describe('a small disk', () => {
  const MIB = 1024 ** 2;
  const hello = async (world: World, diskFreeBytes: number): Promise<void> => {
    const { machineId } = world.link;
    const disk = { diskTotalBytes: 256 * MIB, diskFreeBytes };
    const inventory = { hostname: 'h', cpuMillicores: 4000, memoryBytes: 8e9, gpus: [], images: [], ...disk };
    const said = { machineId, bootId: 'b', instanceId: 'i', version: '0', protocol: 1, inventory, observed: [] };
    await world.agentReports.hello(machineId, 's2', said as unknown as Parameters<AgentReports['hello']>[2]);
    world.agentReports.ready(machineId, 's2');
  };

  test('is refused nothing that fits; what does not fit says so; a machine that says DiskPressure takes nothing', async ({
    world,
  }) => {
    await hello(world, 100 * MIB);
    world.placer.start();
    await isAssigned(await wanting(world, [], 0));
    const code = { objectId: 'o', sha256: 'a'.repeat(64), sizeBytes: 60 * MIB } as NonNullable<World['target']['code']>;
    const large = await world.containers.create({ ...world.target, queue: queueNameOf(null, 'other' as StubId), code });
    await waitFor(() => rejectionsOf(large)?.['disk'] === 1, 'it says that the disk is too small');
    world.agentReports.heartbeat(world.link.machineId, 's2', ['DiskPressure'], 100 * MIB);
    const next = await wanting(world, [], 0);
    await waitFor(() => rejectionsOf(next)?.['condition'] === 1, 'it says that the machine has a condition');
  });
});

describe('Scheduler crash mid-step', () => {
  test('the next leader knows the devices from the rows, and no GPU is leased twice', async ({ world, db }) => {
    await withGpus(world, 2);
    world.placer.start();
    const first = await wanting(world, ['A10G']);
    await isAssigned(first);
    world.stop();
    const row = await containerById(db, first.row.id);
    expect(row?.gpuUuids).toEqual(first.row.gpuUuids);
    // The machine reports again.
    await withGpus(world, 2, 's3');
    expect(await devices(world)).toEqual({ [first.row.gpuUuids[0] ?? '']: ownerOf(first) });
    world.placer.start();
    const second = await wanting(world, ['A10G']);
    await isAssigned(second);
    expect(second.row.gpuUuids).not.toEqual(first.row.gpuUuids);
  });
});

describe('a statement without an answer', () => {
  const ASSIGNS = /update containers as c set state = 'ASSIGNED'/;
  const INSERTS = /insert into containers/;
  /** The next such statement is not answered. @returns runs the statement, where it was not run at once */
  const unanswered = (world: World, kind: RegExp, isWritten: boolean): (() => Promise<unknown>) => {
    const { query } = world.db;
    let late = (): Promise<unknown> => Promise.resolve();
    world.db.query = async (sql, params) => {
      if (!kind.test(sql)) return await query(sql, params);
      world.db.query = query;
      late = () => query(sql, params);
      if (isWritten) await late();
      throw databaseTimeout();
    };
    return () => late();
  };

  test.for([
    ['that was written', true],
    ['that was not written', false],
  ] as const)(
    'about a container %s: the machine takes no other before its rows are read, and the container is placed once',
    async ([, isWritten], { world }) => {
      await withGpus(world, 1);
      unanswered(world, ASSIGNS, isWritten);
      const order: string[] = [];
      const readMissed = world.containers.readMissed.bind(world.containers);
      world.containers.readMissed = async () => {
        order.push('read');
        await readMissed();
      };
      world.containers.onChange(({ to }) => void (to === 'ASSIGNED' && order.push(to)));
      const entry = await wanting(world, ['A10G']);
      world.placer.start();
      await isAssigned(entry);
      expect(order).toEqual(['read', 'ASSIGNED']);
      expect(entry.row.epoch).toBe(1);
      expect(await devices(world)).toEqual({ 'GPU-0': ownerOf(entry) });
      const next = await wanting(world, ['A10G']);
      await waitFor(() => rejectionsOf(next)?.['gpu_count'] === 1, 'the next one waits for a GPU');
    },
  );

  test('while the rows cannot be read keeps its machine, and other machines take containers', async ({ world }) => {
    const { machineId, joinToken } = await world.joining.create({ workspaceId: null }, 'default');
    const facts = { nonce: 'n', fingerprint: 'f', publicKey: 'k', hostname: 'h', agentVersion: '0' };
    await world.joining.join({ secret: joinToken.split('.')[2] ?? '', ...facts });
    await withGpus(world, 1);
    unanswered(world, ASSIGNS, false);
    const readMissed = world.containers.readMissed.bind(world.containers);
    world.containers.readMissed = () => Promise.reject(new Error('the database is away'));
    const entry = await wanting(world, ['A10G']);
    world.placer.start();
    await waitFor(() => rejectionsOf(entry)?.['anti_affinity'] === 1, 'its machine is left out');
    const inventory = { hostname: 'h', cpuMillicores: 4000, memoryBytes: 8e9, gpus: [], images: [] };
    const hello = { machineId, bootId: 'b', instanceId: 'i', version: '0', protocol: 1, inventory, observed: [] };
    await world.agentReports.hello(machineId, 's9', hello as unknown as Parameters<AgentReports['hello']>[2]);
    world.agentReports.ready(machineId, 's9');
    const other = await wanting(world, [], 0);
    await isAssigned(other);
    expect(other.row.machineId).toBe(machineId);
    expect(entry.row.state).toBe('PENDING');
    world.containers.readMissed = readMissed;
    await isAssigned(entry);
  });

  test('that comes late changes nothing: the container has its place, and the device its owner', async ({ world }) => {
    await withGpus(world, 1);
    const late = unanswered(world, ASSIGNS, false);
    const entry = await wanting(world, ['A10G']);
    world.placer.start();
    await isAssigned(entry);
    await late();
    expect(await containerById(world.whole, entry.row.id)).toEqual(entry.row);
    // Another container has the device when the statement comes.
    await world.containers.transition(entry.row.id, 'abandon');
    const next = await wanting(world, ['A10G']);
    await isAssigned(next);
    await late();
    expect(await devices(world)).toEqual({ 'GPU-0': ownerOf(next) });
  });

  test.for([true, false])(
    'about new containers (written: %s) is found out by their rows',
    async (isWritten, { world }) => {
      await withGpus(world, 1);
      world.placer.start();
      const late = unanswered(world, INSERTS, isWritten);
      const target = { ...world.target, config: { ...world.target.config, gpu: ['A10G'], gpuCount: 1 } };
      await expect(world.placer.create(target, 1)).rejects.toMatchObject({ code: 'database_timeout' });
      await waitFor(() => world.entries('ASSIGNED').length === (isWritten ? 1 : 0), 'memory knows the row');
      if (isWritten) return;
      const entry = await wanting(world, ['A10G']);
      await isAssigned(entry);
      // The late statement finds the device taken, so its container waits.
      await late();
      await world.containers.readMissed();
      expect(
        world
          .entries()
          .map(({ row }) => row.state)
          .toSorted(),
      ).toEqual(['ASSIGNED', 'PENDING']);
      expect(await devices(world)).toEqual({ 'GPU-0': ownerOf(entry) });
    },
  );
});

describe('rows that this leader does not know', () => {
  test('are a conflict: they are read, and the container asks again a moment later', async ({ world, db }) => {
    await withGpus(world, 1);
    // Another process placed a container there, and nobody said so.
    const other = new ContainerRegistry({ db, log: quiet, clock: world.clock });
    const theirs = await other.create({ ...world.target, queue: queueNameOf(null, 'other' as StubId) });
    const room = { cpuMillicores: 1e6, memoryBytes: 1e12 };
    const place = { machineId: world.link.machineId, assignmentId: 'a', gpuUuids: ['GPU-0'], scheduledAtMs: 1 };
    expect(await other.assign(theirs.row.id, { ...place, takes: room, room }, { epoch: 0 })).toBe('moved');
    const entry = await wanting(world, ['A10G']);
    world.placer.start();
    await waitFor(() => world.containers.get(theirs.row.id)?.row.state === 'ASSIGNED', 'the row is read');
    await waitFor(() => rejectionsOf(entry)?.['gpu_count'] === 1, 'it waits for a GPU');
    expect(entry.row.state).toBe('PENDING');
    await world.containers.transition(theirs.row.id, 'abandon');
    await isAssigned(entry);
    expect(await devices(world)).toEqual({ 'GPU-0': ownerOf(entry) });
  });

  test('hold new containers back, which then wait for a place', async ({ world, db }) => {
    world.placer.start();
    const other = new ContainerRegistry({ db, log: quiet, clock: world.clock });
    const whole = { ...world.target, config: { ...world.target.config, cpuMillicores: 3600 } };
    const theirs = await other.create(whole);
    const takes = { cpuMillicores: 3600, memoryBytes: 1 };
    const place = { machineId: world.link.machineId, assignmentId: 'a', gpuUuids: [], scheduledAtMs: 1 };
    const room = { cpuMillicores: 1e6, memoryBytes: 1e12 };
    expect(await other.assign(theirs.row.id, { ...place, takes, room }, { epoch: 0 })).toBe('moved');
    const [entry] = await world.placer.create(world.target, 1);
    expect(entry?.row).toMatchObject({ state: 'PENDING', machineId: null });
    await waitFor(() => rejectionsOf(entry!)?.['cpu'] === 1, 'it waits for CPU');
    await world.containers.transition(theirs.row.id, 'abandon');
    await isAssigned(entry!);
  });
});

describe('while a container waits', () => {
  test('a new one for other machines has its place with its first row; one of its class comes after it', async ({
    world,
  }) => {
    world.placer.start();
    const lacking = await wanting(world, ['H100']);
    await waitFor(() => rejectionsOf(lacking)?.['gpu_model'] === 1, 'it waits');
    const large = { ...world.target, config: { ...world.target.config, cpuMillicores: 3500 } };
    const [first] = await world.placer.create(large, 1);
    expect(first?.row).toMatchObject({ state: 'ASSIGNED' });
    const [older] = await world.placer.create(large, 1);
    const [newer] = await world.placer.create(large, 1);
    expect([older?.row.state, newer?.row.state]).toEqual(['PENDING', 'PENDING']);
    await waitFor(() => rejectionsOf(newer!)?.['cpu'] === 1, 'both wait for CPU');
    await world.containers.transition(first!.row.id, 'abandon');
    await isAssigned(older!);
    expect(newer?.row.state).toBe('PENDING');
    expect(lacking.row.state).toBe('PENDING');
  });
});
