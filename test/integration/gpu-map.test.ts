// GPUs of the fleet through the whole scheduler: who holds each, its use, what is out and why, pages, filters (`pool`,
// `machine`, `state`), the map by machine, who sees whose, and the command line's list.
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { GpuList, GpuMapList } from '#shared/api/rest/gpus.ts';
import { runCommand } from '../helpers/command-line.ts';
import { waitFor } from '../helpers/programs.ts';
import { SimulatedAgent } from '../helpers/simulated-agent.ts';
import type { Json, Platform } from './verbs-fixture.ts';
import { aPlatform } from './verbs-fixture.ts';

const GIB = 1024 ** 3;
let platform: Platform;
const agents: SimulatedAgent[] = [];

const aGpu = (uuid: string, index: number, more: Json = {}) => ({
  uuid,
  index,
  model: 'H100',
  memoryBytes: 80 * GIB,
  state: 'healthy',
  ...more,
});

async function aMachine(poolName: string, token: string, gpus: ReturnType<typeof aGpu>[]): Promise<SimulatedAgent> {
  const made = await platform.gateway('POST /machines', { poolName }, { token });
  const joinToken = String(made.json['agentUpstreamToken']);
  const agent = new SimulatedAgent({ addresses: () => [platform.agentAddress], joinToken, gpus });
  await agent.start();
  agents.push(agent);
  return agent;
}

let shared: SimulatedAgent;
let idle: SimulatedAgent;
beforeAll(async () => {
  platform = await aPlatform({}, 'embedded');
  const { token } = platform.admin;
  const why = 'Xid 79: the GPU has fallen off the bus';
  shared = await aMachine('big', token, [
    aGpu('GPU-b0', 0),
    aGpu('GPU-b1', 1),
    aGpu('GPU-b2', 2, { state: 'unhealthy', unhealthy: true, why }),
    aGpu('GPU-b3', 3, { state: 'quarantined', unhealthy: true, why: 'a process may still use it' }),
  ]);
  idle = await aMachine('small', token, [aGpu('GPU-s0', 0)]);
  await aMachine('mine', platform.own.token, [aGpu('GPU-own', 0, { model: 'T4' })]);
});
afterAll(async () => {
  for (const agent of agents) await agent.stop();
  await platform.stop();
});

const gpus = async (query = '', token = platform.admin.token): Promise<GpuList> =>
  (await platform.call(`GET /api/v1/gpu${query}`, undefined, { token })).json as unknown as GpuList;
const map = async (query = '', token = platform.admin.token): Promise<GpuMapList> =>
  (await platform.call(`GET /api/v1/gpu-map${query}`, undefined, { token })).json as unknown as GpuMapList;
const one = async (uuid: string) => (await gpus()).data.find((gpu) => gpu.uuid === uuid);

test('a GPU says who holds it, how much of it is used, and what brings it back', async () => {
  await waitFor(async () => (await gpus()).counts.total === 5 || undefined, 'all machines are there');
  const { stubId } = await platform.deploy('holds', {
    gpu: 'H100',
    autoscaler: { type: 'queue_depth', minContainers: 1, maxContainers: 1, tasksPerContainer: 1 },
  });
  const held = await waitFor(
    async () => (await gpus()).data.find(({ holder }) => holder?.name !== undefined),
    'a container has one',
  );
  expect(held.holder).toMatchObject({ workspace_id: platform.own.workspaceId, name: 'holds' });
  expect(held.holder?.container_id).toContain(stubId);
  expect(held).toMatchObject({ standing: 'leased', why: '', steps: [], utilization_pct: null, sampled_at: null });
  const agent = held.machine_id === shared.machineId ? shared : idle;
  agent.sampleDevices([
    { uuid: held.uuid, utilizationPermille: 824, memoryUsedBytes: 40 * GIB, powerWatts: 512, temperatureCelsius: 61 },
  ]);
  const used = await waitFor(
    async () => ((await one(held.uuid))?.sampled_at === null ? undefined : one(held.uuid)),
    'its use is known',
  );
  expect(used).toMatchObject({
    utilization_pct: 82.4,
    memory_used_bytes: 40 * GIB,
    power_watts: 512,
    temperature_celsius: 61,
    idle_since: null,
  });
  expect(await one('GPU-b2')).toMatchObject({
    standing: 'out',
    state: 'unhealthy',
    why: 'Xid 79: the GPU has fallen off the bus',
    steps: [
      `drain its machine: \`longshore worker drain ${shared.machineId}\``,
      expect.stringContaining('nvidia-smi --gpu-reset -i GPU-b2'),
    ],
  });
  expect((await one('GPU-b3'))?.steps).toHaveLength(2);
  expect((await gpus()).counts).toEqual({ total: 5, leased: 1, free: 2, blocked: 0, out: 2, idle: 0 });
});

test('a machine that takes nothing new has its free GPUs blocked, with why', async () => {
  const verb = (name: string) =>
    platform.gateway(`POST /workers/${shared.machineId}/${name}`, {}, { token: platform.admin.token });
  await verb('cordon');
  // An answer is kept for a second.
  const blocked = await waitFor(async () => {
    const { data } = await gpus('?state=blocked');
    return data.length > 0 && data;
  }, 'the map shows it');
  expect(blocked.map(({ why }) => why)).toContain('the machine is cordoned');
  expect(blocked[0]?.steps).toEqual([`let it serve again: \`longshore worker uncordon ${shared.machineId}\``]);
  await verb('uncordon');
  await waitFor(async () => (await gpus('?pool=big')).counts.blocked === 0, 'the map shows that it serves again');
});

test('filters and pages: each once, in order, counts of all', async () => {
  const uuids = async (query: string) => (await gpus(query)).data.map(({ uuid }) => uuid);
  expect(await uuids('?pool=big')).toEqual(['GPU-b0', 'GPU-b1', 'GPU-b2', 'GPU-b3']);
  expect(await uuids(`?machine=${idle.machineId}`)).toEqual(['GPU-s0']);
  expect(await uuids('?pool=none')).toEqual([]);
  const seen: string[] = [];
  let cursor = '';
  for (let pages = 0; pages === 0 || cursor !== ''; pages += 1) {
    expect(pages).toBeLessThan(5);
    const page = await gpus(`?limit=2&cursor=${cursor}`);
    expect(page.counts.total).toBe(5);
    seen.push(...page.data.map(({ uuid }) => uuid));
    cursor = page.next;
  }
  expect(seen).toEqual(['GPU-b0', 'GPU-b1', 'GPU-b2', 'GPU-b3', 'GPU-s0']);
  const bad = await platform.call('GET /api/v1/gpu?cursor=x', undefined, { token: platform.admin.token });
  expect([bad.status, bad.json['code']]).toEqual([400, 'invalid_cursor']);
});

test('GPUs of a state, counted among all', async () => {
  const out = await gpus('?state=out');
  expect(out.data.map(({ uuid }) => uuid)).toEqual(['GPU-b2', 'GPU-b3']);
  expect(out.counts).toMatchObject({ total: 5, out: 2 });
  expect((await gpus('?state=idle')).data).toEqual([]);
  // A GPU of three is leased, on either machine.
  const [free, leased] = [await gpus('?state=free'), await gpus('?state=leased')];
  expect([free.data.length, leased.data.length]).toEqual([2, 1]);
  expect([...free.data, ...leased.data].map(({ uuid }) => uuid).toSorted()).toEqual(['GPU-b0', 'GPU-b1', 'GPU-s0']);
  const bad = await platform.call('GET /api/v1/gpu?state=lost', undefined, { token: platform.admin.token });
  expect([bad.status, bad.json['code'], bad.json['message']]).toEqual([
    400,
    'invalid_query',
    expect.stringContaining('state'),
  ]);
});

test('the map has a letter and a holder for each GPU, by machine, in pages', async () => {
  const { data, counts, pools, next } = await map();
  expect([pools, next]).toEqual([['big', 'small'], '']);
  expect(counts).toEqual((await gpus()).counts);
  const all = (await gpus()).data;
  const letters: Readonly<Record<string, string>> = { leased: 'L', free: 'F', out: 'X' };
  const of = (machineId: string) => {
    const own = all.filter(({ machine_id }) => machine_id === machineId);
    return {
      id: machineId,
      model: 'H100',
      marks: own.map(({ standing }) => letters[standing]).join(''),
      holders: own.map(({ holder }) => holder?.name ?? ''),
    };
  };
  expect(data).toMatchObject([of(shared.machineId), of(idle.machineId)]);
  expect(data.flatMap(({ holders }) => holders).filter((name) => name !== '')).toHaveLength(1);
  expect(data.map(({ marks }) => marks).join('')).toMatch(/^(LFXXF|FLXXF|FFXXL)$/);
  expect((await map('?pool=small')).data).toMatchObject([of(idle.machineId)]);
  expect((await map('?pool=small')).counts.total).toBe(1);
  const first = await map('?limit=1');
  const second = await map(`?limit=1&cursor=${first.next}`);
  expect([first, second].flatMap((page) => page.data.map(({ id }) => id))).toEqual([shared.machineId, idle.machineId]);
  expect(second.next).toBe('');
  // A cursor of the other list is none of this one.
  const gpu = (await gpus('?limit=1')).next;
  const bad = await platform.call(`GET /api/v1/gpu-map?cursor=${gpu}`, undefined, { token: platform.admin.token });
  expect([bad.status, bad.json['code']]).toEqual([400, 'invalid_cursor']);
  expect((await map('', platform.own.token)).data.map(({ marks }) => marks)).toEqual(['F']);
  expect((await map('', platform.other.token)).data).toEqual([]);
});

test('a workspace sees the GPUs of its own pools, and no others', async () => {
  expect((await gpus('', platform.own.token)).data.map(({ uuid }) => uuid)).toEqual(['GPU-own']);
  expect((await gpus(`?machine=${shared.machineId}`, platform.own.token)).data).toEqual([]);
  expect((await gpus('', platform.other.token)).data).toEqual([]);
});

test('readers within a second get one look, and the first page of a large fleet is short', async () => {
  const many = Array.from({ length: 60 }, (_, index) => aGpu(`GPU-0f1e2d3c-4b5a-6978-8796-${index + 1e11}`, index));
  const large = await aMachine('large', platform.other.token, many);
  const list = (query = '') => gpus(query, platform.other.token);
  await waitFor(async () => (await list()).counts.total === 60, 'the machine is there');
  const page = await platform.call('GET /api/v1/gpu', undefined, { token: platform.other.token });
  expect((page.json['data'] as Json[]).length).toBe(50);
  expect(JSON.stringify(page.json).length).toBeLessThan(25 * 1024);
  expect((await list('?limit=1000')).data).toHaveLength(60);
  await large.stop();
});

test('`longshore machine gpu list` shows the same, and what to do about those that are out', async () => {
  const env = {
    LONGSHORE_CONTEXT_FILE: join(tmpdir(), 'longshore-no-contexts.json'),
    LONGSHORE_URL: `http://${platform.address}`,
    LONGSHORE_TOKEN: platform.admin.token,
  };
  const { code, stdout, stderr } = await runCommand(['machine', 'gpu', 'list', '--pool', 'big'], env);
  expect([code, stdout.split('\n').filter((line) => line.includes('H100'))]).toEqual([0, expect.any(Array)]);
  expect(stdout).toContain('out');
  expect(stderr).toContain('GPU-b2 is unhealthy: Xid 79');
  expect(stderr).toContain('nvidia-smi --gpu-reset -i GPU-b2');
  const json = await runCommand(['--json', 'machine', 'gpu', 'list'], env);
  expect((JSON.parse(json.stdout) as Json[]).map(({ uuid }) => uuid)).toHaveLength(5);
  const both = await runCommand(['machine', 'gpu', 'list', shared.machineId, '--pool', 'big'], env);
  expect([both.code, both.stderr]).toEqual([2, expect.stringContaining('--pool')]);
});
