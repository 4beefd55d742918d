// Settings of pools through the placement that heeds them, with a real database and a real Redis; the machine is played
// by the test. Over HTTP: gateway-verbs.ts; between processes, and by signal: replicas.test.ts.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'vitest';
import { rejectionsOf } from '#scheduler/fleet/containers/container-entry.ts';
import type { ContainerEntry } from '#scheduler/fleet/containers/container-entry.ts';
import { Pools } from '#scheduler/fleet/pools.ts';
import { readPoolsFile } from '#scheduler/fleet/pools-file.ts';
import type { Db, Transaction } from '#scheduler/stores/store/db.ts';
import { getOrCreatePool, listPools, poolByName } from '#scheduler/stores/store/queries/pools.ts';
import type { PoolSettingsChange } from '#shared/api/pools.ts';
import type { AgentReports } from '#scheduler/fleet/agent-reports.ts';
import type { Machines } from '#scheduler/fleet/machines.ts';
import { tempDirectory } from '../helpers/programs.ts';
import { waitFor } from '../helpers/services.ts';
import { aWorkers } from '../helpers/drains.ts';
import type { World } from './deciding-fixture.ts';
import { test as base } from './deciding-fixture.ts';
import { aWorkspace } from './store-fixture.ts';
import { quiet } from './tasks-fixture.ts';

const SHARED = { workspaceId: null };
const NOTHING_SAID: PoolSettingsChange = {
  cpuOvercommit: null,
  cpuWorkOnGpuMachines: null,
  requiresPoolSelector: null,
  priority: null,
  reservedCpuCores: null,
  reservedMemoryMib: null,
  hourlyCost: null,
  expectedGpus: null,
  registryMirror: null,
  registryMirrorAuth: null,
};

/** The pool `default`, which every world's machine is in, begins anew with each test. */
const test = base.extend('pools', async ({ world, db }): Promise<Pools> => {
  const pools = new Pools({ db, machines: world.machines, log: quiet });
  await pools.change(SHARED, 'default', NOTHING_SAID);
  return pools;
});

const wanting = (world: World, cpuMillicores: number, extra: Record<string, unknown> = {}): Promise<ContainerEntry> =>
  world.containers.create({ ...world.target, config: { ...world.target.config, cpuMillicores, memoryMib: 64, extra } });
const isAssigned = (entry: ContainerEntry) => waitFor(() => entry.row.state === 'ASSIGNED', 'it is placed');
const isRejected = (entry: ContainerEntry, reason: string) =>
  waitFor(() => rejectionsOf(entry)?.[reason] === 1, `it waits: ${reason}`);

test('a higher over-commit lets what waits go at once; a lower one leaves what runs and holds the next back until it fits', async ({
  world,
  pools,
}) => {
  world.placer.start();
  const first = await wanting(world, 3600);
  await isAssigned(first);
  const second = await wanting(world, 3600);
  await isRejected(second, 'cpu');
  expect(await pools.change(SHARED, 'default', { cpuOvercommit: 2 })).toEqual({ kind: 'changed' });
  await isAssigned(second);

  await pools.change(SHARED, 'default', { cpuOvercommit: 1 });
  const third = await wanting(world, 100);
  await isRejected(third, 'cpu');
  expect([first.row.state, second.row.state]).toEqual(['ASSIGNED', 'ASSIGNED']);
  const { machineId } = world.link;
  const machine = world.machines.get(machineId);
  expect(machine && world.machines.capacity(machine)).toMatchObject({
    totalCpuMillicores: 3600,
    freeCpuMillicores: -3600,
  });
  const [listed] = (await world.joining.list(SHARED)).filter((one) => one.machineId === machineId);
  expect(listed?.freeCpuMillicores).toBe(0);

  await world.containers.transition(first.row.id, 'abandon');
  await isRejected(third, 'cpu');
  await world.containers.transition(second.row.id, 'abandon');
  await isAssigned(third);
});

test('a machine keeps for its host what its pool reserves', async ({ world, pools }) => {
  await pools.change(SHARED, 'default', { reservedCpuCores: 3, reservedMemoryMib: 7000 });
  world.placer.start();
  const large = await wanting(world, 1001);
  await isRejected(large, 'too_small');
  await isAssigned(await wanting(world, 1000));
});

test('a pool that must be named takes only what names it', async ({ world, pools, db }) => {
  await pools.change(SHARED, 'default', { requiresPoolSelector: true });
  world.placer.start();
  const unnamed = await wanting(world, 100);
  await isRejected(unnamed, 'no_matching_pool');
  await isAssigned(await wanting(world, 100, { pool: { name: 'default' } }));
  expect(unnamed.row.state).toBe('PENDING');
  const { machines, containers, slots, clock } = world;
  const [worker] = aWorkers({ machines, containers, slots, clock, db, log: quiet }).listWorkers(SHARED);
  expect(worker).toMatchObject({ requiresPoolSelector: true, priority: 0 });
  await pools.change(SHARED, 'default', { requiresPoolSelector: null });
  await isAssigned(unnamed);
});

test('the pool says whether its GPU machines take work without a GPU, else the scheduler does', async ({
  world,
  pools,
}) => {
  const { machineId } = world.link;
  const gpu = { uuid: 'GPU-0', model: 'A10G', memoryBytes: 24e9, numaNode: 0, unhealthy: false };
  const inventory = {
    hostname: 'h',
    cpuMillicores: 4000,
    memoryBytes: 8e9,
    gpus: [gpu, { ...gpu, uuid: 'GPU-1', unhealthy: true }],
    images: [],
  };
  const hello = { machineId, bootId: 'b', instanceId: 'i', version: '0', protocol: 1, inventory, observed: [] };
  await world.agentReports.hello(machineId, 's2', hello as unknown as Parameters<AgentReports['hello']>[2]);
  world.agentReports.ready(machineId, 's2');
  await pools.change(SHARED, 'default', { cpuWorkOnGpuMachines: false });
  world.placer.start();
  const waits = await wanting(world, 100);
  await isRejected(waits, 'no_matching_pool');
  // The pool now follows this scheduler's setting, which lets all pools take such work.
  await pools.change(SHARED, 'default', { cpuWorkOnGpuMachines: null });
  await isAssigned(waits);
});

test('what a file declares is written where it differs, by whichever scheduler, and changed by that file alone', async ({
  world,
  pools,
  db,
}) => {
  const directory = tempDirectory('pools');
  const path = join(directory.path, 'pools.json');
  const declare = async (by: Pools, text: string): Promise<void> => {
    writeFileSync(path, text);
    await by.declare(await readPoolsFile(path));
  };
  const rows = async () =>
    (await db.query('select id, name, cpu_overcommit, declared_in, updated_at from pools order by id')).rows;
  const pool = async (name: string) => (await listPools(db, null)).find((one) => one.name === name);
  const cores = (): number | undefined => {
    const machine = world.machines.get(world.link.machineId);
    return machine && world.machines.capacity(machine).totalCpuMillicores;
  };
  const other = new Pools({ db, machines: world.next().machines, log: quiet });
  try {
    await declare(pools, '{"pools": {"default": {"cpuOvercommit": 2.5}, "named": {"priority": 5}}}');
    expect(cores()).toBe(9000);
    expect(await pool('named')).toMatchObject({ declaredIn: path, settings: { priority: 5, cpuOvercommit: 1 } });
    const before = await rows();
    await other.declare(await readPoolsFile(path));
    expect(await rows()).toEqual(before);

    const refused = { kind: 'declared', file: path };
    expect(await other.change(SHARED, 'default', { cpuOvercommit: 1 })).toEqual(refused);
    expect(await other.delete(SHARED, 'named')).toEqual(refused);
    expect(await other.create(SHARED, 'named', { priority: 6 })).toEqual({ kind: 'differs', file: path });
    expect(await other.create(SHARED, 'named', { priority: 5 })).toEqual({ kind: 'made' });
    expect(await rows()).toEqual(before);
    // A workspace's own pool of that name is another one.
    const owner = { workspaceId: (await aWorkspace(db)).id };
    await getOrCreatePool(db, { name: 'named', ...owner });
    expect(await other.change(owner, 'named', { priority: 9 })).toEqual({ kind: 'changed' });
    expect(await pool('named')).toMatchObject({ settings: { priority: 5 } });

    // A bad file changes nothing.
    writeFileSync(path, '{"pools": {"default": {}, "named": {"priority": "high"}}}');
    await pools.readAgain(path);
    expect(cores()).toBe(9000);
    // A pool that has left the file keeps its settings, and operations may
    // change it again. A setting that the file no longer names gets its default.
    await declare(pools, '{"pools": {"default": {}}}');
    expect(cores()).toBe(3600);
    expect(await pool('named')).toMatchObject({ declaredIn: null, settings: { priority: 5 } });
    expect(await other.change(SHARED, 'named', { priority: 1 })).toEqual({ kind: 'changed' });
    await other.delete(SHARED, 'named');
    await declare(pools, '{"pools": {"named": {}}}');
    expect(await pool('named')).toMatchObject({ declaredIn: path, settings: { priority: 0 } });
    expect(await pool('default')).toMatchObject({ declaredIn: null });
  } finally {
    directory.remove();
  }
});

test('a pool is released by the file that declared it; another file that says otherwise overwrites it, which is said', async ({
  world,
  pools,
  db,
}) => {
  const warned: object[] = [];
  const told: unknown[] = [];
  const log = Object.assign(Object.create(quiet) as typeof quiet, {
    warn: (said: object) => void warned.push(said),
    info: (said: Readonly<Record<string, unknown>>) => {
      if (said['onScreen'] === true) told.push(said['pools']);
    },
  });
  const other = new Pools({ db, machines: world.next().machines, log });
  const saying = (path: string, priority: number) => ({ path, pools: [{ name: 'owned', settings: { priority } }] });
  const nothing = (path: string) => ({ path, pools: [] });
  const file = async () => (await poolByName(db, { ...SHARED, name: 'owned' }))?.declaredIn;

  await pools.declare(saying('/a', 5));
  await other.declare(nothing('/b'));
  expect(await file()).toBe('/a');
  expect(warned).toEqual([]);
  await other.declare(saying('/b', 6));
  const settings = (priority: number): unknown => expect.objectContaining({ priority });
  const overwritten = [{ pool: 'owned', declaredIn: '/a', before: settings(5), after: settings(6) }];
  expect(warned).toEqual([{ file: '/b', pools: ['owned'], overwritten }]);
  await pools.declare(nothing('/a'));
  expect(await file()).toBe('/b');
  await other.declare(nothing('/b'));
  expect(await file()).toBeNull();

  // An operator who has a file read again learns what it changed.
  const directory = tempDirectory('pools-again');
  try {
    const path = join(directory.path, 'pools.json');
    writeFileSync(path, '{"pools": {"owned": {"priority": 7}}}');
    await other.readAgain(path);
    await other.readAgain(path);
    expect(told).toEqual([['owned'], []]);
    await other.declare(nothing(path));
  } finally {
    directory.remove();
  }
});

test('a file is taken whole or not at all, and read again it cures a word that was lost', async ({
  world,
  pools,
  db,
}) => {
  const breaks = (tx: Transaction): Transaction => ({
    script: (sql) => tx.script(sql),
    query: (sql, params) =>
      params?.[0] === 'whole-b' ? Promise.reject(new Error('the database is away')) : tx.query(sql, params),
  });
  const broken: Db = {
    kind: db.kind,
    reads: db.reads,
    close: () => db.close(),
    query: (sql, params) => db.query(sql, params),
    transaction: (work) => db.transaction((tx) => work(breaks(tx))),
  };
  const machine = () => world.machines.get(world.link.machineId);
  const overcommit = () => machine()?.row.poolSettings.cpuOvercommit;
  const rows = async () => (await db.query('select * from pools order by id')).rows;
  const before = await rows();
  const file = {
    path: '/whole',
    pools: [
      { name: 'default', settings: { cpuOvercommit: 3 } },
      { name: 'whole-b', settings: {} },
    ],
  };
  await expect(new Pools({ db: broken, machines: world.machines, log: quiet }).declare(file)).rejects.toThrow('away');
  expect(await rows()).toEqual(before);
  expect(overcommit()).toBe(1);

  await pools.declare(file);
  expect(overcommit()).toBe(3);
  const there = machine();
  if (there !== undefined)
    world.machines.setRow(there, { poolSettings: { ...there.row.poolSettings, cpuOvercommit: 1 } });
  await pools.declare(file);
  expect(overcommit()).toBe(3);
  await pools.declare({ path: '/whole', pools: [] });
});

test('changes of one moment are written and told of one after another', async ({ world, db }) => {
  const steps: string[] = [];
  const noting: Db = {
    kind: db.kind,
    reads: db.reads,
    close: () => db.close(),
    query: (sql, params) => db.query(sql, params),
    transaction: (work) =>
      db.transaction((tx) =>
        work({
          query: (sql, params) => {
            if (sql.startsWith('update pools')) steps.push(`write ${String(params?.[2])}`);
            return tx.query(sql, params);
          },
        } as Transaction),
      ),
  };
  const machines: Pick<Machines, 'poolChanged'> = {
    poolChanged: (ids, settings) => {
      if (ids.includes(world.link.machineId)) steps.push(`tell ${settings.cpuOvercommit}`);
    },
  };
  const noted = new Pools({ db: noting, machines, log: quiet });
  await Promise.all([2, 3, 1].map((cpuOvercommit) => noted.change(SHARED, 'default', { cpuOvercommit })));
  expect(steps).toEqual(['write 2', 'tell 2', 'write 3', 'tell 3', 'write 1', 'tell 1']);
});

test('settings of a provider go together, also over two changes, and a change that breaks them changes nothing', async ({
  pools,
  db,
}) => {
  const cloud = { provider: 'cloud', machineCpuCores: 4, machineMemoryMib: 8192 };
  const named = async () => (await poolByName(db, { name: 'grows', workspaceId: null }))?.settings;
  const unfit = (problem: RegExp) => ({ kind: 'unfit', problem: expect.stringMatching(problem) as string });
  expect(await pools.create(SHARED, 'grows', { provider: 'cloud' })).toEqual(unfit(/needs machineCpuCores/));
  expect(await named()).toBeUndefined();
  expect(await pools.create(SHARED, 'grows', cloud)).toEqual({ kind: 'made' });
  expect(await pools.change(SHARED, 'grows', { machineCpuCores: null })).toEqual(unfit(/needs machineCpuCores/));
  expect(await pools.change(SHARED, 'grows', { machineGpuModel: 'H100' })).toEqual(unfit(/go together/));
  expect(await pools.change(SHARED, 'grows', { minMachines: 11, priority: 3 })).toEqual(unfit(/at most maxMachines/));
  expect(await named()).toMatchObject({ ...cloud, machineGpuModel: null, minMachines: 0, priority: 0 });
  expect(await pools.change(SHARED, 'grows', { minMachines: 11, maxMachines: 11 })).toEqual({ kind: 'changed' });
  expect(await pools.change(SHARED, 'grows', { provider: null, machineCpuCores: null })).toEqual({ kind: 'changed' });
  expect(await named()).toMatchObject({ provider: null, machineCpuCores: null, minMachines: 11 });
});

test('a pool that was deleted and is made again begins anew', async ({ pools, db }) => {
  await pools.create(SHARED, 'again', { cpuOvercommit: 4, requiresPoolSelector: true });
  expect(await pools.create(SHARED, 'again', {})).toEqual({ kind: 'made' });
  expect(await pools.create(SHARED, 'again', { cpuOvercommit: 2 })).toEqual({ kind: 'differs', file: null });
  expect(await pools.delete(SHARED, 'again')).toEqual({ kind: 'deleted' });
  expect(await pools.change(SHARED, 'again', { priority: 1 })).toEqual({ kind: 'not_found' });
  expect((await getOrCreatePool(db, { name: 'again', workspaceId: null })).settings).toMatchObject({
    cpuOvercommit: 1,
    requiresPoolSelector: false,
  });
});

test('there are a thousand shared pools at most', async ({ pools, db }) => {
  const { length } = await listPools(db, null);
  await db.query("insert into pools (name) select 'p' || n from generate_series(1, $1::int) n", [1_000 - length]);
  const refusal = { code: 'too_many_pools', message: expect.stringMatching(/^there are 1000 shared pools/) };
  await expect(pools.create(SHARED, 'one-more', {})).rejects.toMatchObject(refusal);
  expect(await pools.create(SHARED, 'p7', {})).toEqual({ kind: 'made' });
  await pools.delete(SHARED, 'p7');
  expect(await pools.create(SHARED, 'one-more', {})).toEqual({ kind: 'made' });
});
