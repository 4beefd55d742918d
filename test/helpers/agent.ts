/** A real agent against a fake scheduler and the real engine, with everything of its own: state, network, labels. */
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { randomBytes } from 'node:crypto';
import { ZipFile } from 'yazl';
import { buffer } from 'node:stream/consumers';
import { createLog } from '#shared/log.ts';
import type { AgentConfig } from '../../agent/config.ts';
import { loadAgentConfig } from '../../agent/config.ts';
import { dockerRuntime } from '../../agent/containers/engine/docker.ts';
import type { Agent, AgentOptions } from '../../agent/main.ts';
import { createAgent } from '../../agent/main.ts';
import { FakeScheduler } from './fake-scheduler.ts';
import { TEST_REGISTRIES } from './registry.ts';

export interface AgentWorld {
  readonly scheduler: FakeScheduler;
  readonly dataDir: string;
  agent: Agent;
  /** Starts another agent on the same state, after the first has stopped. */
  restart(): Promise<void>;
  /** Stops the agent with its containers, and the scheduler. */
  end(): Promise<void>;
  env(extra?: Record<string, string>): Record<string, string>;
}

/** The engine that the tests run on. */
const ENGINE: Readonly<Record<string, string>> = process.env['DOCKER_HOST']
  ? { DOCKER_HOST: process.env['DOCKER_HOST'] }
  : {};

export function agentConfig(env: Record<string, string>): AgentConfig {
  return loadAgentConfig(env);
}

/** @param settings - of the agent, beside what it needs to run */
export async function agentWorld(
  labels: Readonly<Record<string, string>>,
  settings: Readonly<Record<string, string>> = {},
  {
    schedulerHost = '127.0.0.1',
    linkSocket = false,
    ...options
  }: Pick<AgentOptions, 'gpus'> & {
    readonly schedulerHost?: string;
    /** The agent dials the scheduler by a unix socket, in `link` of its data directory. */
    readonly linkSocket?: boolean;
  } = {},
): Promise<AgentWorld> {
  const scheduler = new FakeScheduler();
  scheduler.host = schedulerHost;
  const dataDir = await mkdtemp(join(tmpdir(), 'lsa-'));
  if (linkSocket) scheduler.socketPath = join(dataDir, 'link', 'agent.sock');
  await scheduler.start();
  const network = `ls-test-${randomBytes(4).toString('hex')}`;
  const env = (extra: Record<string, string> = {}): Record<string, string> => ({
    ...ENGINE,
    LONGSHORE_DATA_DIR: dataDir,
    LONGSHORE_SCHEDULER_ADDRESS: scheduler.address,
    LONGSHORE_JOIN_TOKEN: scheduler.joinToken,
    LONGSHORE_AGENT_METRICS_ADDRESS: '127.0.0.1:0',
    LONGSHORE_BASE_IMAGE: 'longshore-python:{version}',
    LONGSHORE_AGENT_NETWORK: network,
    LONGSHORE_AGENT_REGISTRIES: TEST_REGISTRIES,
    LONGSHORE_AGENT_HOLDERS: '0',
    LONGSHORE_LOG_LEVEL: process.env['LS_TEST_LOG'] ?? 'silent',
    ...(scheduler.socketPath === undefined ? {} : { LONGSHORE_LINK_SOCKET: scheduler.socketPath }),
    ...settings,
    ...extra,
  });
  const make = (): Agent => {
    const config = loadAgentConfig(env());
    return createAgent(config, createLog({ name: 'agent', level: config.LONGSHORE_LOG_LEVEL }), {
      containerLabels: labels,
      // Tests do not wait for registries.
      pulls: { baseMs: 20, capMs: 100, silenceMs: 5000 },
      ...options,
    });
  };
  const world: AgentWorld = {
    scheduler,
    dataDir,
    env,
    agent: make(),
    restart: async () => {
      world.agent = make();
      await world.agent.start();
      await world.agent.connected;
    },
    end: async () => {
      await world.agent.stop('stop');
      // Agents that the test started as programs may have left the network.
      await dockerRuntime(env()['DOCKER_HOST']).removeNetwork(network);
      scheduler.down();
      await rm(dataDir, { recursive: true, force: true });
    },
  };
  return world;
}

/** A zip archive of text files, and of others that are stored as they are. */
export async function zip(files: Readonly<Record<string, string | Buffer>>): Promise<Buffer> {
  const archive = new ZipFile();
  for (const [name, content] of Object.entries(files))
    archive.addBuffer(Buffer.from(content), name, { compress: typeof content === 'string' });
  archive.end();
  return buffer(archive.outputStream);
}

/** The failure of an agent's start. */
export const failureOf = async (
  env: Record<string, string>,
): Promise<{ code: string; message: string; exitCode: number }> => {
  const agent = createAgent(agentConfig(env), createLog({ name: 'agent', level: 'silent' }));
  try {
    await agent.start();
  } catch (error) {
    return error as { code: string; message: string; exitCode: number };
  }
  await agent.stop();
  throw new Error('it started');
};

/** The agent as a process of its own. */
export function program(
  env: Record<string, string>,
  nodeOptions: readonly string[] = [],
): {
  child: ChildProcess;
  ready: Promise<string>;
  exit: Promise<number | null>;
  stderr: () => string;
} {
  const main = fileURLToPath(new URL('../../agent/process.ts', import.meta.url));
  const source = `const { runAgent } = await import(${JSON.stringify(main)});
    try { await runAgent(process.env); process.exit(0); }
    catch (error) { process.stderr.write(String(error.message)); process.exit(error.exitCode ?? 1); }`;
  const child = spawn(process.execPath, [...nodeOptions, '--input-type=module', '-e', source], {
    env: { PATH: process.env['PATH'], HOME: process.env['HOME'], ...env },
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
  });
  let stderr = '';
  let stdout = '';
  child.stderr?.on('data', (data: Buffer) => (stderr += String(data)));
  child.stdout?.on('data', (data: Buffer) => (stdout += String(data)));
  return {
    child,
    stderr: () => stderr,
    ready: new Promise((resolve) => {
      child.on('message', (message: { kind: string; metricsAddress: string }) => {
        if (message.kind === 'ready') resolve(message.metricsAddress);
      });
    }),
    exit: new Promise((resolve) => {
      child.on('exit', (code) => {
        if (stdout !== '') throw new Error(`an agent wrote to stdout: ${stdout}`);
        resolve(code);
      });
    }),
  };
}
