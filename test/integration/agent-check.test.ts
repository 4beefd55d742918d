// `longshore agent check` and the condition Preflight, on a real engine and
// a real link. A proxy takes missing features out of the engine's answer.
import { randomBytes } from 'node:crypto';
import { createServer, request } from 'node:http';
import type { Server } from 'node:http';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'vitest';
import { dockerRuntime } from '../../agent/containers/engine/docker.ts';
import { checkMachine } from '../../agent/preflight/check.ts';
import type { Finding } from '../../agent/preflight/finding.ts';
import { ok } from '../../agent/preflight/finding.ts';
import { rulesByContainer } from '../../agent/preflight/firewall-rules.ts';
import { firewallFindings } from '../../agent/preflight/firewall.ts';
import type { AgentWorld } from '../helpers/agent.ts';
import { agentConfig, agentWorld } from '../helpers/agent.ts';
import { createLog } from '#shared/log.ts';
import { createAgent } from '../../agent/main.ts';
import { FakeScheduler, until } from '../helpers/fake-scheduler.ts';
import { test as base, waitFor } from '../helpers/services.ts';

const test = base.extend('world', async ({ docker }, { onCleanup }): Promise<AgentWorld> => {
  const world = await agentWorld(docker.labels);
  onCleanup(() => world.end());
  return world;
});
const of = (findings: readonly Finding[], check: string): Finding | undefined =>
  findings.find((one) => one.check === check);
const failing = (findings: readonly Finding[]): string[] =>
  findings.filter(({ level }) => level === 'failed').map(({ check }) => check);

test('a machine that can take work passes, before it joins and while its agent runs, which is not disturbed', async ({
  world,
}) => {
  const before = await checkMachine(world.env());
  expect(failing(before)).toEqual([]);
  expect(of(before, 'joined')?.found).toMatch(/there is a join token/);
  expect(of(before, 'clock')?.found).toBe('as the scheduler');
  expect(world.scheduler.joins).toEqual([]);
  await world.agent.start();
  await world.agent.connected;
  const { metricsAddress } = world.agent;
  const during = await checkMachine(world.env({ LONGSHORE_AGENT_METRICS_ADDRESS: metricsAddress }));
  expect(failing(during)).toEqual([]);
  expect(of(during, 'joined')?.found).toContain(world.scheduler.machineId);
  expect(of(during, 'state')?.found).toMatch(/an agent runs on it/);
  expect(world.scheduler.hellos).toHaveLength(1);
});

test('a running agent repeats the checks of engine, disks, firewall and base image, and its page has each', async ({
  world,
}) => {
  await world.agent.start();
  const page = await waitFor(async () => {
    const text = await (await fetch(`http://${world.agent.metricsAddress}/metrics`)).text();
    return text.includes('host_warning{') && text;
  }, 'the first checks of the host');
  const warns = (check: string): string | undefined =>
    new RegExp(`host_warning\\{[^}]*check="${check}"[^}]*\\} (\\d)`).exec(page)?.[1];
  for (const check of ['engine', 'disk', 'disk of images', 'disk of volumes', 'firewall', 'base image', 'gpu'])
    expect(warns(check), check).toBe('0');
});

test('rules of the host are read by a container, where the agent may not', async ({ docker }) => {
  const runtime = dockerRuntime(process.env['DOCKER_HOST']);
  const name = `ls-check-${randomBytes(4).toString('hex')}`;
  const network = await runtime.ensureNetwork(name);
  try {
    const rules = await rulesByContainer(runtime, docker.labels);
    const facts = { network, forwards: true, hasIpv4Route: true, zone: undefined, ...rules };
    expect(firewallFindings(facts)).toEqual([ok('firewall', 'lets containers out')]);
    expect(rules.chains).toMatch(/hook forward/);
    if (rules.translation !== undefined)
      expect(rules.translation).toContain(`-s ${network.subnets.find((range) => range.includes('.'))} `);
  } finally {
    await runtime.removeNetwork(name);
  }
});

test('each thing that is wrong is found, with what to do about it', async ({ world }) => {
  const { scheduler } = world;
  const taken = createServer();
  await new Promise<void>((resolve) => taken.listen(0, '127.0.0.1', resolve));
  const impostor = new FakeScheduler();
  await impostor.start();
  try {
    const address = taken.address();
    const port = typeof address === 'object' ? address?.port : 0;
    const findings = await checkMachine(
      world.env({
        DOCKER_HOST: 'unix:///nowhere/docker.sock',
        LONGSHORE_AGENT_METRICS_ADDRESS: `127.0.0.1:${port}`,
        LONGSHORE_SCHEDULER_ADDRESS: impostor.address,
      }),
    );
    expect(failing(findings)).toEqual(['engine', 'metrics port', 'scheduler']);
    expect(of(findings, 'engine')?.remedy).toMatch(/install and start Docker/);
    expect(of(findings, 'metrics port')?.remedy).toMatch(/LONGSHORE_AGENT_METRICS_ADDRESS/);
    expect(of(findings, 'scheduler')?.found).toMatch(/another fingerprint/);
    expect(impostor.asked).toEqual([]);
    const plain = await checkMachine(world.env({ LONGSHORE_SCHEDULER_ADDRESS: `127.0.0.1:${port}` }));
    expect(of(plain, 'scheduler')?.found).toMatch(/speaks no TLS, so it is not the scheduler's port for agents/);
    expect(of(plain, 'scheduler')?.found).not.toMatch(/openssl/i);
  } finally {
    taken.close();
    impostor.down();
  }
  scheduler.clockAheadMs = 60_000;
  const skewed = await checkMachine(world.env({ LONGSHORE_JOIN_TOKEN: scheduler.joinToken }));
  expect(of(skewed, 'clock')).toMatchObject({
    level: 'failed',
    found: expect.stringMatching(/^(59|60|61) s/) as string,
  });
  scheduler.clockAheadMs = 0;
  expect(failing(await checkMachine(world.env({ LONGSHORE_JOIN_TOKEN: 'none' })))).toEqual(['joined']);
  expect(failing(await checkMachine(world.env({ LONGSHORE_AGENT_CPU: 'lots' })))).toEqual(['settings']);
  await mkdir(join(world.dataDir, 'open', 'agent'), { recursive: true, mode: 0o755 });
  expect(failing(await checkMachine(world.env({ LONGSHORE_DATA_DIR: join(world.dataDir, 'open') })))).toEqual([
    'state',
  ]);
  await writeFile(join(world.dataDir, 'file'), '');
  const away = await checkMachine(world.env({ LONGSHORE_BASE_IMAGE: '127.0.0.1:9/nobody-has:{version}' }));
  expect(of(away, 'base image')).toMatchObject({
    level: 'warning',
    found: expect.stringContaining('127.0.0.1:9') as string,
    remedy: expect.stringContaining('LONGSHORE_BASE_IMAGE') as string,
  });
  const nowhere = await checkMachine(world.env({ LONGSHORE_DATA_DIR: join(world.dataDir, 'file', 'below') }));
  expect(of(nowhere, 'state')?.level).toBe('failed');
});

test('an engine without a limit that containers need: the agent starts, says Preflight, and why in its log', async ({
  world,
}) => {
  const socketPath = join(world.dataDir, 'engine.sock');
  const engine = await engineWithout('MemoryLimit', socketPath);
  const lines: string[] = [];
  const agent = createAgent(
    agentConfig(world.env({ DOCKER_HOST: `unix://${socketPath}` })),
    createLog({ name: 'agent', level: 'error', destination: { write: (line: string) => void lines.push(line) } }),
  );
  try {
    await agent.start();
    await agent.connected;
    await until('the first word', () => world.scheduler.hellos.length > 0);
    expect(world.scheduler.hellos[0]?.conditions?.names).toEqual(['Preflight']);
    expect(lines.join('')).toMatch(/no limits of memory.*|cgroup_enable=memory/);
  } finally {
    await agent.stop('stop');
    engine.closeAllConnections();
    engine.close();
  }
});

/** A server in front of the real engine that hides one of its abilities. */
async function engineWithout(fact: string, socketPath: string): Promise<Server> {
  const host = process.env['DOCKER_HOST'] ?? 'unix:///var/run/docker.sock';
  const server = createServer((incoming, outgoing) => {
    const { method, url: path, headers } = incoming;
    const target = request({ socketPath: host.replace('unix://', ''), method, path, headers }, (answer) => {
      if (!/^(\/v[0-9.]+)?\/info$/.test(path ?? '')) {
        outgoing.writeHead(answer.statusCode ?? 500, answer.headers);
        outgoing.flushHeaders();
        answer.pipe(outgoing);
        return;
      }
      const parts: Buffer[] = [];
      answer.on('data', (part: Buffer) => parts.push(part));
      answer.on('end', () => {
        const info = JSON.parse(Buffer.concat(parts).toString()) as Record<string, unknown>;
        outgoing.writeHead(200, { 'content-type': 'application/json' });
        outgoing.end(JSON.stringify({ ...info, [fact]: false }));
      });
    });
    target.on('error', () => outgoing.destroy());
    outgoing.on('close', () => target.destroy());
    incoming.pipe(target);
  });
  await new Promise<void>((resolve) => server.listen(socketPath, resolve));
  return server;
}
