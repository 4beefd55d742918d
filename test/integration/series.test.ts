// Samples of containers and pools in both kinds of stores: the buckets that reads make of them, worked out by hand and
// against samples at random; batches that come twice; bounds; plans on many rows.
import fc from 'fast-check';
import type { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { newContainerId, newId } from '#shared/domain/ids.ts';
import { POOL_DEFAULTS } from '#shared/api/pools.ts';
import type { ContainerId, InstanceId, MachineId, StubId, WorkspaceId } from '#shared/domain/ids.ts';
import type { MachineSample__Output } from '#shared/protocol/generated/messages.ts';
import { CONTAINER_STEPS, POOL_STEPS, segmentsOf, stepOf } from '#scheduler/domain/series.ts';
import { capacityOf } from '#scheduler/fleet/capacity.ts';
import type { Machine } from '#scheduler/fleet/machine.ts';
import { PoolSamples } from '#scheduler/fleet/series/pool-samples.ts';
import { SeriesReader } from '#scheduler/fleet/series/series-reads.ts';
import {
  MAX_SAMPLE_BATCH,
  bucketsStatement,
  insertSamples,
  readBuckets,
} from '#scheduler/stores/store/queries/metric-samples.ts';
import type { NewSample, SampleFilter } from '#scheduler/stores/store/queries/metric-samples.ts';
import {
  insertPoolSamples,
  poolBucketsStatement,
  readPoolBuckets,
} from '#scheduler/stores/store/queries/pool-samples.ts';
import type { PoolSample } from '#scheduler/stores/store/queries/pool-samples.ts';
import { keysOf } from '#scheduler/stores/queues/keys.ts';
import { getOrCreatePool } from '#scheduler/stores/store/queries/pools.ts';
import type { PrivateRedis } from '../helpers/redis.ts';
import { aRedis } from '../helpers/services.ts';
import { KINDS, aDb, aStub, aWorkspace, silent } from './store-fixture.ts';
import type { OpenedDb } from './store-fixture.ts';

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const NOON = Date.UTC(2026, 0, 1, 12);

interface Place {
  readonly workspaceId: WorkspaceId;
  readonly stubId: StubId;
}
const aPlace = (): Place => ({ workspaceId: newId<WorkspaceId>(), stubId: newId<StubId>() });
const aContainer = ({ stubId }: Place): ContainerId => newContainerId('endpoint', stubId);

/** A sample of an idle container; the test names what matters. */
const aSample = (place: Place, containerId: ContainerId, atMs: number, over: Partial<NewSample> = {}): NewSample => ({
  ...place,
  containerId,
  atMs,
  intervalMs: 5_000,
  cpuMillicores: 1_000,
  memoryBytes: 1_000,
  gpuCount: 0,
  cpuUsed: 0,
  memoryRss: 0,
  memoryVms: 0,
  memorySwap: 0,
  gpuMemoryUsed: 0,
  gpuMemoryTotal: 0,
  diskRead: 0,
  diskWrite: 0,
  receivedBytes: 0,
  sentBytes: 0,
  receivedPackets: 0,
  sentPackets: 0,
  ...over,
});

const segments = (fromMs: number, toMs: number, intervalMs: number, steps: readonly number[] = CONTAINER_STEPS) =>
  segmentsOf({ fromMs, toMs }, stepOf(intervalMs, steps), steps);

describe.each(KINDS)('on %s', (kind) => {
  let opened: OpenedDb;
  beforeAll(async () => {
    opened = await aDb(kind);
  });
  afterAll(() => opened.stop());

  const read = (filter: SampleFilter, fromMs: number, toMs: number, intervalMs: number, most?: number) =>
    readBuckets(opened.db, filter, segments(fromMs, toMs, intervalMs), intervalMs, most);

  test('a bucket has sums over containers, means of their rates, and plain means over samples', async () => {
    const place = aPlace();
    const [one, other] = [aContainer(place), aContainer(place)];
    const disk = { diskWrite: 10, receivedBytes: 500, sentBytes: 250, receivedPackets: 5, sentPackets: 1 };
    await insertSamples(opened.db, [
      aSample(place, one, NOON + SECOND, { cpuUsed: 500, memoryRss: 100, memoryVms: 1_000, diskRead: 5_000, ...disk }),
      aSample(place, one, NOON + 6 * SECOND, {
        cpuUsed: 1_500,
        memoryRss: 300,
        memoryVms: 3_000,
        memorySwap: 10,
        diskRead: 15_000,
        receivedBytes: 1_500,
        receivedPackets: 16,
      }),
      aSample(place, other, NOON + 6 * SECOND, {
        intervalMs: 10_000,
        cpuMillicores: 2_000,
        memoryBytes: 4_000,
        gpuCount: 1,
        cpuUsed: 1_000,
        memoryRss: 500,
        memoryVms: 5_000,
        memorySwap: 20,
        gpuMemoryUsed: 30,
        gpuMemoryTotal: 90,
        diskRead: 30_000,
      }),
      aSample(place, one, NOON + MINUTE, { cpuUsed: 250 }),
      // Neither another workspace's samples nor those out of the range count.
      aSample(aPlace(), one, NOON + SECOND, { cpuUsed: 9 }),
      aSample(place, one, NOON + 2 * MINUTE, { cpuUsed: 9 }),
      aSample(place, one, NOON - 1, { cpuUsed: 9 }),
    ]);
    const expected = {
      keyMs: NOON,
      samples: 3,
      containers: 2,
      cpuConcurrency: 3_000,
      gpuConcurrency: 1,
      // 50 %, 150 % and 50 %.
      cpuPct: 250 / 3,
      cpuUsed: 1_000,
      cpuTotal: 4_000 / 3,
      memoryRss: 300,
      memoryVms: 3_000,
      memorySwap: 10,
      memoryTotal: 2_000,
      gpuMemoryUsed: 10,
      gpuMemoryTotal: 30,
      diskRead: 50_000 / 3,
      diskWrite: 10 / 3,
      receivedBytes: 2_000 / 3,
      sentBytes: 250 / 3,
      receivedPackets: 7,
      sentPackets: 1 / 3,
      // 20 000 bytes in 10 s, and 30 000 in 10 s.
      diskReadRate: 5_000,
      diskWriteRate: 1,
      receivedRate: 200,
      sentRate: 25,
    };
    for (const filter of [place, { workspaceId: place.workspaceId }]) {
      // Two containers in the first minute and one in the second are three rows.
      const minutes = await read(filter, NOON, NOON + 2 * MINUTE, MINUTE);
      expect(minutes).toMatchObject({ scanned: 3, truncated: false });
      expect(minutes.buckets.map(({ keyMs, samples }) => [keyMs, samples])).toEqual([
        [NOON, 3],
        [NOON + MINUTE, 1],
      ]);
      for (const [name, value] of Object.entries(expected))
        expect(minutes.buckets[0]?.[name as keyof typeof expected], name).toBeCloseTo(value, 9);
      const samples = await read(filter, NOON, NOON + 2 * MINUTE, 5 * SECOND);
      expect(samples.scanned).toBe(4);
      expect(samples.buckets.map(({ keyMs, containers }) => [keyMs, containers])).toEqual([
        [NOON, 1],
        [NOON + 5 * SECOND, 2],
        [NOON + MINUTE, 1],
      ]);
    }
  });

  test('a batch that is written again changes nothing', async () => {
    const place = aPlace();
    const batch = [0, 5, 10].map((s) => aSample(place, aContainer(place), NOON + s * SECOND, { cpuUsed: 100 }));
    await insertSamples(opened.db, batch.slice(0, 2));
    await insertSamples(opened.db, batch);
    await insertSamples(opened.db, batch);
    for (const intervalMs of [5 * SECOND, MINUTE, HOUR]) {
      const { buckets } = await read(place, NOON, NOON + HOUR, intervalMs);
      expect(buckets.reduce((sum, { samples }) => sum + samples, 0)).toBe(3);
    }
  });

  test('every range and interval gives what the samples say', async () => {
    const place = aPlace();
    const containers = Array.from({ length: 4 }, () => aContainer(place));
    let seed = 1;
    const random = (below: number): number => (seed = (seed * 48_271) % 2_147_483_647) % below;
    const samples = Array.from({ length: 900 }, () =>
      aSample(place, containers[random(4)] as ContainerId, NOON + random(2 * HOUR), {
        cpuUsed: random(5_000),
        diskRead: random(1_000_000),
      }),
    );
    for (let from = 0; from < samples.length; from += MAX_SAMPLE_BATCH)
      await insertSamples(opened.db, samples.slice(from, from + MAX_SAMPLE_BATCH));
    const distinct = new Map(samples.map((one) => [`${one.containerId} ${one.atMs}`, one]));
    const interval = fc.constantFrom(5 * SECOND, 7 * SECOND, 30 * SECOND, MINUTE, 7 * MINUTE, HOUR, 3 * HOUR);
    const time = fc.integer({ min: -HOUR, max: 3 * HOUR });
    await fc.assert(
      fc.asyncProperty(time, time, interval, async (a, b, intervalMs) => {
        const [fromMs, toMs] = [NOON + Math.min(a, b), NOON + Math.max(a, b) + 1];
        const within = [...distinct.values()].filter(({ atMs }) => atMs >= fromMs && atMs < toMs);
        const told = Map.groupBy(within, ({ atMs }) => Math.floor(atMs / intervalMs) * intervalMs);
        const { buckets } = await read(place, fromMs, toMs, intervalMs);
        expect(buckets.map(({ keyMs }) => keyMs)).toEqual([...told.keys()].toSorted((x, y) => x - y));
        for (const bucket of buckets) {
          const of = told.get(bucket.keyMs) ?? [];
          const rates = [...Map.groupBy(of, ({ containerId }) => containerId).values()].map(
            (mine) => mine.reduce((sum, { diskRead }) => sum + diskRead, 0) / (5 * mine.length),
          );
          expect(bucket.samples).toBe(of.length);
          expect(bucket.containers).toBe(rates.length);
          expect(bucket.cpuConcurrency).toBe(rates.length * 1_000);
          expect(bucket.cpuUsed).toBeCloseTo(of.reduce((sum, { cpuUsed }) => sum + cpuUsed, 0) / of.length, 6);
          expect(bucket.diskReadRate).toBeCloseTo(
            rates.reduce((sum, rate) => sum + rate, 0),
            3,
          );
        }
      }),
      { numRuns: 60 },
    );
  });

  test('of more rows than may be looked at the newest count, and the answer says so', async () => {
    const place = aPlace();
    const containerId = aContainer(place);
    await insertSamples(
      opened.db,
      [0, 5, 10, 15].map((s) => aSample(place, containerId, NOON + s * SECOND)),
    );
    expect(await read(place, NOON, NOON + MINUTE, 5 * SECOND, 4)).toMatchObject({ scanned: 4, truncated: false });
    const cut = await read(place, NOON, NOON + MINUTE, 5 * SECOND, 3);
    expect(cut).toMatchObject({ scanned: 3, truncated: true });
    expect(cut.buckets.map(({ keyMs }) => (keyMs - NOON) / SECOND)).toEqual([5, 10, 15]);
    expect(await read(aPlace(), NOON, NOON + MINUTE, 5 * SECOND)).toEqual({
      scanned: 0,
      truncated: false,
      buckets: [],
    });
  });

  test('a workspace is read by kind and by app of its own stubs', async () => {
    const workspace = await aWorkspace(opened.db);
    const stub = await aStub(opened.db, workspace.id);
    const other = aPlace();
    const own = { workspaceId: workspace.id, stubId: stub.id };
    const stranger = { workspaceId: workspace.id, stubId: other.stubId };
    await insertSamples(opened.db, [
      aSample(own, aContainer(own), NOON),
      aSample(stranger, aContainer(stranger), NOON),
    ]);
    const reader = new SeriesReader(opened.db);
    const range = { fromMs: NOON, toMs: NOON + MINUTE, intervalMs: MINUTE };
    const samplesOf = async (filter: Parameters<SeriesReader['workspace']>[1]) => {
      const { scanned, buckets } = await reader.workspace(workspace.id, filter, range);
      return [scanned, buckets.map(({ samples }) => samples)];
    };
    expect(await samplesOf({})).toEqual([2, [2]]);
    expect(await samplesOf({ stubKind: 'endpoint' })).toEqual([2, [1]]);
    expect(await samplesOf({ stubKind: 'function' })).toEqual([2, []]);
    expect(await samplesOf({ appId: stub.appId })).toEqual([2, [1]]);
    expect(await samplesOf({ appId: newId() })).toEqual([2, []]);
    expect((await reader.stub(workspace.id, stub.id, range)).buckets).toHaveLength(1);
    expect((await reader.stub(other.workspaceId, stub.id, range)).buckets).toEqual([]);
  });

  test('pools have means of the counts and shares of the sums, each pool its own', async () => {
    const workspace = await aWorkspace(opened.db);
    const shared = await getOrCreatePool(opened.db, { name: 'shared', workspaceId: null });
    const own = await getOrCreatePool(opened.db, { name: 'own', workspaceId: workspace.id });
    const sample = (poolId: number, over: Partial<PoolSample> = {}): PoolSample => ({
      poolId,
      machines: 1,
      containers: 0,
      gpus: 0,
      freeGpus: 0,
      cpuUsed: 0,
      cpuTotal: 4_000,
      memoryUsed: 0,
      memoryTotal: 100,
      diskUsed: 0,
      diskTotal: 10,
      hourlyCost: 0,
      ...over,
    });
    await insertPoolSamples(opened.db, NOON, [
      sample(shared.id, { machines: 2, containers: 3, gpus: 8, freeGpus: 2, cpuUsed: 1_000, hourlyCost: 6 }),
      sample(own.id),
    ]);
    const second = sample(shared.id, {
      machines: 4,
      containers: 5,
      gpus: 8,
      freeGpus: 6,
      cpuUsed: 2_000,
      cpuTotal: 8_000,
      memoryUsed: 50,
      diskUsed: 5,
      hourlyCost: 12,
    });
    await insertPoolSamples(opened.db, NOON + 5 * SECOND, [second]);
    // A second leader for a moment writes nothing.
    await insertPoolSamples(opened.db, NOON + 5 * SECOND, [{ ...second, machines: 99 }]);
    const pools = (owner: WorkspaceId | null | undefined, intervalMs: number, most?: number) =>
      readPoolBuckets(opened.db, owner, segments(NOON, NOON + 10 * MINUTE, intervalMs, POOL_STEPS), intervalMs, most);
    const mean = {
      keyMs: NOON,
      name: 'shared',
      workspaceId: null,
      machines: 3,
      containers: 4,
      gpus: 8,
      freeGpus: 4,
      cpuUsed: 1_500,
      cpuTotal: 6_000,
      memoryUsed: 25,
      memoryTotal: 100,
      diskUsed: 2.5,
      diskTotal: 10,
      hourlyCost: 9,
    };
    for (const intervalMs of [10 * SECOND, MINUTE, 5 * MINUTE]) {
      expect((await pools(undefined, intervalMs)).buckets).toEqual([
        mean,
        expect.objectContaining({ name: 'own', workspaceId: workspace.id, machines: 1 }),
      ]);
      expect((await pools(null, intervalMs)).buckets).toEqual([mean]);
      expect((await pools(workspace.id, intervalMs)).buckets.map(({ name }) => name)).toEqual(['own']);
    }
    expect((await pools(null, 5 * SECOND)).buckets.map(({ keyMs }) => keyMs - NOON)).toEqual([0, 5 * SECOND]);
    expect(await pools(undefined, 5 * SECOND, 2)).toMatchObject({ scanned: 2, truncated: true });
    expect(await pools(newId<WorkspaceId>(), MINUTE)).toEqual({ scanned: 0, truncated: false, buckets: [] });
  });
});

describe('pools of several replicas', () => {
  interface Replica {
    readonly samples: PoolSamples;
    readonly machines: Map<MachineId, Machine>;
  }
  let opened: OpenedDb;
  let redis: PrivateRedis;
  let client: Redis;
  beforeAll(async () => {
    [opened, redis] = await Promise.all([aDb('postgres'), aRedis()]);
    client = redis.connect();
  });
  afterAll(async () => {
    await Promise.all([opened.stop(), redis.stop()]);
  });

  const [LEADER, OTHER, GONE] = ['leader', 'other', 'gone'] as InstanceId[];
  let nowMs = NOON + 1_234;
  const clock = { nowMs: () => nowMs, monotonicMs: () => nowMs };
  const leading = { is: LEADER };
  const aReplica = (instance: InstanceId, machines: Map<MachineId, Machine>): Replica => ({
    machines,
    samples: new PoolSamples({
      db: opened.db,
      machines: {
        all: () => machines.values(),
        get: (id) => machines.get(id),
        capacity: (machine) => capacityOf(machine, []),
      },
      isLeader: () => leading.is === instance,
      redis: client,
      instance,
      keyOf: keysOf('series').poolUse,
      replicas: () => [LEADER, OTHER, GONE].filter((one) => one !== undefined),
      clock,
      log: silent,
    }),
  });
  const aMachine = (id: string, poolId: number, over: object = {}): [MachineId, Machine] => [
    id as MachineId,
    {
      row: { id, poolId, poolSettings: { ...POOL_DEFAULTS, hourlyCost: 1.5 }, joinedAtMs: 1 },
      health: 'READY',
      orphans: new Map(),
      inventory: { cpuMillicores: 4_000, memoryBytes: 1e9, gpus: [{ uuid: `${id}-g`, model: 'T4', unhealthy: '' }] },
      ...over,
    } as unknown as Machine,
  ];
  const use = (cpuMillicores: number, memoryUsedBytes: number): MachineSample__Output => ({
    intervalMs: 5_000,
    cpuMillicores,
    cpuCores: 4,
    memoryUsedBytes,
    memoryTotalBytes: 100,
    diskUsedBytes: 1,
    diskTotalBytes: 10,
  });

  test('are counted by the leader, with the use that each replica hears of its own machines', async () => {
    const pool = await getOrCreatePool(opened.db, { name: 'p', workspaceId: null });
    const empty = await getOrCreatePool(opened.db, { name: 'empty', workspaceId: null });
    const fleet = new Map([
      aMachine('a', pool.id),
      aMachine('b', pool.id),
      aMachine('silent', pool.id, { health: 'SUSPECT' }),
      aMachine('lost', pool.id, { health: 'LOST' }),
      aMachine('never', empty.id, { row: { poolId: empty.id, joinedAtMs: null }, health: 'PENDING' }),
    ]);
    const [leader, other] = [aReplica(LEADER as InstanceId, fleet), aReplica(OTHER as InstanceId, fleet)];
    leader.samples.heard('a' as MachineId, use(1_000, 10));
    other.samples.heard('b' as MachineId, use(3_000, 30));
    // A machine that is lost, or an agent that tells nothing, counts in no sum.
    leader.samples.heard('lost' as MachineId, use(4_000, 100));
    leader.samples.heard('silent' as MachineId, undefined);
    await other.samples.tick();
    await leader.samples.tick();
    const read = async () => {
      const { buckets } = await readPoolBuckets(
        opened.db,
        undefined,
        segments(NOON, NOON + MINUTE, 5_000, POOL_STEPS),
        5_000,
      );
      return buckets;
    };
    const first = {
      keyMs: NOON,
      name: 'p',
      workspaceId: null,
      machines: 3,
      containers: 0,
      gpus: 3,
      freeGpus: 3,
      cpuUsed: 4_000,
      cpuTotal: 8_000,
      memoryUsed: 40,
      memoryTotal: 200,
      diskUsed: 2,
      diskTotal: 20,
      hourlyCost: 4.5,
    };
    expect(await read()).toEqual([first]);
    // The next leader knows other machines' use; a report that is old counts no more.
    nowMs += 20_000;
    leading.is = OTHER;
    other.samples.heard('b' as MachineId, use(2_000, 30));
    await leader.samples.tick();
    await other.samples.tick();
    await other.samples.tick();
    expect(await read()).toEqual([
      first,
      expect.objectContaining({ keyMs: NOON + 20_000, machines: 3, cpuUsed: 2_000, cpuTotal: 4_000 }),
    ]);
  });

  test('an agent that sends any numbers stays within what it has', async () => {
    const pool = await getOrCreatePool(opened.db, { name: 'mad', workspaceId: null });
    nowMs = NOON + HOUR;
    leading.is = LEADER;
    const { samples } = aReplica(LEADER as InstanceId, new Map([aMachine('m', pool.id)]));
    samples.heard('m' as MachineId, { ...use(99_000_000, 5_000), diskUsedBytes: Number.NaN });
    await samples.tick();
    const { buckets } = await readPoolBuckets(
      opened.db,
      null,
      segments(NOON + HOUR, NOON + HOUR + MINUTE, 5_000, POOL_STEPS),
      5_000,
    );
    expect(buckets).toMatchObject([
      { name: 'mad', cpuUsed: 4_000, cpuTotal: 4_000, memoryUsed: 100, memoryTotal: 100, diskUsed: 0 },
    ]);
  });
});

describe('with 200 000 rows', () => {
  let opened: OpenedDb;
  const workspaceId = newId<WorkspaceId>();
  const stubId = newId<StubId>();
  beforeAll(async () => {
    opened = await aDb('postgres');
    const { db } = opened;
    const zeros = (columns: number): string => Array.from({ length: columns }, () => '0').join(', ');
    await db.query(`insert into pools (name, workspace_id) select 'p' || n, null from generate_series(1, 50) n`);
    // A statement has a time limit, and the machine may be busy.
    for (let from = 0; from < 200_000; from += 20_000) {
      await db.query(
        `insert into metric_samples select (array[5, 60, 3600])[1 + n % 3], $1::timestamptz + n * interval '1 second',
           case when n % 20 = 0 then $2 else 'w' || n % 50 end, case when n % 40 = 0 then $3 else 's' || n % 500 end, 'c' || n, 1, 5000, 1000, ${zeros(14)}
         from generate_series($4::integer + 1, $4::integer + 20000) n`,
        [new Date(NOON), workspaceId, stubId, from],
      );
      await db.query(
        `insert into pool_samples select (array[5, 60, 300])[1 + n % 3], $1::timestamptz + n * interval '1 second', n % 50, 1, ${zeros(11)}
         from generate_series($2::integer + 1, $2::integer + 20000) n`,
        [new Date(NOON), from],
      );
    }
    await db.query('analyze');
  });
  afterAll(() => opened.stop());

  const planOf = async ([sql, params]: readonly [string, readonly unknown[]]): Promise<string> => {
    const { rows } = await opened.db.query<Record<string, string>>(`explain ${sql}`, params);
    return rows.map((row) => Object.values(row)[0]).join('\n');
  };
  const over = (intervalMs: number, steps?: readonly number[]) =>
    segments(NOON + SECOND, NOON + 30 * HOUR + SECOND, intervalMs, steps);

  test('reads of samples use an index for each segment, and none reads the table', async () => {
    for (const intervalMs of [5 * SECOND, MINUTE, HOUR])
      for (const filter of [{ workspaceId }, { workspaceId, stubId }, { workspaceId, stubKind: 'endpoint' }]) {
        const plan = await planOf(bucketsStatement(filter, over(intervalMs), intervalMs));
        expect(plan).toMatch(/Index.* on metric_samples/);
        expect(plan).not.toMatch(/Seq Scan on metric_samples/);
      }
  });

  test('reads of pools do so, too', async () => {
    for (const intervalMs of [10 * SECOND, MINUTE, 15 * MINUTE])
      for (const owner of [undefined, null, workspaceId]) {
        const plan = await planOf(poolBucketsStatement(owner, over(intervalMs, POOL_STEPS), intervalMs));
        expect(plan).toMatch(/Index.* on pool_samples/);
        expect(plan).not.toMatch(/Seq Scan on pool_samples/);
      }
  });

  test('a batch of samples finds its sums by an index, and takes little time', async () => {
    const batch = Array.from({ length: MAX_SAMPLE_BATCH }, (_none, index) =>
      aSample({ workspaceId, stubId }, `endpoint-${stubId}-${index}` as ContainerId, NOON + index),
    );
    const began = performance.now();
    await insertSamples(opened.db, batch);
    // Far above what it takes, and far below what a scan for each row would.
    expect(performance.now() - began).toBeLessThan(5_000);
  });
});
