/**
 * Several machines on one: each a network namespace with its own address, loopback and Docker Engine, on a bridge of
 * their own. Needs root, iproute2, iptables and dockerd. All names belong to this set alone, so that it stands beside
 * other engines and other sets. The set goes away with the process that made it, however that ends (keeper.ts).
 */
import { spawn } from 'node:child_process';
import { randomBytes, randomInt } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, chmodSync } from 'node:fs';
import { networkInterfaces } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { findProgram, missingService, runProgram } from '../programs.ts';
import { SimulatedHost, ip } from './host.ts';
import type { HostOptions } from './host.ts';
import { filterRules } from './keeper.ts';
import type { HostsNames } from './keeper.ts';

const PROGRAMS = ['ip', 'nsenter', 'unshare', 'iptables', 'dockerd'];
const DOWN_MS = 60_000;

/** Reason why this process cannot make hosts; undefined: it can. */
export const whyNoHosts: string | undefined =
  process.getuid?.() === 0 ? undefined : 'simulated hosts need root, for network namespaces';

export class SimulatedNetwork {
  readonly hosts: readonly SimulatedHost[];
  readonly directory: string;
  /** Address at which the hosts reach the process that made them. */
  readonly gateway: string;
  readonly #down: () => Promise<void>;

  private constructor(directory: string, gateway: string, hosts: readonly SimulatedHost[], down: () => Promise<void>) {
    this.directory = directory;
    this.gateway = gateway;
    this.hosts = hosts;
    this.#down = down;
  }

  /**
   * @param count - of hosts, each with an engine that answers
   * @param options - of each host, by its place
   * @param image - taken from the engine of this machine to each of theirs; undefined: none
   * @param meanwhile - what else is made in its directory
   * @param outward - the hosts reach what this machine reaches
   */
  static async up(
    count: number,
    image: string | undefined,
    options: (host: number) => HostOptions = () => ({}),
    meanwhile: (directory: string) => Promise<void> = () => Promise.resolve(),
    outward = false,
  ): Promise<SimulatedNetwork> {
    for (const program of PROGRAMS) if (findProgram(program) === undefined) throw missingService(program);
    const id = randomBytes(3).toString('hex');
    // The directory is not below TMPDIR: paths of sockets must be short, and nothing else may remove the mounts here.
    const directory = mkdtempSync('/tmp/lsh-');
    chmodSync(directory, 0o755);
    const net = freeNet();
    const names: HostsNames = {
      ...{ directory, bridge: `lsbr${id}`, prefix: `lsh${id}-` },
      ...(outward ? { outward: `${net}.0/24` } : {}),
    };
    const down = await aKeeper(names);
    try {
      const gateway = `${net}.1`;
      await ip('link', 'add', names.bridge, 'type', 'bridge');
      await ip('addr', 'add', `${gateway}/24`, 'dev', names.bridge);
      await ip('link', 'set', names.bridge, 'up');
      for (const rule of filterRules(names)) await runProgram('iptables', ['-w', '-I', ...rule]);
      // An engine in this namespace has set IP forwarding already; without one, this call does.
      if (outward) await runProgram('sysctl', ['-qw', 'net.ipv4.ip_forward=1']);
      const hosts = Array.from({ length: count }, (_value, at) => {
        const cable = `lsv${id}${at + 1}`;
        const own = {
          name: `${names.prefix}${at + 1}`,
          directory: join(directory, String(at + 1)),
          address: `${net}.${at + 11}`,
          gateway,
          bridge: names.bridge,
          cable,
        };
        return new SimulatedHost(own, options(at));
      });
      const archive = join(directory, 'image.tar');
      const saved = image === undefined ? Promise.resolve('') : runProgram('docker', ['save', '-o', archive, image]);
      await Promise.all([saved, meanwhile(directory), ...hosts.map((host) => host.up())]);
      if (image !== undefined) await Promise.all(hosts.map((host) => host.load(archive)));
      return new SimulatedNetwork(directory, gateway, hosts, down);
    } catch (error) {
      await down();
      throw error;
    }
  }

  /** @throws when something of it stayed behind */
  down(): Promise<void> {
    return this.#down();
  }
}

/** A net of the range for tests between networks that no interface here has. */
function freeNet(): string {
  const taken = Object.values(networkInterfaces())
    .flatMap((addresses) => addresses ?? [])
    .map(({ address }) => address);
  for (;;) {
    const net = `198.${randomInt(18, 20)}.${randomInt(1, 255)}`;
    if (!taken.some((address) => address.startsWith(`${net}.`))) return net;
  }
}

/** Starts the keeper, which removes everything when the returned function is called, or when this process is gone. */
async function aKeeper(names: HostsNames): Promise<() => Promise<void>> {
  const path = join(import.meta.dirname, 'keeper.ts');
  // The keeper outlives the end of the run. The environment does not mark
  // it as a part of a test run, and it has a process group of its own.
  const child = spawn(process.execPath, [path], {
    detached: true,
    env: { PATH: process.env['PATH'] },
    stdio: ['pipe', 'pipe', 'ignore'],
  });
  await once(child, 'spawn');
  child.stdin.on('error', () => undefined);
  child.stdin.write(`${JSON.stringify(names)}\n`);
  const said = text(child.stdout);
  let ended: Promise<void> | undefined;
  const end = async (): Promise<void> => {
    child.stdin.end();
    const timer = setTimeout(() => child.kill('SIGKILL'), DOWN_MS);
    const left = (await said).trim();
    clearTimeout(timer);
    if (left !== '') throw new Error(`left behind by simulated hosts: ${left}`);
  };
  return () => (ended ??= end());
}
