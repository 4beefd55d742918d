// The routes of the series of metrics on a real scheduler: their answers field by field, whose series a caller sees,
// and every query that makes no sense. Samples are written as the scheduler writes them.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { newContainerId } from '#shared/domain/ids.ts';
import type { StubId, WorkspaceId } from '#shared/domain/ids.ts';
import { openDb } from '#scheduler/stores/store/db.ts';
import type { Db } from '#scheduler/stores/store/db.ts';
import { insertSamples } from '#scheduler/stores/store/queries/metric-samples.ts';
import { insertPoolSamples } from '#scheduler/stores/store/queries/pool-samples.ts';
import { getOrCreatePool } from '#scheduler/stores/store/queries/pools.ts';
import { tempDirectory } from '../helpers/services.ts';
import { silent } from './store-fixture.ts';
import { NOBODY, aPlatform } from './verbs-fixture.ts';
import type { Json, Platform } from './verbs-fixture.ts';

const NOON = Date.UTC(2026, 0, 1, 12);
const RANGE = 'start=2026-01-01T12:00:00Z&end=2026-01-01T13:00:00Z';
const directory = tempDirectory('metric-routes');
let platform: Platform;
let db: Db;
let stubId: StubId;

beforeAll(async () => {
  platform = await aPlatform();
  db = await openDb({ databaseUrl: platform.servers?.postgres.url, dataDir: directory.path, log: silent });
  stubId = (await platform.stub()) as StubId;
  const sample = {
    workspaceId: platform.own.workspaceId as WorkspaceId,
    stubId,
    containerId: newContainerId('endpoint', stubId),
    atMs: NOON,
    intervalMs: 5_000,
    cpuMillicores: 2_000,
    memoryBytes: 1_000,
    gpuCount: 2,
    cpuUsed: 500,
    memoryRss: 1,
    memoryVms: 2,
    memorySwap: 3,
    gpuMemoryUsed: 4,
    gpuMemoryTotal: 5,
    diskRead: 50,
    diskWrite: 100,
    receivedBytes: 150,
    sentBytes: 200,
    receivedPackets: 6,
    sentPackets: 7,
  };
  await insertSamples(db, [sample, { ...sample, atMs: NOON + 30_000 }]);
  const shared = await getOrCreatePool(db, { name: 'shared', workspaceId: null, settings: { hourlyCost: 3 } });
  const own = await getOrCreatePool(db, { name: 'mine', workspaceId: platform.own.workspaceId as WorkspaceId });
  const pool = {
    machines: 2,
    containers: 3,
    gpus: 8,
    freeGpus: 2,
    cpuUsed: 1_000,
    cpuTotal: 8_000,
    memoryUsed: 10,
    memoryTotal: 40,
    diskUsed: 9,
    diskTotal: 10,
    hourlyCost: 6,
  };
  await insertPoolSamples(db, NOON, [
    { ...pool, poolId: shared.id },
    { ...pool, poolId: own.id, gpus: 0, freeGpus: 0, diskTotal: 0, diskUsed: 0, hourlyCost: 0 },
  ]);
});
afterAll(async () => {
  await db.close();
  await platform.stop();
  directory.remove();
});

const at = (kind: string, query: string, workspaceId: string = platform.own.workspaceId): string =>
  `GET /api/v1/metrics/${workspaceId}/${kind}-timeseries?${query}`;
const bucketsOf = (json: Json): Json[] => (json['timeseries'] as Json)['aggregation_buckets'] as Json[];

test('a bucket has the fields of the interface, and no others', async () => {
  const { status, json } = await platform.call(at('stub', `stub_id=${stubId}&${RANGE}&interval=1m`));
  expect(status).toBe(200);
  const values = {
    container_count: 1,
    cpu_concurrency: 2_000,
    gpu_concurrency: 2,
    disk_read_bytes_per_second_avg: 10,
    disk_write_bytes_per_second_avg: 20,
    network_recv_bytes_per_second_avg: 30,
    network_sent_bytes_per_second_avg: 40,
    cpu_pct_avg: 25,
    cpu_used_avg: 500,
    cpu_total_avg: 2_000,
    memory_rss_bytes_avg: 1,
    memory_vms_bytes_avg: 2,
    memory_swap_bytes_avg: 3,
    memory_total_bytes_avg: 1_000,
    gpu_memory_used_bytes_avg: 4,
    gpu_memory_total_bytes_avg: 5,
    disk_read_bytes_avg: 50,
    disk_write_bytes_avg: 100,
    network_recv_bytes_avg: 150,
    network_sent_bytes_avg: 200,
    network_recv_packets_avg: 6,
    network_sent_packets_avg: 7,
  };
  expect(json).toEqual({
    scanned_records: 1,
    truncated: false,
    timeseries: {
      aggregation_buckets: [
        {
          key: NOON,
          key_as_string: '2026-01-01T12:00:00.000Z',
          doc_count: 2,
          ...Object.fromEntries(Object.entries(values).map(([name, value]) => [name, { value }])),
        },
      ],
    },
  });
});

test('intervals are minute, hour or a duration; a stub has hours by default, a workspace minutes', async () => {
  const keys = async (kind: string, query: string): Promise<number[]> =>
    bucketsOf((await platform.call(at(kind, query))).json).map(({ key }) => Number(key) - NOON);
  const ofStub = `stub_id=${stubId}&start=2026-01-01T11:00:00Z&end=2026-01-01T12:00:31Z`;
  for (const interval of ['', '&interval=hour', '&interval=1h', '&interval=60m', '&interval=minute', '&interval=1m'])
    expect(await keys('stub', `${ofStub}${interval}`), interval).toEqual([0]);
  const lately = 'start=2026-01-01T12:00:00Z&end=2026-01-01T12:01:00%2B00:00';
  expect(await keys('stub', `stub_id=${stubId}&${lately}&interval=30s`)).toEqual([0, 30_000]);
  expect(await keys('workspace', lately)).toEqual([0]);
  expect(await keys('workspace', `${lately}&stub_type=function`)).toEqual([]);
  for (const type of ['endpoint', 'endpoint%2Fdeployment'])
    expect(await keys('workspace', `${lately}&stub_type=${type}`), type).toEqual([0]);
  expect(await keys('workspace', `${lately}&app_id=${NOBODY}`)).toEqual([]);
  // The end is exclusive, the start is not.
  expect(await keys('workspace', 'start=2026-01-01T12:00:30Z&end=2026-01-01T12:00:31Z&interval=5s')).toEqual([30_000]);
  expect(await keys('workspace', 'start=2026-01-01T12:00:29Z&end=2026-01-01T12:00:30Z&interval=5s')).toEqual([]);
});

describe('pools', () => {
  const pools = async (token: string, workspaceId: string) => {
    const { status, json } = await platform.call(at('pool', `${RANGE}&interval=1h`, workspaceId), undefined, { token });
    expect(status).toBe(200);
    return json;
  };
  const mine = {
    pool_name: 'mine',
    machine_count: 2,
    container_count: 3,
    gpu_count: 0,
    free_gpu_count: 0,
    cpu_utilization_pct: 12.5,
    memory_utilization_pct: 25,
    gpu_utilization_pct: 0,
    disk_usage_pct: 0,
    hourly_cost: 0,
    estimated_cost: 0,
  };

  test('of a workspace are its own', async () => {
    const { token, workspaceId } = platform.own;
    const expected = {
      workspaces: [workspaceId],
      points: [{ timestamp: NOON, pools: [{ workspace_id: workspaceId, ...mine }] }],
      scanned_records: 1,
      truncated: false,
    };
    expect(await pools(token, workspaceId)).toEqual(expected);
    // An administrator who names the workspace sees the same.
    expect(await pools(platform.admin.token, workspaceId)).toEqual(expected);
    expect(await pools(platform.other.token, platform.other.workspaceId)).toMatchObject({ points: [] });
  });

  test('of an administrator are all', async () => {
    const { token, workspaceId } = platform.admin;
    expect(await pools(token, workspaceId)).toEqual({
      workspaces: [platform.own.workspaceId],
      points: [
        {
          timestamp: NOON,
          pools: [
            {
              ...mine,
              workspace_id: '',
              pool_name: 'shared',
              gpu_count: 8,
              free_gpu_count: 2,
              gpu_utilization_pct: 75,
              disk_usage_pct: 90,
              hourly_cost: 6,
              estimated_cost: 6,
            },
            { workspace_id: platform.own.workspaceId, ...mine },
          ],
        },
      ],
      scanned_records: 2,
      truncated: false,
    });
  });

  test('a point of ten seconds is the default, and costs its share', async () => {
    const query = 'start=2026-01-01T12:00:00Z&end=2026-01-01T12:00:10Z';
    const { json } = await platform.call(at('pool', query, platform.admin.workspaceId), undefined, platform.admin);
    expect(json['points']).toMatchObject([
      {
        pools: [
          { hourly_cost: 6, estimated_cost: 6 / 360 },
          { pool_name: 'mine', estimated_cost: 0 },
        ],
      },
    ]);
  });
});

describe('a caller', () => {
  test.for(['stub', 'workspace', 'pool'])('with a restricted token reads the series of a %s', async (kind) => {
    const query = `stub_id=${stubId}&${RANGE}&interval=1m`;
    expect((await platform.call(at(kind, query), undefined, { token: platform.restricted })).status).toBe(200);
    for (const token of ['', platform.revoked, platform.other.token])
      expect((await platform.call(at(kind, query), undefined, { token })).status).toBe(401);
  });

  test.for(['unknown', 'no id'])('gets 404 for a stub that is %s', async (which) => {
    const query = `stub_id=${which === 'unknown' ? NOBODY : 'x'}&${RANGE}`;
    expect(await platform.call(at('stub', query))).toMatchObject({ status: 404, json: { message: 'stub not found' } });
  });

  test('gets 404 for a stub of another workspace, an administrator too who names the wrong one', async () => {
    const query = `stub_id=${stubId}&${RANGE}`;
    const { workspaceId, token } = platform.other;
    expect((await platform.call(at('stub', query, workspaceId), undefined, { token })).status).toBe(404);
    expect((await platform.call(at('stub', query, workspaceId), undefined, platform.admin)).status).toBe(404);
    expect((await platform.call(at('stub', query), undefined, platform.admin)).status).toBe(200);
  });
});

describe('a query is refused', () => {
  const START = 'start=2026-01-01T12:00:00Z';
  const END = 'end=2026-01-01T13:00:00Z';
  const SHORT = /^Invalid metrics interval: it must be a duration of at least 5s/;
  test.for([
    ['stub', RANGE, 'query parameter stub_id is required'],
    ['workspace', END, 'Invalid start time'],
    ['workspace', `start=yesterday&${END}`, 'Invalid start time'],
    ['workspace', `start=1969-01-01T00:00:00Z&${END}`, 'Invalid start time'],
    ['workspace', `start=1767268800&${END}`, 'Invalid start time'],
    ['workspace', START, 'Invalid end time'],
    ['workspace', `${START}&end=2026-13-01T00:00:00Z`, 'Invalid end time'],
    ['workspace', `${START}&end=2026-01-01T12:00:00Z`, 'Invalid metrics time range'],
    ['workspace', `${START}&end=2026-01-01T11:00:00Z`, 'Invalid metrics time range'],
    ['workspace', `${START}&end=2026-01-02T12:00:00Z`, 'Invalid metrics time range: more than 1000 intervals'],
    ['workspace', `${RANGE}&interval=3599ms`, SHORT],
    ['workspace', `${RANGE}&interval=4s`, SHORT],
    ['workspace', `${RANGE}&interval=day`, SHORT],
    ['workspace', `${RANGE}&interval=-5m`, SHORT],
    ['workspace', `${RANGE}&interval=60`, SHORT],
    ['workspace', `${RANGE}&interval=1m&interval=2m`, 'query parameter interval must be given once'],
    ['pool', `${RANGE}&interval=121m`, 'Invalid metrics interval: it must be a duration from 5s to 2h'],
    ['pool', `${RANGE}&interval=minute`, 'Invalid metrics interval: it must be a duration from 5s to 2h'],
    ['pool', `${RANGE}&interval=4s`, SHORT],
    ['pool', `${START}&end=2026-01-09T12:00:01Z&interval=2h`, 'Invalid metrics time range: it must be at most 8 days'],
    ['pool', `${START}&end=2026-01-01T16:00:00Z`, 'Invalid metrics time range: more than 1000 intervals'],
  ] as const)('%s-timeseries?%s', async ([kind, query, message]) => {
    const answer = await platform.call(at(kind, kind === 'stub' ? query : `stub_id=${stubId}&${query}`));
    expect(answer).toMatchObject({ status: 400, json: { code: 'invalid_query' } });
    expect(answer.json['message']).toMatch(message);
  });

  test('and one at each bound is answered', async () => {
    for (const [kind, query] of [
      ['workspace', `${START}&end=2026-01-02T04:40:00Z`],
      ['workspace', `${RANGE}&interval=5s`],
      ['workspace', 'start=1970-01-01T00:00:00Z&end=9999-12-31T23:59:59Z&interval=999999h'],
      ['pool', `${START}&end=2026-01-09T12:00:00Z&interval=2h`],
      ['pool', `${START}&end=2026-01-01T13:23:20Z&interval=5s`],
    ] as const)
      expect(await platform.call(at(kind, query)), query).toMatchObject({ status: 200, json: { truncated: false } });
  });
});
