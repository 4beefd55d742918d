// Pools that grow and shrink, whole: two schedulers, a program that makes instances as files of a folder, and an agent
// for each instance, which joins by the line that it was given. Load makes machines, and idle ones go.
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { waitFor } from '../helpers/programs.ts';
import { ReplicaSet } from '../helpers/replicas.ts';
import type { Replica } from '../helpers/replicas.ts';
import { aPostgres, aRedis } from '../helpers/services.ts';
import { SimulatedAgent } from '../helpers/simulated-agent.ts';

/** A new leader stops no container for two minutes. */
const PATIENCE_MS = 200_000;
const LOOK_MS = 50;
/** A machine of the pool has room for a single container of the deployment. */
const MACHINE = { machineCpuCores: 4, machineMemoryMib: 8192, hourlyCost: 0.5 };
/** Time from an agent's join to its link, in which its machine must count as on its way. */
const DIAL_AFTER_MS = 4_000;
const STUB = { cpu: 3000, memory: 256, keepWarmSeconds: 1 };

/** The provider. Instances are files; each call is noted. `slow`: the instance is there, and the answer is late. */
const PROGRAM = `
import { appendFileSync, existsSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
const verb = process.argv.at(-1);
const input = JSON.parse(readFileSync(0, 'utf8'));
const { FOLDER: folder } = process.env;
const instances = folder + '/instances/';
appendFileSync(folder + '/calls', verb + ' ' + (input.requestId ?? '') + '\\n');
if (verb === 'create') {
  const { requestId, installationId, userData } = input;
  const instance = { instanceId: 'i-' + requestId, requestId, installationId, state: 'running' };
  const token = /lsj1\\.[\\w.-]+/.exec(userData)[0];
  writeFileSync(instances + instance.instanceId, JSON.stringify({ ...instance, token }));
  if (existsSync(folder + '/slow')) await new Promise((resolve) => setTimeout(resolve, 3_000));
  process.stdout.write(JSON.stringify(instance));
} else if (verb === 'list') {
  const all = readdirSync(instances).map((name) => JSON.parse(readFileSync(instances + name, 'utf8')));
  process.stdout.write(JSON.stringify({ instances: all.map(({ token, ...instance }) => instance) }));
} else rmSync(instances + input.instanceId, { force: true });
`;

let set: ReplicaSet;
let folder: string;
const stopping: (() => Promise<unknown>)[] = [];
/** Agents of the instances that are there, by instance id. */
const agents = new Map<string, SimulatedAgent>();
const everThere = new Set<string>();
const ended = new AbortController();

const instances = (): readonly string[] => readdirSync(join(folder, 'instances'));
const creates = (): readonly string[] =>
  readFileSync(join(folder, 'calls'), 'utf8')
    .split('\n')
    .filter((line) => line.startsWith('create '));

/** Boots an agent in each instance, and ends it with its instance. */
async function hostInstances(): Promise<void> {
  while (!ended.signal.aborted) {
    const there = instances();
    for (const name of there) {
      everThere.add(name);
      if (agents.has(name)) continue;
      const text = readFileSync(join(folder, 'instances', name), 'utf8');
      if (text === '') continue;
      const { token } = JSON.parse(text) as { readonly token: string };
      const addresses = () => set.running.map(({ agentAddress }) => agentAddress);
      const handle = async (): Promise<string> => {
        await pause(500);
        return '"done"';
      };
      const agent = new SimulatedAgent({
        addresses,
        joinToken: token,
        cpuMillicores: 4000,
        handle,
        dialAfterMs: DIAL_AFTER_MS,
      });
      agents.set(name, agent);
      // A join that met a scheduler at its end is tried again, as an agent's service does.
      void agent.start().catch(() => agents.delete(name));
    }
    for (const [name, agent] of agents) {
      if (there.includes(name)) continue;
      agents.delete(name);
      await agent.stop();
    }
    await pause(LOOK_MS);
  }
}

beforeAll(async () => {
  const [postgres, redis] = await Promise.all([aPostgres(), aRedis()]);
  stopping.push(
    () => postgres.stop(),
    () => redis.stop(),
  );
  set = new ReplicaSet(postgres, redis, postgres.url, {});
  stopping.unshift(() => set.stop());
  folder = join(set.directory, 'cloud');
  mkdirSync(join(folder, 'instances'), { recursive: true });
  writeFileSync(join(folder, 'calls'), '');
  writeFileSync(join(folder, 'provider.mjs'), PROGRAM);
  const file = join(folder, 'providers.json');
  const command = [process.execPath, join(folder, 'provider.mjs')];
  const provider = { command, timeoutSeconds: 20, env: { FOLDER: folder } };
  writeFileSync(file, JSON.stringify({ providers: { cloud: provider } }));
  const settings = { LONGSHORE_PROVIDERS_FILE: file, LONGSHORE_EXTERNAL_URL: 'http://127.0.0.1:1994' };
  const first = await set.add(settings);
  await set.add(settings);
  const pool = { provider: 'cloud', maxMachines: 3, demandSeconds: 1, idleSeconds: 5, ...MACHINE };
  await set.gateway(first, '/pools', { name: 'grown', settings: pool });
  const hosting = hostInstances();
  stopping.unshift(() => {
    ended.abort();
    return hosting;
  });
}, 120_000);
afterAll(async () => {
  for (const stop of stopping) await stop();
}, 60_000);

/** Calls at once, which must all be answered. */
async function callMany(replica: Replica, path: string, count: number): Promise<void> {
  const answers = await Promise.all(Array.from({ length: count }, () => set.call(replica, path, { body: {} })));
  expect(answers.map(({ status, text }) => [status, text])).toEqual(answers.map(() => [200, '"done"']));
}

async function allGone(replica: Replica): Promise<void> {
  await waitFor(() => instances().length === 0, 'the provider has no instance', PATIENCE_MS);
  await waitFor(
    async () => {
      const { machines } = await set.gateway<{ readonly machines: readonly object[] }>(replica, '/machines');
      return machines.length === 0;
    },
    'no machine is listed',
    PATIENCE_MS,
  );
}

test('load makes machines, work runs there, and idle machines go', async () => {
  const [replica] = set.running;
  if (replica === undefined) throw new Error('no replica runs');
  const autoscaler = { type: 'queue_depth', maxContainers: 5, tasksPerContainer: 1 };
  const { path } = await set.deploy(replica, 'loaded', { ...STUB, pool: { name: 'grown' }, autoscaler });
  await callMany(replica, path, 6);
  expect(everThere.size).toBeGreaterThanOrEqual(1);
  // The ceiling of the pool, though five containers were wanted.
  expect(everThere.size).toBeLessThanOrEqual(3);
  await allGone(replica);
  expect(creates()).toHaveLength(everThere.size);
}, 500_000);

test('a leader killed between the instance and its answer leaves one machine, which works and goes', async () => {
  const leader = await set.leader();
  const other = set.running.find((replica) => replica !== leader);
  if (leader === undefined || other === undefined) throw new Error('there are not two replicas');
  const before = everThere.size;
  const { path } = await set.deploy(other, 'handed-over', { ...STUB, pool: { name: 'grown' } });
  writeFileSync(join(folder, 'slow'), '');
  const answer = callMany(other, path, 1);
  await waitFor(() => everThere.size > before, 'an instance is made', PATIENCE_MS);
  await leader.daemon.kill();
  await answer;
  await allGone(other);
  expect(everThere.size).toBe(before + 1);
  await waitFor(() => agents.size === 0, 'the agents ended with their instances', PATIENCE_MS);
}, 500_000);
