/**
 * Orders about one GPU, from the command line to the agent of a simulated host, and who may give them. Stand-ins are
 * NVIDIA's tool, the kernel's log, and systemd: the test runs the script of the unit that resets.
 */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, onTestFinished } from 'vitest';
import { createLog } from '#shared/log.ts';
import { loadAgentConfig } from '../../agent/config.ts';
import { createAgent } from '../../agent/main.ts';
import { FakeNvidia, aGpu, gpuHost, gpuUuid } from '../helpers/gpus.ts';
import { SimulatedNetwork, whyNoHosts } from '../helpers/hosts/network.ts';
import { MAIN, Platform, ROOT, baseImageOf, jsonOf } from '../helpers/platform.ts';
import { docker, runProgram, test, waitFor } from '../helpers/services.ts';

const [G0, G1] = [gpuUuid(0), gpuUuid(1)];

/** Does what systemd does with longshore-gpu-reset.service once its path unit sees a request. */
async function unitResets(folder: string, does: string): Promise<string> {
  await waitFor(() => existsSync(join(folder, 'request')), 'the agent asks for a reset', 20_000);
  const unit = readFileSync(join(ROOT, 'systemd/longshore-gpu-reset.service'), 'utf8');
  const script = (/^ExecStart=\/bin\/sh -c '(.*)'$/m.exec(unit)?.[1] ?? '')
    .replaceAll('$$', () => '$')
    .replace('sleep 3', ':');
  writeFileSync(join(folder, 'nvidia-smi'), `#!/bin/sh\necho "$@" >seen\n${does}\n`, { mode: 0o755 });
  execFileSync('/bin/sh', ['-c', script], { cwd: folder, env: { PATH: `${folder}:/usr/bin:/bin` } });
  return readFileSync(join(folder, 'seen'), 'utf8').trim();
}

describe.skipIf(whyNoHosts !== undefined)('orders about one GPU', () => {
  test('go from the command line to the agent; nobody else gives or sees them', async () => {
    const engine = await docker();
    const network = await SimulatedNetwork.up(1, engine.baseImage, gpuHost);
    onTestFinished(() => network.down());
    const platform = new Platform(engine);
    onTestFinished(() => platform.stop());
    await platform.startScheduler();
    const first = await platform.scheduler.request('ensureFirstWorkspace');
    platform.token = String(first['token']);
    const [host] = network.hosts;
    if (host === undefined) throw new Error('no host');
    const directory = join(host.directory, 'gpu');
    mkdirSync(directory);
    const nvidia = new FakeNvidia(directory, { gpus: [aGpu(0), aGpu(1)] });
    const made = await platform.gateway<{ machine: { id: string }; agentUpstreamToken: string }>('/machines', {
      poolName: 'default',
    });
    const { id } = made.machine;
    const config = loadAgentConfig({
      ...host.agentEnv,
      LONGSHORE_SCHEDULER_ADDRESS: platform.agentAddress,
      LONGSHORE_JOIN_TOKEN: made.agentUpstreamToken,
      LONGSHORE_AGENT_METRICS_ADDRESS: '127.0.0.1:0',
      LONGSHORE_AGENT_HOLDERS: '0',
      LONGSHORE_BASE_IMAGE: baseImageOf(engine),
      LONGSHORE_NVIDIA_SMI: nvidia.tool,
    });
    const agent = createAgent(config, createLog({ name: 'agent', level: 'silent' }), {
      gpus: { kernelLog: nvidia.kernelLog, probeEveryMs: 200 },
    });
    onTestFinished(() => agent.stop('stop'));
    await agent.start();

    const longshore = (...args: readonly string[]): Promise<string> =>
      runProgram(process.execPath, [MAIN, 'machine', 'gpu', ...args], {
        env: { ...platform.env(), LONGSHORE_URL: platform.url, LONGSHORE_TOKEN: platform.token },
      });
    const states = async (): Promise<Readonly<Record<string, string>>> => {
      const listed = JSON.parse(await longshore('list', id, '--json')) as { uuid: string; state: string }[];
      return Object.fromEntries(listed.map(({ uuid, state }) => [uuid, state]));
    };
    const are = (wanted: Readonly<Record<string, string>>): Promise<unknown> =>
      expect.poll(states, { timeout: 30_000 }).toEqual(wanted);
    await are({ [G0]: 'healthy', [G1]: 'healthy' });

    // The count that the pool expects reaches the agent, and what is missing comes back.
    const machine = async (): Promise<string> => (await platform.call('/api/v1/gateway/machines')).text;
    const expecting = (expectedGpus: number | null): Promise<unknown> =>
      platform.call('/api/v1/gateway/pools/default', { method: 'PATCH', body: { settings: { expectedGpus } } });
    await expecting(3);
    await expect.poll(machine, { timeout: 30_000 }).toContain('2 of 3 expected GPUs are here');
    await expecting(null);
    await expect.poll(machine, { timeout: 30_000 }).not.toContain('expected GPUs are here');

    expect(await longshore('exclude', id, G0)).toContain('given to nobody until it is returned');
    await are({ [G0]: 'excluded', [G1]: 'healthy' });
    expect(await longshore('list', id)).toContain('an operator keeps it out');
    expect(await longshore('return', id, G0)).toContain('is probed');
    await are({ [G0]: 'healthy', [G1]: 'healthy' });

    // The route itself: a command line takes too much of the ten seconds in which the unit must have the request.
    const shown = async (): Promise<string> => (await platform.call(`/api/v1/gateway/machines/${id}/gpus`)).text;
    // A reset takes as long as its unit does; the list shows it meanwhile.
    const folder = join(config.LONGSHORE_DATA_DIR, 'agent', 'gpu-reset');
    nvidia.xid(0, 48);
    await are({ [G0]: 'unhealthy', [G1]: 'healthy' });
    const reset = longshore('reset', id, G0);
    await expect.poll(shown, { timeout: 30_000, interval: 50 }).toContain('an operator resets it');
    expect(await unitResets(folder, 'exit 0')).toBe(`--gpu-reset -i ${G0}`);
    expect(await reset).toContain('was reset');
    await are({ [G0]: 'healthy', [G1]: 'healthy' });
    const failed = expect(longshore('reset', id, G1)).rejects.toThrow('In use by another client');
    await unitResets(folder, 'echo In use by another client; exit 19');
    await failed;
    await are({ [G0]: 'healthy', [G1]: 'healthy' });

    await expect(longshore('forget', id, G1)).rejects.toThrow('only a lost one');
    nvidia.is({ gpus: [aGpu(0)] });
    await are({ [G0]: 'healthy', [G1]: 'lost' });
    expect(await longshore('forget', id, G1)).toContain('is forgotten');
    await are({ [G0]: 'healthy' });
    await expect(longshore('exclude', id, G1)).rejects.toThrow('no GPU with that uuid');
    await expect(longshore('exclude', 'ffffffff', G0)).rejects.toThrow('there is no machine ffffffff');

    const path = `/api/v1/gateway/machines/${id}/gpus`;
    // Nobody else: no token, a revoked one, a workspace whose machine it is not, a machine of another's pool.
    const workspace = await platform.call('/api/v1/workspace', { body: { name: 'other' } });
    const other = jsonOf<{ token: string }>(workspace).token;
    const { token: revoked } = await platform.gateway<{ token: { tokenId: string; key: string } }>('/tokens', {});
    expect((await platform.call(path, { token: revoked.key })).status).toBe(200);
    await platform.gateway(`/tokens/${revoked.tokenId}/toggle`, {});
    const order = { uuid: G0, action: 'exclude' };
    const notFound = { ok: false, errMsg: 'machine not found' };
    for (const token of ['', `${platform.token}x`, revoked.key])
      for (const body of [undefined, order]) {
        const answer = await platform.call(path, { token, ...(body && { body }) });
        expect(answer.status, token).toBe(401);
        expect(answer.text).not.toContain('GPU-');
      }
    for (const body of [undefined, order])
      expect(jsonOf(await platform.call(path, { token: other, ...(body && { body }) }))).toMatchObject(notFound);
    const theirs = jsonOf<{ machine: { id: string } }>(
      await platform.call('/api/v1/gateway/machines', { token: other, body: { poolName: 'private' } }),
    );
    for (const body of [undefined, order]) {
      const their = `/api/v1/gateway/machines/${theirs.machine.id}/gpus`;
      expect(jsonOf(await platform.call(their, body && { body }))).toMatchObject(notFound);
    }
    expect(await states()).toEqual({ [G0]: 'healthy' });

    // The audit trail of the owner has each order, and what became of it.
    const history = `/api/v1/events/${String(first['workspaceId'])}/history?event_types=audit.machine.*`;
    const { events } = jsonOf<{ events: { type: string; data: { attrs: Record<string, string> } }[] }>(
      await platform.call(history),
    );
    const told = events.flatMap(({ type, data: { attrs } }) =>
      type.includes('.gpu_') ? [[type.slice('audit.machine.gpu_'.length), attrs['gpu_uuid'], attrs['outcome']]] : [],
    );
    expect(told).toEqual([
      ['excluded', G0, 'done'],
      ['returned', G0, 'done'],
      ['reset', G0, 'done'],
      ['reset', G1, expect.stringContaining('In use by another client')],
      ['forgotten', G1, expect.stringContaining('only a lost one')],
      ['forgotten', G1, 'done'],
    ]);
  }, 300_000);
});
