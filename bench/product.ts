// Longshore as the benchmarks run it: a scheduler and an agent as processes of their own on a temporary data directory with the embedded stores, all settings at their
// defaults but addresses and names.
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Client } from '#cli/client.ts';
import { deployApp } from '#cli/deploy/deploy.ts';
import type { BenchChild, Message } from './child.ts';
import { freePort } from './workplace.ts';
import type { Workplace } from './workplace.ts';

export interface Product {
  readonly dataDir: string;
  readonly image: string;
  readonly network: string;
  readonly client: Client;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly pids: { readonly scheduler: number; readonly agent: number };
  /** Deploys a file of this repository and gives its invoke URL. */
  deploy(target: string): Promise<DeployedApp>;
  /** Ends the agent with its containers, then the scheduler once every record is stored. */
  stop(): Promise<void>;
}

export interface DeployedApp {
  readonly url: string;
  readonly deploymentId: string;
  readonly stubId: string;
}

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const CONTAINERS_LEAVE_MS = 30_000;

/**
 * Starts both daemons and waits until the machine has joined. It is stopped with the workplace at the latest.
 * @param profileDir - where they leave processor profiles when they end
 */
export async function startProduct(place: Workplace, profileDir: string | undefined): Promise<Product> {
  const { reference: image, template } = await place.engine.baseImage();
  const dataDir = join(place.directory, 'd');
  const network = `longshore-${place.runId}`;
  const profile = profileDir === undefined ? {} : { NODE_OPTIONS: `--cpu-prof --cpu-prof-dir=${profileDir}` };
  const common = { ...place.env, ...profile, LONGSHORE_DATA_DIR: dataDir };
  const env = { ...common, LONGSHORE_HTTP_ADDRESS: '127.0.0.1:0', LONGSHORE_AGENT_ADDRESS: '127.0.0.1:0' };
  const scheduler = startScheduler(place, env);
  const ready = await scheduler.ready();
  const first = await scheduler.request({ kind: 'ensureFirstWorkspace' });
  const joinToken = text(await scheduler.request({ kind: 'createLocalMachine' }), 'joinToken');
  const agent = place.start({
    name: 'agent',
    file: 'cli/main.ts',
    args: ['agent'],
    env: {
      ...common,
      LONGSHORE_SCHEDULER_ADDRESS: text(ready, 'agentAddress'),
      LONGSHORE_JOIN_TOKEN: joinToken,
      LONGSHORE_AGENT_METRICS_ADDRESS: `127.0.0.1:${await freePort()}`,
      LONGSHORE_AGENT_NETWORK: network,
      LONGSHORE_BASE_IMAGE: template,
    },
  });
  await agent.ready();
  place.engine.adopt(await machineIdIn(dataDir), network);
  const url = `http://${text(ready, 'httpAddress')}`;
  const client = new Client({ url, token: text(first, 'token'), workspaceId: text(first, 'workspaceId') });
  let stopped: Promise<void> | undefined;
  const stop = (): Promise<void> => (stopped ??= stopAll(client, agent, scheduler));
  place.later(stop);
  return {
    dataDir,
    image,
    network,
    client,
    env,
    pids: { scheduler: scheduler.pid, agent: agent.pid },
    deploy: async (target) => {
      const request = { target: join(ROOT, target), name: undefined, reuse: false, onStep: () => undefined };
      const { url: invokeUrl, deploymentId, stubId } = await deployApp(client, { ...request, env: place.env });
      return { url: invokeUrl, deploymentId, stubId };
    },
    stop,
  };
}

/** The daemon as a service runs it: with a Redis child of its own. */
export function startScheduler(place: Workplace, env: Readonly<Record<string, string | undefined>>): BenchChild {
  return place.start({ name: 'scheduler', file: 'cli/main.ts', args: ['scheduler'], env });
}

async function stopAll(client: Client, agent: BenchChild, scheduler: BenchChild): Promise<void> {
  await client.close();
  try {
    agent.send({ kind: 'stop', containers: 'stop' });
    await agent.ended(CONTAINERS_LEAVE_MS);
  } finally {
    await agent.stop();
    await scheduler.stop();
  }
}

async function machineIdIn(dataDir: string): Promise<string> {
  const value: unknown = JSON.parse(await readFile(join(dataDir, 'agent', 'machine.json'), 'utf8'));
  if (typeof value === 'object' && value !== null && 'machineId' in value && typeof value.machineId === 'string')
    return value.machineId;
  throw new Error('the agent keeps no machineId in machine.json');
}

function text(message: Message, name: string): string {
  const value = message[name];
  if (typeof value !== 'string' || value === '') throw new Error(`${message.kind} came without ${name}`);
  return value;
}
