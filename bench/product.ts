// Longshore as the benchmarks run it: a scheduler and an agent as processes of their own. They use a temporary data
// directory with the embedded stores, and defaults for all settings but addresses and names.
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Client } from '#cli/client.ts';
import { linkSocket } from '#cli/up/settings.ts';
import { deployApp } from '#cli/deploy/deploy.ts';
import { schedulerEnv } from '#cli/up/settings.ts';
import type { BenchChild, Message } from './child.ts';
import type { Release } from './release.ts';
import { freePort } from './workplace.ts';
import type { Workplace } from './workplace.ts';

export interface Product {
  readonly dataDir: string;
  readonly image: string;
  readonly network: string;
  readonly client: Client;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** The scheduler's is that of the last one started. */
  readonly pids: { readonly scheduler: number; readonly agent: number };
  /** Address where the agent answers Prometheus. */
  readonly agentMetricsAddress: string;
  /** Lines of the agent's log so far. */
  agentLines(): readonly string[];
  /** Deploys a file of this repository and gives its invoke URL. */
  deploy(target: string): Promise<DeployedApp>;
  /** kill -9 of the scheduler alone, ready or not; everything else goes on. */
  killScheduler(): Promise<void>;
  /** Starts another scheduler in its place, at the same addresses. @param wait - until it is ready */
  restartScheduler(wait: boolean): Promise<void>;
  readonly machineId: string;
  /** kill -9 of the agent alone, ready or not; its containers go on. */
  killAgent(): Promise<void>;
  /** Starts another agent on the same state. @param wait - until it is connected */
  restartAgent(wait: boolean): Promise<void>;
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

export interface ProductOptions {
  /** Short: one run may have several installations, each with a data directory and a network by this name. */
  readonly name?: string;
  /** Both daemons leave processor profiles there when they end. */
  readonly profileDir?: string | undefined;
  /** Settings of the scheduler, beside its defaults. */
  readonly settings?: Readonly<Record<string, string>>;
  /** Settings of the agent, beside its defaults. */
  readonly agentSettings?: Readonly<Record<string, string>> | undefined;
  /** The agent is the program of this release, as its unit starts it, instead of the sources. */
  readonly release?: Release | undefined;
  /** The scheduler is of that release, too. */
  readonly isAllOfRelease?: boolean;
}

/** Starts both daemons and waits until the machine has joined. Both stop with the workplace at the latest. */
export async function startProduct(
  place: Workplace,
  { name = 'd', profileDir, settings = {}, agentSettings = {}, release, isAllOfRelease = false }: ProductOptions = {},
): Promise<Product> {
  const { reference: image, template } = await place.engine.baseImage();
  const dataDir = join(place.directory, name);
  const network = `longshore-${place.runId}-${name}`;
  const schedulerRelease = isAllOfRelease ? release : undefined;
  const profile = profileDir === undefined ? {} : { NODE_OPTIONS: `--cpu-prof --cpu-prof-dir=${profileDir}` };
  const common = { ...place.env, ...profile, LONGSHORE_DATA_DIR: dataDir, ...linkSocket(dataDir) };
  const env = {
    ...common,
    ...settings,
    LONGSHORE_HTTP_ADDRESS: '127.0.0.1:0',
    LONGSHORE_RATE_LIMITS: 'off',
    LONGSHORE_AGENT_ADDRESS: '127.0.0.1:0',
  };
  let scheduler = startScheduler(place, env, schedulerRelease);
  const ready = await scheduler.ready();
  const addresses = {
    LONGSHORE_HTTP_ADDRESS: text(ready, 'httpAddress'),
    LONGSHORE_AGENT_ADDRESS: text(ready, 'agentAddress'),
  };
  const first = await scheduler.request({ kind: 'ensureFirstWorkspace' });
  const joinToken = text(await scheduler.request({ kind: 'createLocalMachine' }), 'joinToken');
  const agentMetricsAddress = `127.0.0.1:${await freePort()}`;
  const agentEnv = {
    ...common,
    LONGSHORE_SCHEDULER_ADDRESS: addresses.LONGSHORE_AGENT_ADDRESS,
    LONGSHORE_JOIN_TOKEN: joinToken,
    LONGSHORE_AGENT_METRICS_ADDRESS: agentMetricsAddress,
    LONGSHORE_AGENT_NETWORK: network,
    // A release may be of a commit that does not know the setting, and pulls nothing here.
    ...(isAllOfRelease ? {} : { LONGSHORE_AGENT_REGISTRIES: '127.0.0.0/8' }),
    LONGSHORE_BASE_IMAGE: template,
    ...agentSettings,
  };
  const startAgent = (): BenchChild =>
    release === undefined
      ? place.start({ name: 'agent', file: 'cli/main.ts', args: ['agent'], env: agentEnv })
      : place.start({ name: 'agent', ...release.program('agent', agentEnv) });
  let agent = startAgent();
  await agent.ready();
  const machineId = await machineIdIn(dataDir);
  place.engine.adopt(machineId, network);
  const url = `http://${addresses.LONGSHORE_HTTP_ADDRESS}`;
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
    get pids() {
      return { scheduler: scheduler.pid, agent: agent.pid };
    },
    agentMetricsAddress,
    agentLines: () => agent.lines(),
    deploy: async (target) => {
      const request = { target: join(ROOT, target), name: undefined, reuse: false, onStep: () => undefined };
      const { url: invokeUrl, deploymentId, stubId } = await deployApp(client, { ...request, env: place.env });
      return { url: invokeUrl, deploymentId, stubId };
    },
    killScheduler: () => scheduler.kill(),
    restartScheduler: async (wait) => {
      scheduler = startScheduler(place, { ...env, ...addresses }, schedulerRelease);
      if (wait) await scheduler.ready();
    },
    machineId,
    killAgent: () => agent.kill(),
    restartAgent: async (wait) => {
      agent = startAgent();
      // `stop` takes the containers along, so it must run before the workplace ends this agent.
      place.later(stop);
      if (wait) await agent.ready();
    },
    stop,
  };
}

/**
 * The daemon as a service runs it: with a Redis child of its own.
 * @param release - started from it, as its unit does, and not from the sources
 */
export function startScheduler(
  place: Workplace,
  env: Readonly<Record<string, string | undefined>>,
  release?: Release,
): BenchChild {
  const program = release?.scheduler ?? { file: 'cli/main.ts', args: ['scheduler'] };
  return place.start({ name: 'scheduler', ...program, env: schedulerEnv(env) });
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

/** The identity that an agent of this data directory has taken. @throws Error when there is none */
export async function machineIdIn(dataDir: string): Promise<string> {
  const value: unknown = JSON.parse(await readFile(join(dataDir, 'agent', 'machine.json'), 'utf8'));
  if (typeof value === 'object' && value !== null && 'machineId' in value && typeof value.machineId === 'string')
    return value.machineId;
  throw new Error('the agent keeps no machineId in machine.json');
}

/** A field of a daemon's message. @throws Error naming the missing field */
export function text(message: Message, name: string): string {
  const value = message[name];
  if (typeof value !== 'string' || value === '') throw new Error(`${message.kind} came without ${name}`);
  return value;
}
