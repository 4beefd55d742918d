// An agent whose only way to its scheduler is an HTTP proxy, as on hosts of
// a company. The agent joins, serves, and comes back when the proxy does.
// vitest reads a fixture's needs from the pattern of its first parameter, which may be empty and not left out.
/* oxlint-disable no-empty-pattern */
import { join } from 'node:path';
import { expect, test as base } from 'vitest';
import { ConnectProxy } from '../helpers/connect-proxy.ts';
import { Daemon, Platform, jsonOf } from '../helpers/platform.ts';
import { docker, waitFor } from '../helpers/services.ts';

/** A name that the proxy alone knows. */
const ADDRESS = 'scheduler.test:1995';

interface World {
  readonly platform: Platform;
  readonly proxy: ConnectProxy;
  readonly agent: Daemon;
}

const test = base.extend('world', async ({}, { onCleanup }): Promise<World> => {
  const platform = new Platform(await docker());
  const proxy = new ConnectProxy();
  proxy.credentials = 'agent:geheim';
  await Promise.all([platform.startScheduler(), proxy.up()]);
  proxy.places.set(ADDRESS, platform.agentAddress);
  const first = await platform.scheduler.request('ensureFirstWorkspace');
  platform.token = String(first['token']);
  platform.workspaceId = String(first['workspaceId']);
  const machine = await platform.gateway('/machines', { poolName: 'default' });
  const agent = new Daemon('agent', join(platform.directory, 'agent.log'), () => ({
    ...platform.env(),
    LONGSHORE_SCHEDULER_ADDRESS: ADDRESS,
    LONGSHORE_JOIN_TOKEN: machine['agentUpstreamToken'] ?? '',
    LONGSHORE_AGENT_METRICS_ADDRESS: '127.0.0.1:0',
    LONGSHORE_AGENT_NETWORK: platform.network,
    LONGSHORE_AGENT_HOLDERS: '0',
    HTTPS_PROXY: proxy.url,
    NO_PROXY: 'localhost,10.0.0.0/8,.example',
  }));
  onCleanup(async () => {
    await agent.stop({ kind: 'stop', containers: 'stop' });
    await platform.stop();
    await proxy.down();
  });
  await agent.start();
  return { platform, proxy, agent };
});

test('tasks run by way of the proxy, before it was away and after', async ({ world: { platform, proxy, agent } }) => {
  const deployment = await platform.deploy({
    app: 'counted.py',
    handler: 'handler',
    name: 'far',
    keepWarmSeconds: 600,
  });
  const answer = await platform.invoke(deployment, { key: 'a', seconds: 0 });
  expect(answer).toMatchObject({ status: 200 });
  const { container } = jsonOf<{ container: string }>(answer);
  expect(new Set(proxy.asked)).toEqual(new Set([ADDRESS]));
  await proxy.down();
  const worker = async (): Promise<string> =>
    (await platform.gateway<{ workers: { status: string }[] }>('/workers')).workers[0]?.status ?? '';
  await waitFor(async () => (await worker()) !== 'available', 'the machine is missed', 20_000);
  await proxy.up();
  await waitFor(async () => (await worker()) === 'available', 'the machine is back', 20_000);
  const again = await platform.invoke(deployment, { key: 'b', seconds: 0 });
  expect(again).toMatchObject({ status: 200 });
  expect(jsonOf<{ container: string }>(again).container).toBe(container);
  expect(agent.log()).not.toContain('geheim');
});
