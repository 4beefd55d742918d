// firewalld itself, with its nftables, on a simulated host whose engine knows it. The tests show the effects of a
// reload and of another zone on containers, and the findings of a check of the host.
// vitest reads a fixture's needs from the pattern of its first parameter, which may be empty and not left out.
/* oxlint-disable no-empty-pattern */
import { chmodSync } from 'node:fs';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { expect } from 'vitest';
import { PAUSE_IMAGE } from '../../agent/containers/pause-image.ts';
import type { SimulatedHost } from '../helpers/hosts.ts';
import { SimulatedNetwork } from '../helpers/hosts/network.ts';
import { MAIN } from '../helpers/platform.ts';
import { docker, tempDirectory, test as base, waitFor } from '../helpers/services.ts';

/** Tag that scripts/setup/firewalld-image.mjs sets. */
const IMAGE = /^longshore-test-firewalld:/;
const NETWORK = 'longshore';

interface World {
  readonly host: SimulatedHost;
  /** The containers' bridge. */
  readonly bridge: string;
  /** Runs firewalld's client there. */
  readonly firewall: (...args: readonly string[]) => Promise<string>;
  /** Findings of `longshore agent check` about the way out. */
  readonly wayOut: () => Promise<string[]>;
  /** Whether a container reaches an address outside of its host. */
  readonly getsOut: () => Promise<boolean>;
}

const test = base.extend('world', async ({}, { onCleanup }): Promise<World> => {
  const engine = await docker();
  const images = await engine.client.listImages();
  const image = images.flatMap(({ RepoTags: tags }) => tags ?? []).find((tag) => IMAGE.test(tag));
  if (image === undefined) throw new Error('the image with firewalld is missing: node scripts/setup.mjs --hosts');
  const bus = tempDirectory('bus');
  const server = createServer((socket) => socket.end());
  const undo: (() => unknown)[] = [() => bus.remove(), () => server.close()];
  onCleanup(async () => {
    for (const step of undo.toReversed()) await step();
  });
  const name = `longshore-firewalld-${process.pid}`;
  // The engine is named by its address, because an agent's own DOCKER_HOST names the engine of the simulated host.
  const address = process.env['DOCKER_HOST'] ?? 'unix:///var/run/docker.sock';
  const inside = (command: string): string => `#!/bin/sh\nexec docker -H ${address} exec ${name} ${command} "$@"\n`;
  const network = await SimulatedNetwork.up(1, PAUSE_IMAGE, () => ({
    engineEnv: { DBUS_SYSTEM_BUS_ADDRESS: `unix:path=${join(bus.path, 'system_bus_socket')}` },
    programs: { 'firewall-cmd': inside('firewall-cmd'), nft: inside('nsenter --net=/netns nft') },
  }));
  undo.push(
    () => network.down(),
    () => engine.cleanUp(),
  );
  const [host] = network.hosts as [SimulatedHost];
  // The bus has a user of its own.
  chmodSync(bus.path, 0o755);
  const command = 'dbus-daemon --system --nofork --nopidfile & exec nsenter --net=/netns firewalld --nofork --nopid';
  await engine.run({
    name,
    Image: image,
    Entrypoint: ['sh', '-c', command],
    Cmd: [],
    HostConfig: {
      CapAdd: ['NET_ADMIN', 'SYS_ADMIN', 'NET_RAW'],
      SecurityOpt: ['seccomp=unconfined'],
      Binds: [`/run/netns/${host.name}:/netns`, `${bus.path}:/run/dbus`],
    },
  });
  const firewall: World['firewall'] = (...args) => host.run('firewall-cmd', ...args);
  const runs = (): Promise<boolean> =>
    firewall('--state').then(
      (state) => state.trim() === 'running',
      () => false,
    );
  await waitFor(runs, 'firewalld runs', 30_000);
  // An engine looks for firewalld when it starts.
  await host.stopEngine();
  await host.startEngine();
  const made = await host.docker.createNetwork({
    Name: NETWORK,
    Driver: 'bridge',
    Options: { 'com.docker.network.bridge.enable_icc': 'false' },
  });
  const container = await host.docker.createContainer({
    Image: PAUSE_IMAGE,
    Entrypoint: ['sleep', '600'],
    HostConfig: { NetworkMode: NETWORK },
  });
  await container.start();
  const { gateway } = network;
  await new Promise<void>((resolve) => server.listen(0, gateway, resolve));
  const { port } = server.address() as AddressInfo;
  const connect = ['busybox', 'nc', '-w', '2', gateway, String(port)];
  return {
    host,
    bridge: `br-${made.id.slice(0, 12)}`,
    firewall,
    wayOut: async () => {
      // An image that is there: no registry is asked in vain.
      const settings = { ...host.agentEnv, LONGSHORE_BASE_IMAGE: PAUSE_IMAGE };
      const env = Object.entries(settings).map(([setting, value]) => `${setting}=${value}`);
      const check = `env ${env.join(' ')} '${process.execPath}' '${MAIN}' agent check --json || true`;
      const { findings } = JSON.parse(await host.run('sh', '-c', check)) as {
        readonly findings: readonly { readonly check: string; readonly level: string; readonly found: string }[];
      };
      return findings.filter((one) => one.check === 'firewall').map(({ level, found }) => `${level}: ${found}`);
    },
    getsOut: async () => {
      const exec = await container.exec({ Cmd: connect, AttachStdout: true, AttachStderr: true });
      const stream = await exec.start({});
      stream.resume();
      const code = await waitFor(
        async () => (await exec.inspect()).ExitCode ?? undefined,
        'the container tried',
        10_000,
      );
      return code === 0;
    },
  };
});

test('a reload of firewalld leaves containers their way out; another zone and flushed rules take it, and a check says so', async ({
  world,
}) => {
  const { host, bridge, firewall, wayOut, getsOut } = world;
  expect(await firewall(`--get-zone-of-interface=${bridge}`)).toBe('docker\n');
  expect(await wayOut()).toEqual(['ok: lets containers out']);
  expect(await getsOut()).toBe(true);
  await firewall('--reload');
  const isBack = async (): Promise<boolean> => (await wayOut()).join() === 'ok: lets containers out';
  await waitFor(isBack, 'Docker made its rules again', 20_000);
  expect(await getsOut()).toBe(true);
  await firewall('--zone=public', `--change-interface=${bridge}`);
  expect(await getsOut()).toBe(false);
  expect(await wayOut()).toEqual([`warning: firewalld: the containers' bridge ${bridge} is in the zone public`]);
  await firewall('--zone=docker', `--change-interface=${bridge}`);
  expect(await getsOut()).toBe(true);
  await host.run('nft', 'flush', 'ruleset');
  expect(await getsOut()).toBe(false);
  expect(await wayOut()).toContainEqual(
    expect.stringMatching(/^warning: addresses of containers \(\S+\) are not translated/),
  );
});
