// GPUs of the fleet through the whole scheduler: who holds each, its use, what is out and why, pages, filters (`pool`,
// `machine`), who sees whose, and the command line's list.
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { GpuList } from '#shared/api/rest/gpus.ts';
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
  const blocked = (await gpus('?pool=big')).data.filter(({ standing }) => standing === 'blocked');
  expect(blocked.map(({ why }) => why)).toContain('the machine is cordoned');
  expect(blocked[0]?.steps).toEqual([`let it serve again: \`longshore worker uncordon ${shared.machineId}\``]);
  await verb('uncordon');
  expect((await gpus('?pool=big')).counts.blocked).toBe(0);
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

test('a workspace sees the GPUs of its own pools, and no others', async () => {
  expect((await gpus('', platform.own.token)).data.map(({ uuid }) => uuid)).toEqual(['GPU-own']);
  expect((await gpus(`?machine=${shared.machineId}`, platform.own.token)).data).toEqual([]);
  expect((await gpus('', platform.other.token)).data).toEqual([]);
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
