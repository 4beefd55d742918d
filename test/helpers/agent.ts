/** A real agent against a fake scheduler and the real engine, with everything of its own: state, network, labels. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { randomBytes } from 'node:crypto';
import { ZipFile } from 'yazl';
import { buffer } from 'node:stream/consumers';
import { createLog } from '#shared/log.ts';
import type { AgentConfig } from '../../agent/config.ts';
import { loadAgentConfig } from '../../agent/config.ts';
import { DockerRuntime } from '../../agent/containers/docker.ts';
import type { Agent } from '../../agent/main.ts';
import { createAgent } from '../../agent/main.ts';
import { FakeScheduler } from './fake-scheduler.ts';

export interface AgentWorld {
  readonly scheduler: FakeScheduler;
  readonly dataDir: string;
  agent: Agent;
  /** Another agent on the same state, after the first has stopped. */
  restart(): Promise<void>;
  /** Stops the agent with its containers, and the scheduler. */
  end(): Promise<void>;
  env(extra?: Record<string, string>): Record<string, string>;
}

export function agentConfig(env: Record<string, string>): AgentConfig {
  return loadAgentConfig(env);
}

export async function agentWorld(labels: Readonly<Record<string, string>>): Promise<AgentWorld> {
  const scheduler = new FakeScheduler();
  await scheduler.start();
  const dataDir = await mkdtemp(join(tmpdir(), 'lsa-'));
  const network = `ls-test-${randomBytes(4).toString('hex')}`;
  const env = (extra: Record<string, string> = {}): Record<string, string> => ({
    LONGSHORE_DATA_DIR: dataDir,
    LONGSHORE_SCHEDULER_ADDRESS: scheduler.address,
    LONGSHORE_JOIN_TOKEN: scheduler.joinToken,
    LONGSHORE_AGENT_METRICS_ADDRESS: '127.0.0.1:0',
    LONGSHORE_BASE_IMAGE: 'longshore-python:{version}',
    LONGSHORE_AGENT_NETWORK: network,
    LONGSHORE_LOG_LEVEL: process.env['LS_TEST_LOG'] ?? 'silent',
    ...extra,
  });
  const make = (): Agent => {
    const config = loadAgentConfig(env());
    return createAgent(config, createLog({ name: 'agent', level: config.LONGSHORE_LOG_LEVEL }), {
      containerLabels: labels,
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
      // A test's own agents, started as programs, may have left it.
      await new DockerRuntime(undefined).removeNetwork(network);
      scheduler.down();
      await rm(dataDir, { recursive: true, force: true });
    },
  };
  return world;
}

/** A zip archive of text files. */
export async function zip(files: Readonly<Record<string, string>>): Promise<Buffer> {
  const archive = new ZipFile();
  for (const [name, text] of Object.entries(files)) archive.addBuffer(Buffer.from(text), name);
  archive.end();
  return buffer(archive.outputStream);
}
