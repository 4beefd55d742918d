// An installation on a network that has IPv6 alone: the agent lives in
// a namespace without any IPv4 address, the scheduler at its other end.
// vitest reads a fixture's needs from the pattern of its first parameter, which may be empty and not left out.
/* oxlint-disable no-empty-pattern */
import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { expect, test as base } from 'vitest';
import { Daemon, MAIN, Platform, jsonOf } from '../helpers/platform.ts';
import { docker, runProgram } from '../helpers/services.ts';

const ID = randomBytes(2).toString('hex');
const [NAMESPACE, OUTER, INNER] = [`ls6-${ID}`, `ls6o${ID}`, `ls6i${ID}`];
const PREFIX = `fd00:${ID}`;
const ip = (...args: readonly string[]): Promise<string> => runProgram('ip', [...args]);

interface World {
  readonly platform: Platform;
  readonly agent: Daemon;
  /** Starts a command line in the namespace. */
  readonly enter: readonly string[];
  readonly agentEnv: () => NodeJS.ProcessEnv;
}

const test = base.extend('world', async ({}, { onCleanup }): Promise<World> => {
  const platform = new Platform(await docker(), { LONGSHORE_HTTP_PLAINTEXT: 'allow' });
  let joinToken = '';
  const agentEnv = (): NodeJS.ProcessEnv => ({
    ...platform.env(),
    LONGSHORE_SCHEDULER_ADDRESS: platform.agentAddress,
    LONGSHORE_JOIN_TOKEN: joinToken,
    LONGSHORE_AGENT_METRICS_ADDRESS: '[::1]:0',
    // The engine is in another network, where nothing of the agent's loopback can be reached.
    LONGSHORE_AGENT_PULL_ADDRESS: 'off',
    LONGSHORE_AGENT_NETWORK: platform.network,
    LONGSHORE_AGENT_HOLDERS: '0',
  });
  const enter = ['nsenter', `--net=/run/netns/${NAMESPACE}`, process.execPath, MAIN, 'agent'];
  const agent = new Daemon('agent', join(platform.directory, 'agent.log'), agentEnv, enter);
  onCleanup(async () => {
    await agent.stop({ kind: 'stop', containers: 'stop' });
    await platform.stop();
    await ip('link', 'del', OUTER).catch(() => undefined);
    await ip('netns', 'del', NAMESPACE).catch(() => undefined);
  });
  await ip('netns', 'add', NAMESPACE);
  await ip('link', 'add', OUTER, 'type', 'veth', 'peer', 'name', INNER, 'netns', NAMESPACE);
  // `nodad` makes the addresses usable at once; duplicates are impossible here.
  await ip('addr', 'add', `${PREFIX}::1/64`, 'dev', OUTER, 'nodad');
  await ip('-n', NAMESPACE, 'addr', 'add', `${PREFIX}::2/64`, 'dev', INNER, 'nodad');
  await ip('link', 'set', OUTER, 'up');
  await ip('-n', NAMESPACE, 'link', 'set', INNER, 'up');
  await ip('-n', NAMESPACE, 'link', 'set', 'lo', 'up');
  await ip('-n', NAMESPACE, 'addr', 'del', '127.0.0.1/8', 'dev', 'lo');
  platform.httpAddress = `[${PREFIX}::1]:0`;
  platform.agentAddress = `[${PREFIX}::1]:0`;
  await platform.startScheduler();
  const first = await platform.scheduler.request('ensureFirstWorkspace');
  platform.token = String(first['token']);
  platform.workspaceId = String(first['workspaceId']);
  const made = await platform.gateway('/machines', { poolName: 'default' });
  expect(made['agentUpstreamUrl']).toBe(`grpcs://${platform.agentAddress}`);
  joinToken = made['agentUpstreamToken'] ?? '';
  await agent.start();
  return { platform, agent, enter, agentEnv };
});

test('machines join and serve where no address is IPv4, and every URL has its brackets', async ({ world }) => {
  const { platform, enter, agentEnv } = world;
  expect(platform.url).toMatch(new RegExp(`^http://\\[${PREFIX}::1\\]:\\d+$`));
  const deployment = await platform.deploy({ app: 'counted.py', handler: 'handler', name: 'six' });
  expect(deployment.url).toMatch(new RegExp(`^http://\\[${PREFIX}::1\\]:\\d+/endpoint/six/v1$`));
  const answer = await platform.invoke(deployment, { key: 'a', seconds: 0 });
  expect(answer).toMatchObject({ status: 200 });
  expect(jsonOf<{ runs: number }>(answer).runs).toBe(1);
  const checked = await runProgram(enter[0] ?? '', [...enter.slice(1), 'check', '--json'], { env: agentEnv() });
  const { findings } = JSON.parse(checked) as {
    readonly findings: readonly { readonly check: string; readonly level: string; readonly found: string }[];
  };
  expect(findings.filter(({ level }) => level === 'failed')).toEqual([]);
  expect(findings.find(({ check }) => check === 'scheduler')?.found).toContain(platform.agentAddress);
});
