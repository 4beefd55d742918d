// The agent's link by way of an HTTP proxy: joining, its sessions, code archives, and the findings of `longshore agent
// check`. The scheduler has a name that the proxy alone knows.
// vitest reads a fixture's needs from the pattern of its first parameter, which may be empty and not left out.
/* oxlint-disable no-empty-pattern */
import { createServer } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';
import { describe, expect, vi } from 'vitest';
import { createLog } from '#shared/log.ts';
import { openChannel } from '../../agent/upstream/channel.ts';
import { routeTo } from '../../agent/proxy.ts';
import { dialThrough } from '../../agent/upstream/tunnel.ts';
import { checkMachine } from '../../agent/preflight/check.ts';
import type { Finding } from '../../agent/preflight/finding.ts';
import { createAgent } from '../../agent/main.ts';
import type { AgentWorld } from '../helpers/agent.ts';
import { agentConfig, agentWorld, zip } from '../helpers/agent.ts';
import { anAssignment } from '../helpers/agent-assignment.ts';
import { ConnectProxy } from '../helpers/connect-proxy.ts';
import { FakeScheduler, until } from '../helpers/fake-scheduler.ts';
import { test as base } from '../helpers/services.ts';

const ADDRESS = 'scheduler.test:1995';
const PASSWORD = 'geh:eim@';

const test = base
  .extend('proxy', async ({}, { onCleanup }): Promise<ConnectProxy> => {
    const proxy = new ConnectProxy();
    proxy.credentials = `agent:${PASSWORD}`;
    await proxy.up();
    onCleanup(() => proxy.down());
    return proxy;
  })
  .extend('world', async ({ docker }, { onCleanup }): Promise<AgentWorld> => {
    const world = await agentWorld(docker.labels, { LONGSHORE_SCHEDULER_ADDRESS: ADDRESS });
    onCleanup(() => world.end());
    return world;
  });
const of = (findings: readonly Finding[], check: string): Finding | undefined =>
  findings.find((one) => one.check === check);

test('the agent joins, fetches code, runs a task and comes back by the proxy, whose password is in no line of its log', async ({
  world,
  proxy,
}) => {
  const { scheduler } = world;
  proxy.places.set(ADDRESS, scheduler.address);
  const lines: string[] = [];
  const log = createLog({
    name: 'agent',
    level: 'trace',
    destination: { write: (line: string) => void lines.push(line) },
  });
  const agent = createAgent(agentConfig(world.env({ https_proxy: proxy.url })), log);
  try {
    await agent.start();
    await agent.connected;
    expect(new Set(proxy.asked)).toEqual(new Set([ADDRESS]));
    const code = scheduler.addArchive(await zip({ 'app.py': 'def handler():\n    return 41\n' }));
    const assignment = anAssignment({ code });
    scheduler.desire([assignment]);
    await scheduler.phase(assignment.containerId, 'running');
    scheduler.run('t-1', assignment.containerId, '{}');
    await scheduler.resultOf('t-1');
    const before = proxy.asked.length;
    await proxy.down();
    await until('tries without an answer', () => lines.join('').includes('ECONNREFUSED'));
    await proxy.up();
    await until('the next session', () => scheduler.hellos.length === 2);
    expect(scheduler.hellos[1]?.observed).toMatchObject([{ containerId: assignment.containerId, phase: 'running' }]);
    expect(proxy.asked.length).toBeGreaterThan(before);
  } finally {
    await agent.stop('stop');
  }
  // The address is known from the identity alone, so no setting names it.
  const odd = await checkMachine(world.env({ LONGSHORE_SCHEDULER_ADDRESS: '', HTTPS_PROXY: 'socks5://me:x@p:1' }));
  expect(of(odd, 'proxy')).toMatchObject({ level: 'failed', found: expect.stringContaining('socks5') as string });
  expect(lines.join('')).toMatch(/"proxy":"http:\/\/127\.0\.0\.1:\d+"/);
  for (const secret of [PASSWORD, encodeURIComponent(PASSWORD), Buffer.from(`agent:${PASSWORD}`).toString('base64')])
    expect(lines.join('')).not.toContain(secret);
});

test('a check names the proxy of the address, and what it refuses; loopback and NO_PROXY are dialled directly', async ({
  world,
  proxy,
}) => {
  const check = async (extra: Record<string, string> = {}): Promise<readonly Finding[]> =>
    checkMachine(world.env({ HTTPS_PROXY: proxy.url, ...extra }));
  const refused = of(await check(), 'proxy');
  expect(refused).toMatchObject({
    level: 'failed',
    found: expect.stringMatching(/refuses .*: 403 Forbidden$/) as string,
  });
  proxy.places.set(ADDRESS, world.scheduler.address);
  const good = await check();
  expect(good.filter(({ level }) => level === 'failed')).toEqual([]);
  expect(of(good, 'proxy')?.found).toMatch(/^scheduler\.test:1995 by http:\/\/127\.0\.0\.1:\d+ \(HTTPS_PROXY\)$/);
  expect(of(good, 'clock')?.found).toBe('as the scheduler');
  const other = await check({ HTTPS_PROXY: proxy.url.replace('agent', 'nobody') });
  expect(of(other, 'proxy')?.found).toMatch(/407 Proxy Authentication Required$/);
  const asked = proxy.asked.length;
  const here = await check({ LONGSHORE_SCHEDULER_ADDRESS: world.scheduler.address });
  expect(of(here, 'proxy')).toMatchObject({ level: 'ok', found: `none for ${world.scheduler.address}: loopback` });
  expect(of(await check({ NO_PROXY: '.test' }), 'proxy')).toMatchObject({
    level: 'ok',
    found: expect.stringContaining('NO_PROXY has .test') as string,
  });
  expect(proxy.asked.length).toBe(asked);
  await proxy.down();
  expect(of(await check(), 'proxy')).toMatchObject({
    level: 'failed',
    found: expect.stringContaining('ECONNREFUSED') as string,
  });
  expect(JSON.stringify([refused, good, other])).not.toContain(encodeURIComponent(PASSWORD));
});

test('a proxy that shows certificates of its own is told apart from a wrong scheduler', async ({ world, proxy }) => {
  const impostor = new FakeScheduler();
  await impostor.start();
  try {
    proxy.places.set(ADDRESS, impostor.address);
    const found = of(await checkMachine(world.env({ HTTPS_PROXY: proxy.url })), 'scheduler');
    expect(found).toMatchObject({ level: 'failed', remedy: expect.stringContaining('inspection') as string });
    expect(impostor.joins).toEqual([]);
  } finally {
    impostor.down();
  }
});

test('an IPv6 address is asked for in brackets', async ({ world, proxy }) => {
  proxy.places.set('[fd00::1]:1995', world.scheduler.address);
  const settings = { HTTPS_PROXY: proxy.url };
  const way = routeTo('[fd00::1]:1995', settings);
  const client = openChannel('[fd00::1]:1995', world.scheduler.caPem, way.proxy);
  try {
    const challenge = await new Promise((resolve, reject) =>
      client.challenge({ machineId: 'x' }, { deadline: Date.now() + 5000 }, (error, answer) =>
        error === null ? resolve(answer) : reject(error),
      ),
    );
    expect(challenge).toHaveProperty('challenge');
  } finally {
    client.close();
  }
});

describe('a peer that takes connections and stays silent', () => {
  /** The deadlines pass at once, the sockets are real. */
  const timers = (): void => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });

  test('ends a connection after its deadline: a proxy, and a scheduler that does not begin TLS', async ({
    world,
    proxy,
  }) => {
    proxy.isSilent = true;
    proxy.credentials = undefined;
    const settings = { HTTPS_PROXY: proxy.url };
    const { proxy: chosen } = routeTo(ADDRESS, settings);
    if (chosen === undefined) throw new Error('no proxy');
    timers();
    try {
      const dialling = dialThrough(chosen, ADDRESS);
      const failing = expect(dialling).rejects.toThrow(/does not answer for scheduler\.test:1995 within 10 s/);
      await vi.waitUntil(() => proxy.asked.length === 1, 20_000);
      await vi.advanceTimersByTimeAsync(10_000);
      await failing;
    } finally {
      vi.useRealTimers();
    }
    const sockets = new Set<Socket>();
    let ended = 0;
    const silent = createServer((socket) => {
      sockets.add(socket);
      socket
        .on('error', () => undefined)
        .on('data', () => undefined)
        .on('close', () => void (ended += 1));
    });
    await new Promise<void>((resolve) => silent.listen(0, '127.0.0.1', resolve));
    timers();
    const client = openChannel(`127.0.0.1:${(silent.address() as AddressInfo).port}`, world.scheduler.caPem);
    try {
      client.challenge({ machineId: 'x' }, () => undefined);
      await vi.waitUntil(() => sockets.size === 1, 20_000);
      await vi.advanceTimersByTimeAsync(10_000);
      await vi.waitUntil(() => ended === 1, 20_000);
    } finally {
      vi.useRealTimers();
      client.close();
      for (const socket of sockets) socket.destroy();
      silent.close();
    }
  });
});
