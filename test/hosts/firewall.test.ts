// A host whose firewall is reloaded under its containers. Their own filter
// stands, and a check of the host names the rules that keep them in.
import { describe, expect } from 'vitest';
import { PAUSE_IMAGE } from '../../agent/containers/pause-image.ts';
import type { HostsPlatform, Member } from '../helpers/hosts.ts';
import { testOnHosts } from '../helpers/hosts.ts';
import { MAIN, jsonOf } from '../helpers/platform.ts';
import type { Deployment } from '../helpers/platform.ts';

/**
 * firewalld's client as it answers where firewalld runs: the bridge is in
 * the zone that a file names; without the file, firewalld does not run.
 */
const FIREWALL_CMD = `#!/bin/sh
zone=$(dirname "$0")/../zone
[ -f "$zone" ] || exit 252
case "$1" in --state) echo running ;; --get-zone-of-interface=br-*) cat "$zone" ;; *) exit 2 ;; esac
`;
const test = testOnHosts({ count: 1, host: () => ({ programs: { 'firewall-cmd': FIREWALL_CMD } }) });

interface Finding {
  readonly check: string;
  readonly level: string;
  readonly found: string;
}

/** Findings of `longshore agent check` about the way out. */
async function wayOut({ host }: Member): Promise<string[]> {
  // An image that is there: no registry is asked in vain.
  const settings = { ...host.agentEnv, LONGSHORE_BASE_IMAGE: PAUSE_IMAGE };
  const env = Object.entries(settings).map(([name, value]) => `${name}=${value}`);
  const command = `env ${env.join(' ')} '${process.execPath}' '${MAIN}' agent check --json || true`;
  const { findings } = JSON.parse(await host.run('sh', '-c', command)) as { findings: readonly Finding[] };
  const wanted = ['firewall', 'forwarding', 'container network'];
  return findings.filter(({ check }) => wanted.includes(check)).map(({ level, found }) => `${level}: ${found}`);
}

/** The answer of an address to a container of the deployment. */
async function reaches(fleet: HostsPlatform, deployment: Deployment, host: string): Promise<string> {
  const answer = await fleet.invoke(deployment, { host, port: 7 });
  expect(answer).toMatchObject({ status: 200 });
  return jsonOf<string>(answer);
}

describe('a host whose firewall', () => {
  test('lost the rules of Docker keeps containers from what they may not reach, and says that they get nowhere else', async ({
    fleet,
  }) => {
    const [member] = fleet.members as [Member];
    const { host } = member;
    const deployment = await fleet.deploy({ app: 'reach.py', handler: 'handler', name: 'reach', keepWarmSeconds: 600 });
    expect(await reaches(fleet, deployment, host.address)).toBe('No route to host');
    expect(await wayOut(member)).toEqual(['ok: lets containers out']);
    // A reload of nftables.service runs "flush ruleset", with this effect.
    for (const table of ['nat', 'filter']) await host.run('iptables', '-t', table, '-F');
    await host.run('iptables', '-P', 'FORWARD', 'ACCEPT');
    expect(await reaches(fleet, deployment, host.address)).toBe('No route to host');
    expect(await reaches(fleet, deployment, '169.254.169.254')).toBe('No route to host');
    expect(await wayOut(member)).toEqual([
      expect.stringMatching(/^warning: addresses of containers \(\S+\) are not translated/),
    ]);
  });

  test('does not forward, or has the bridge in another zone, says so', async ({ fleet }) => {
    const [member] = fleet.members as [Member];
    const { host } = member;
    await host.run('sh', '-c', 'echo 0 > /proc/sys/net/ipv4/ip_forward');
    expect(await wayOut(member)).toContainEqual(expect.stringMatching(/^warning: off: containers reach nothing/));
    await host.run('sh', '-c', 'echo 1 > /proc/sys/net/ipv4/ip_forward');
    await host.run('sh', '-c', `echo public > '${host.directory}/zone'`);
    expect(await wayOut(member)).toContainEqual(
      expect.stringMatching(/^warning: firewalld: the containers' bridge br-\S+ is in the zone public$/),
    );
    await host.run('sh', '-c', `echo docker > '${host.directory}/zone'`);
    expect((await wayOut(member)).join()).not.toContain('firewalld');
  });
});
