// Labels and conditions on GPUs through the whole scheduler: a deployment waits for a machine that meets them, says
// what is lacking, and runs once a machine has it.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { waitFor } from '../helpers/programs.ts';
import { SimulatedAgent } from '../helpers/simulated-agent.ts';
import type { Json, Platform } from './verbs-fixture.ts';
import { aPlatform } from './verbs-fixture.ts';

const GIB = 1024 ** 3;
let platform: Platform;
let agent: SimulatedAgent;
let machineId: string;

beforeAll(async () => {
  platform = await aPlatform({}, 'embedded');
  const made = await platform.gateway('POST /machines', { poolName: 'ruled' }, { token: platform.admin.token });
  machineId = String((made.json['machine'] as Json)['id']);
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

const ONE = { type: 'queue_depth', minContainers: 1, maxContainers: 1, tasksPerContainer: 1 };
const deploy = (name: string, said: Json) => platform.deploy(name, { autoscaler: ONE, ...said });
const explain = async (what: string): Promise<Json> =>
  (await platform.call(`GET /api/v1/explain/${platform.own.workspaceId}/${what}`)).json;
/** Details of the container of a deployment. */
const details = async (name: string): Promise<string> => {
  const scaling = (await explain(name))['scaling'] as { readonly containers: readonly Json[] } | null;
  const id = scaling?.containers[0]?.['container_id'];
  return typeof id === 'string' ? JSON.stringify((await explain(id))['details']) : '';
};

test('a label that an operator gives lets a container in that waited for it, and is in the list', async () => {
  const label = (body: Json) =>
    platform.gateway(`POST /machines/${machineId}/labels`, body, { token: platform.admin.token });
  await label({ set: { zone: 'b' } });
  const placement = { require: { zone: ['a'] } };
  const { stubId } = await deploy('zoned', { gpu: 'any', extra: JSON.stringify({ placement }) });
  await waitFor(
    async () => (await details('zoned')).includes('no machine has the label zone=a: there are zone=b'),
    'the label is missed',
  );
  expect((await label({ set: { zone: 'a' } })).json).toMatchObject({ ok: true, labels: { zone: 'a' } });
  await waitFor(() => agent.running.some((id) => id.includes(stubId)), 'it runs', 20_000);
  const listed = await platform.gateway('GET /machines', undefined, { token: platform.admin.token });
  expect(listed.json['machines']).toMatchObject([{ id: machineId, labels: { zone: 'a' } }]);
  // Another workspace's machines are nobody's business.
  expect((await platform.gateway(`POST /machines/${machineId}/labels`, { set: { zone: 'c' } })).json).toMatchObject({
    ok: false,
    errMsg: 'machine not found',
  });
});

test('a condition that no device meets is told with the nearest, also while its machine is away', async () => {
  await deploy('capable', { gpu: 'any:>=80GiB:cc>=9.0' });
  const nearest = 'no device has 80 GiB and compute capability 9.0; nearest: A100-80 (8.0)';
  await waitFor(async () => (await details('capable')).includes(nearest), 'the nearest is told');
  await agent.stop();
  const machine = async () =>
    (await platform.gateway('GET /machines', undefined, { token: platform.admin.token })).json['machines'];
  await waitFor(async () => JSON.stringify(await machine()).includes('"status":"registered"'), 'it is away');
  expect(await details('capable')).toContain(nearest);
});
