/**
 * GPUs from the app file to the handler. The CLI deploys a Python file's GPU request, and a real scheduler places it.
 * Agents on two simulated hosts lease the devices and pass them through their engines. Stand-ins are NVIDIA's tool, its
 * hook and the kernel's log (test/helpers/gpus.ts).
 */
// vitest reads a fixture's needs from the pattern of its first parameter, which may be empty and not left out.
/* oxlint-disable no-empty-pattern */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect } from 'vitest';
import { createLog } from '#shared/log.ts';
import { loadAgentConfig } from '../../agent/config.ts';
import { createAgent } from '../../agent/main.ts';
import type { Agent } from '../../agent/main.ts';
import { FakeNvidia, aGpu, gpuHost, gpuUuid } from '../helpers/gpus.ts';
import { SimulatedNetwork, whyNoHosts } from '../helpers/hosts/network.ts';
import { MAIN, Platform, baseImageOf, jsonOf } from '../helpers/platform.ts';
import { docker, runProgram, test as base, waitFor } from '../helpers/services.ts';

const APP = `
import os
from longshore import QueueDepthAutoscaler, endpoint

def seen():
    return sorted(os.environ["NVIDIA_VISIBLE_DEVICES"].split(","))

@endpoint(name="pair", cpu="100m", gpu=["H200", "H100"], gpu_count=2, keep_warm_seconds=600)
def pair():
    return seen()

@endpoint(name="one", cpu="100m", gpu="h100", keep_warm_seconds=600, autoscaler=QueueDepthAutoscaler(min_containers=1))
def one():
    return seen()

@endpoint(name="slice", cpu="100m", gpu="B200")
def other():
    return seen()
`;

interface Story {
  readonly platform: Platform;
  readonly drivers: readonly FakeNvidia[];
  readonly longshore: (...args: readonly string[]) => Promise<string>;
  readonly gpusIn: (state: string) => Promise<number>;
}

/** The first host has one H100 and an L4, the second three H100. */
const GPUS = [
  [aGpu(0), aGpu(1, { name: 'NVIDIA L4', 'memory.total': 23_034 })],
  [aGpu(2), aGpu(3), aGpu(4)],
];
const SECOND = [gpuUuid(2), gpuUuid(3), gpuUuid(4)];

const test = base.extend('story', { scope: 'file' }, async ({}, { onCleanup }): Promise<Story> => {
  const engine = await docker();
  const network = await SimulatedNetwork.up(2, engine.baseImage, gpuHost);
  const platform = new Platform(engine, { LONGSHORE_RESTART_GRACE_SECONDS: '0' });
  const agents: Agent[] = [];
  onCleanup(async () => {
    try {
      await Promise.all(agents.map((agent) => agent.stop('stop')));
      await platform.stop();
    } finally {
      await network.down();
    }
  });
  await platform.startScheduler();
  const first = await platform.scheduler.request('ensureFirstWorkspace');
  platform.token = String(first['token']);
  platform.workspaceId = String(first['workspaceId']);
  const drivers = await Promise.all(
    network.hosts.map(async (host, at) => {
      const directory = join(host.directory, 'gpu');
      mkdirSync(directory);
      const nvidia = new FakeNvidia(directory, { gpus: GPUS[at] ?? [] });
      const made = await platform.gateway('/machines', { poolName: 'default' });
      const config = loadAgentConfig({
        ...host.agentEnv,
        LONGSHORE_SCHEDULER_ADDRESS: platform.agentAddress,
        LONGSHORE_JOIN_TOKEN: String(made['agentUpstreamToken']),
        LONGSHORE_AGENT_METRICS_ADDRESS: '127.0.0.1:0',
        LONGSHORE_AGENT_HOLDERS: '0',
        LONGSHORE_BASE_IMAGE: baseImageOf(engine),
        LONGSHORE_NVIDIA_SMI: nvidia.tool,
      });
      const agent = createAgent(config, createLog({ name: 'agent', level: 'silent' }), {
        gpus: { kernelLog: nvidia.kernelLog, probeEveryMs: 500 },
      });
      agents.push(agent);
      await agent.start();
      return nvidia;
    }),
  );
  const env = (): NodeJS.ProcessEnv => ({
    ...platform.env(),
    LONGSHORE_URL: platform.url,
    LONGSHORE_TOKEN: platform.token,
  });
  return {
    platform,
    drivers,
    longshore: (...args) => runProgram(process.execPath, [MAIN, ...args], { env: env(), cwd: platform.directory }),
    gpusIn: async (state) => {
      const page = (await platform.call('/metrics', { token: '' })).text;
      const lines = page.split('\n').filter((line) => line.startsWith('longshore_scheduler_pool_gpus{'));
      const of = lines.filter((line) => line.includes(`state="${state}"`));
      return of.reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' '))), 0);
    },
  };
});

interface Listed {
  readonly containerId: string;
  readonly usage: { readonly gpu: { readonly devices: number; readonly utilizationPct: number | null } | null } | null;
}

/** Containers that a token's workspace is shown. */
async function listed(platform: Platform, token = platform.token): Promise<readonly Listed[]> {
  const answer = await platform.call('/api/v1/gateway/containers', { token });
  return jsonOf<{ readonly containers: readonly Listed[] }>(answer).containers;
}

describe.skipIf(whyNoHosts !== undefined)('GPUs, from the app file to the handler', () => {
  test('containers get exactly what was asked for, all from one machine, nobody twice; what fails is replaced elsewhere', async ({
    story,
  }) => {
    const { platform, drivers, longshore, gpusIn } = story;
    await waitFor(async () => (await gpusIn('free')) === 5, 'both machines offer their GPUs', 20_000);
    const machines = await longshore('machine', 'list');
    expect(machines).toMatch(/2 H100,L4/);
    expect(machines).toMatch(/3 H100/);

    const app = join(platform.directory, 'app', 'app.py');
    mkdirSync(join(app, '..'));
    writeFileSync(app, APP);
    const deployed = async (name: string): Promise<string> => {
      const said = await longshore('deploy', `${app}:${name}`, '--json');
      // Progress lines come first, on the other stream.
      return (JSON.parse(said.slice(said.indexOf('{'))) as { url: string }).url;
    };
    const call = async (url: string): Promise<readonly string[]> => {
      const answer = await platform.call(url, { method: 'POST', body: {} });
      expect(answer.status, answer.text).toBe(200);
      return jsonOf<readonly string[]>(answer);
    };

    // The second host alone has two of one model.
    const pairUrl = await deployed('pair');
    const pair = await call(pairUrl);
    expect(pair).toHaveLength(2);
    expect(SECOND).toEqual(expect.arrayContaining([...pair]));
    const oneUrl = await deployed('one');
    const [first = ''] = await call(oneUrl);
    expect([gpuUuid(0), ...SECOND].filter((uuid) => !pair.includes(uuid))).toContain(first);
    expect(await gpusIn('allocated')).toBe(3);

    // No machine has such a GPU, so the call is refused at once.
    const refused = await platform.call(await deployed('other'), { method: 'POST', body: {} });
    expect(refused.status).toBe(503);
    expect(refused.text).toContain('GPU B200');

    // Each workspace is shown how its own containers use their GPUs, and nothing of others.
    const busy = { 'utilization.gpu': 80, 'memory.used': 40_000, 'power.draw': 350.5 };
    drivers[1]?.is({ gpus: drivers[1].now.gpus.map((gpu) => (pair.includes(gpu.uuid) ? { ...gpu, ...busy } : gpu)) });
    const pairUse = async () => (await listed(platform)).find(({ usage }) => usage?.gpu?.devices === 2);
    const used = await waitFor(
      async () => {
        const found = await pairUse();
        return found?.usage?.gpu?.utilizationPct === 80 ? found : undefined;
      },
      'the samples tell the use of both devices',
      20_000,
    );
    const MIB = 1024 * 1024;
    expect(used.usage?.gpu).toEqual({
      devices: 2,
      utilizationPct: 80,
      memoryUsedBytes: String(80_000 * MIB),
      memoryTotalBytes: String(2 * 81_559 * MIB),
      powerWatts: 701,
    });
    expect(await longshore('container', 'list')).toMatch(/80 %, 78\.1 of 159\.3 GiB, 701 W/);
    expect(await longshore('explain', used.containerId)).toContain(
      'its 2 GPUs: 80 % busy, 78.1 of 159.3 GiB of memory used, 701 W',
    );
    const other = jsonOf<{ readonly id: string; readonly token: string }>(
      await platform.call('/api/v1/workspace', { method: 'POST', body: { name: 'other' } }),
    );
    expect(await listed(platform, other.token)).toEqual([]);
    for (const [workspace, status] of [
      [other.id, 404],
      [platform.workspaceId, 401],
    ] as const) {
      const path = `/api/v1/explain/${workspace}/${used.containerId}`;
      const answer = await platform.call(path, { token: other.token });
      expect(answer.status, answer.text).toBe(status);
    }

    // The device falls off the bus: another container starts, on another device, without a call.
    const at = drivers.findIndex((driver) => driver.now.gpus.some((gpu) => gpu.uuid === first));
    drivers[at]?.xid(
      drivers[at].now.gpus.findIndex((gpu) => gpu.uuid === first),
      79,
      'GPU has fallen off the bus.',
    );
    await waitFor(async () => (await gpusIn('unhealthy')) === 1, 'the device counts as unhealthy', 30_000);
    await waitFor(async () => (await gpusIn('allocated')) === 3, 'another device takes its place', 30_000);
    const [second = ''] = await call(oneUrl);
    expect(second).not.toBe(first);
    expect([...pair, first]).not.toContain(second);
    expect(await longshore('worker', 'list')).toContain('GpuDegraded');
    expect(await longshore('machine', 'list')).toContain(`GpuDegraded: ${first} is unhealthy: Xid 79`);

    // A scheduler that starts anew knows from rows and reports whose each device is.
    await platform.scheduler.kill();
    await platform.startScheduler();
    await waitFor(
      async () => (await gpusIn('allocated')) === 3 && (await gpusIn('unhealthy')) === 1,
      'the books are there again',
      30_000,
    );
    expect(await call(pairUrl)).toEqual(pair);
    expect(await call(oneUrl)).toEqual([second]);
  });
});
