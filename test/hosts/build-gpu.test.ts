// A build that needs a GPU: its steps have a device that no container has meanwhile, also after the agent was killed.
// Stand-ins are NVIDIA's tool, its hook and the kernel's log (test/helpers/gpus.ts).
// vitest reads a fixture's needs from the pattern of its first parameter, which may be empty and not left out.
/* oxlint-disable no-empty-pattern */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test as base } from 'vitest';
import { createLog } from '#shared/log.ts';
import { loadAgentConfig } from '../../agent/config.ts';
import { createAgent } from '../../agent/main.ts';
import type { Agent } from '../../agent/main.ts';
import { Builder } from '../helpers/builder.ts';
import { FakeNvidia, aGpu, gpuHost, gpuUuid } from '../helpers/gpus.ts';
import { SimulatedNetwork, whyNoHosts } from '../helpers/hosts/network.ts';
import { Platform, baseImageOf, jsonOf } from '../helpers/platform.ts';
import { docker, waitFor } from '../helpers/services.ts';

interface Story {
  readonly builder: Builder;
  readonly platform: Platform;
  readonly agent: () => Agent;
  /** Ends the agent without its goodbye, and starts another. */
  readonly replaceAgent: () => Promise<void>;
  readonly gpusIn: (state: string) => Promise<number>;
}

const test = base.extend('story', { scope: 'file' }, async ({}, { onCleanup }): Promise<Story> => {
  const engine = await docker();
  const network = await SimulatedNetwork.up(1, engine.baseImage, gpuHost);
  const platform = new Platform(engine, { LONGSHORE_RESTART_GRACE_SECONDS: '0' });
  let agent: Agent | undefined;
  onCleanup(async () => {
    try {
      await agent?.stop('stop');
      await platform.stop();
    } finally {
      await network.down();
    }
  });
  await platform.startScheduler();
  const first = await platform.scheduler.request('ensureFirstWorkspace');
  platform.token = String(first['token']);
  platform.workspaceId = String(first['workspaceId']);
  const [host] = network.hosts;
  if (host === undefined) throw new Error('there is no host');
  const directory = join(host.directory, 'gpu');
  mkdirSync(directory);
  const nvidia = new FakeNvidia(directory, { gpus: [aGpu(0)] });
  const made = await platform.gateway('/machines', { poolName: 'default' });
  const start = async (joinToken: string): Promise<void> => {
    const config = loadAgentConfig({
      ...host.agentEnv,
      LONGSHORE_SCHEDULER_ADDRESS: platform.agentAddress,
      ...(joinToken === '' ? {} : { LONGSHORE_JOIN_TOKEN: joinToken }),
      LONGSHORE_AGENT_METRICS_ADDRESS: '127.0.0.1:0',
      LONGSHORE_AGENT_HOLDERS: '0',
      LONGSHORE_BASE_IMAGE: baseImageOf(engine),
      LONGSHORE_NVIDIA_SMI: nvidia.tool,
    });
    agent = createAgent(config, createLog({ name: 'agent', level: 'silent' }), {
      gpus: { kernelLog: nvidia.kernelLog, probeEveryMs: 500 },
    });
    await agent.start();
  };
  await start(String(made['agentUpstreamToken']));
  return {
    builder: new Builder(platform),
    platform,
    agent: () => agent as Agent,
    replaceAgent: async () => {
      await agent?.stop('stop');
      await start('');
    },
    gpusIn: async (state) => {
      const page = (await platform.call('/metrics', { token: '' })).text;
      const lines = page.split('\n').filter((line) => line.startsWith('longshore_scheduler_pool_gpus{'));
      const of = lines.filter((line) => line.includes(`state="${state}"`));
      return of.reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' '))), 0);
    },
  };
});

const SEEN = 'echo "sees $NVIDIA_VISIBLE_DEVICES"';

test.skipIf(whyNoHosts !== undefined)(
  "its added commands see a device that is nobody else's, and give it back",
  { timeout: 170_000 },
  async ({ story }) => {
    const { builder, gpusIn } = story;
    await waitFor(async () => (await gpusIn('free')) === 1, 'the GPU is offered', 60_000);
    const definition = { gpu: 'H100', pythonPackages: [], commands: [SEEN, `${SEEN}; sleep 6`] };
    const building = builder.build(definition);
    await waitFor(async () => (await gpusIn('free')) === 0, 'no container can get the device', 60_000);
    const { last, text } = await building;
    expect(last.msg).toBe('');
    expect(text.match(new RegExp(`sees ${gpuUuid(0)}`, 'g'))).toHaveLength(2);
    await waitFor(async () => (await gpusIn('free')) === 1, 'the device is free again', 60_000);

    const changed = await builder.build({ ...definition, commands: [SEEN, `${SEEN}; true`] });
    expect(changed.last.success).toBe(true);
    expect(changed.text.match(/its layer is used again/g)).toHaveLength(1);
    const plain = await builder.build({ machineGpu: 'H100', commands: [SEEN] });
    expect(plain.text).not.toContain(gpuUuid(0));
    expect((await builder.build({ gpu: 'B200', commands: [SEEN] })).last.msg).toContain('no machine with GPU B200');
  },
);

test.skipIf(whyNoHosts !== undefined)(
  'an agent that ends during such a step gives the device to nobody before the step is gone',
  { timeout: 170_000 },
  async ({ story }) => {
    const { builder, gpusIn, replaceAgent, platform } = story;
    const building = builder.run({ gpu: 'H100', commands: ['echo at once; sleep 100'] });
    await waitFor(async () => (await gpusIn('free')) === 0, 'the step has the device', 60_000);
    await replaceAgent();
    const last = (await building).at(-1);
    expect(last).toMatchObject({ done: true, success: false });
    await waitFor(async () => (await gpusIn('free')) === 1, 'the device is free again', 60_000);
    const rows = jsonOf<{ data: { state: string }[] }>(await platform.call(`/api/v1/image/${platform.workspaceId}`));
    expect(rows.data.filter(({ state }) => state === 'BUILDING')).toEqual([]);
  },
);
