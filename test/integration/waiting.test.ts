// Containers that wait for a machine, through the whole scheduler: by deployment, with the reasons of machines; who
// sees whose; the command line's list.
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { WaitingGroup, WaitingList } from '#shared/api/rest/waiting.ts';
import { runCommand } from '../helpers/command-line.ts';
import { waitFor } from '../helpers/programs.ts';
import { SimulatedAgent } from '../helpers/simulated-agent.ts';
import type { Json, Person, Platform } from './verbs-fixture.ts';
import { aPlatform } from './verbs-fixture.ts';

const GIB = 1024 ** 3;
let platform: Platform;
let agent: SimulatedAgent;

beforeAll(async () => {
  platform = await aPlatform({}, 'embedded');
  const made = await platform.gateway('POST /machines', { poolName: 'few' }, { token: platform.admin.token });
  agent = new SimulatedAgent({
    addresses: () => [platform.agentAddress],
    joinToken: String(made.json['agentUpstreamToken']),
    gpus: [{ uuid: 'GPU-1', model: 'A100-80', memoryBytes: 80 * GIB }],
  });
  await agent.start();
});
afterAll(async () => {
  await agent.stop();
  await platform.stop();
});

const kept = (count: number) => ({
  type: 'queue_depth',
  minContainers: count,
  maxContainers: count,
  tasksPerContainer: 1,
});
const waiting = async ({ token, workspaceId }: Person, isAll = false): Promise<WaitingList> =>
  (await platform.call(`GET /api/v1${isAll ? '' : `/workspace/${workspaceId}`}/waiting`, undefined, { token }))
    .json as unknown as WaitingList;
const groupOf = (name: string, count: number): Promise<WaitingGroup> =>
  waitFor(
    async () =>
      (await waiting(platform.own)).data.find(
        (group) => group.name === name && group.containers === count && Object.keys(group.rejections).length > 0,
      ),
    `${count} of ${name} wait`,
  );

test('nobody waits at first', async () => {
  expect(await waiting(platform.own)).toMatchObject({ data: [], next: '', groups: 0, containers: 0 });
});

test('containers of a deployment wait together, with why, a step and the time at which they give up', async () => {
  await platform.deploy('wide', { gpu: 'A100-80', gpuCount: 2, autoscaler: kept(3) });
  await platform.deploy('strange', { gpu: 'H200', autoscaler: kept(1) });
  const wide = await groupOf('wide', 3);
  expect(wide).toMatchObject({
    workspace_id: platform.own.workspaceId,
    asks: { gpu: ['A100-80'], gpu_count: 2, pool: '' },
    text: expect.stringMatching(/^1 machine without enough free GPUs/),
    step: expect.stringContaining('wait for a GPU'),
    gives_up_with: 'gpu_unavailable',
    reservation: null,
    growth: [],
  });
  expect(Date.parse(wide.gives_up_at) - Date.parse(wide.oldest_at)).toBe(20 * 60_000);
  expect(await groupOf('strange', 1)).toMatchObject({ text: expect.stringContaining('without such a GPU') });
  const all = await waitFor(async () => {
    const seen = await waiting(platform.admin, true);
    return seen.groups === 2 && seen.containers === 4 ? seen : undefined;
  }, 'the administrator sees both');
  expect(all.data.map(({ name }) => name).toSorted()).toEqual(['strange', 'wide']);
  expect((await waiting(platform.other)).data).toEqual([]);
});

test('one answer of the leader serves all readers for a second', async () => {
  const seen = await Promise.all(Array.from({ length: 20 }, () => waiting(platform.own)));
  expect(new Set(seen.map(({ looked_at: at }) => at)).size).toBeLessThan(20);
});

test('`longshore waiting` shows the same to a workspace and to the administrator', async () => {
  await groupOf('wide', 3);
  for (const token of [platform.own.token, platform.admin.token]) {
    const env = {
      LONGSHORE_CONTEXT_FILE: join(tmpdir(), 'longshore-no-contexts.json'),
      LONGSHORE_URL: `http://${platform.address}`,
      LONGSHORE_TOKEN: token,
    };
    const { code, stdout, stderr } = await runCommand(['waiting'], env);
    expect([code, stdout]).toEqual([0, expect.stringContaining('2×A100-80')]);
    expect(stderr).toContain('wide: next: wait for a GPU');
    const json = await runCommand(['--json', 'waiting'], env);
    expect((JSON.parse(json.stdout) as Json[]).map(({ name }) => name)).toContain('wide');
  }
});

test('a group that found its machines is gone', async () => {
  const { id } = await platform.deploy('narrow', { gpu: 'A100-80', gpuCount: 1, autoscaler: kept(1) });
  await waitFor(() => agent.running.length === 1 || undefined, `${id} runs`);
  const names = async () => (await waiting(platform.own)).data.map(({ name }) => name);
  await waitFor(async () => !(await names()).includes('narrow') || undefined, 'it waits no more');
  expect(await names()).toContain('wide');
});
