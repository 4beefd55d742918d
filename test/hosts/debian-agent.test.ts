// The agent as a Debian package on a host that runs systemd: apt installs, upgrades, goes back and removes it. The
// machine joins by one line, and its containers and calls outlast every change of the package.
import { mkdirSync, readFileSync, realpathSync, renameSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect } from 'vitest';
import { MAIN, Platform, ROOT, baseImageOf, plainEnv, test } from '../helpers/platform.ts';
import type { Deployment } from '../helpers/platform.ts';
import { docker, runProgram, tempDirectory, waitFor } from '../helpers/services.ts';
import { SystemdHost } from '../helpers/systemd-host.ts';

const AGENT = 'longshore-agent.service';
const RESETS = ['longshore-gpu-reset.path', 'longshore-gpu-reset.service'];
const UNITS = [AGENT, 'longshore-agent-drain.service', 'longshore-mounts.service', ...RESETS];
// Plain JavaScript, so that its types are said here.
const script = async <T>(name: string): Promise<T> => (await import(join(ROOT, 'scripts/build', name))) as T;
const { writeRelease, packRelease } = await script<{
  writeRelease: (directory: string) => Promise<void>;
  packRelease: (directory: string, into: string, options: { level: number }) => Promise<unknown>;
}>('release.mjs');
const { writeDebianPackages } = await script<{
  writeDebianPackages: (release: string, into: string, options: { level: number }) => Promise<readonly string[]>;
}>('debian.mjs');

const NODE = join(realpathSync(join(ROOT, 'node_modules')), `node-linux-${process.arch}`, 'bin', 'node');
const NODE_THERE = '/usr/local/lib/node-of-tests';
const DEBS = '/debs';
const APT_MS = 180_000;

let platform: Platform;
let host: SystemdHost;
let work: ReturnType<typeof tempDirectory>;
let built = '';
let served: Deployment;
let machineId = '';
let before: readonly string[] = [];

/** Builds both packages of a version. @returns the agent's, as the host names it */
async function build(version: string): Promise<string> {
  const path = join(built, 'package.json');
  writeFileSync(path, JSON.stringify({ ...JSON.parse(readFileSync(path, 'utf8')), version }));
  const folder = join(work.path, 'debs', version);
  const made = await writeDebianPackages(built, folder, { level: 1 });
  return `${DEBS}/${version}/${made.find((file) => file.startsWith('longshore-agent_')) ?? ''}`;
}

/** Without a terminal of its own, apt passes on all that the scripts of a package print before they fail. */
const apt = (...args: readonly string[]): Promise<string> =>
  host.sh(
    `DEBIAN_FRONTEND=noninteractive apt-get -y -q -o Dpkg::Use-Pty=0 --allow-downgrades ${args.join(' ')} 2>&1`,
    APT_MS,
  );
const installed = async (): Promise<string> => host.try(`dpkg-query -W -f '\${Version}' longshore-agent`);
const status = (): Promise<string> => host.property(AGENT, 'StatusText');
const connected = (): Promise<boolean> =>
  waitFor(async () => (await status()).startsWith('connected as '), 'the agent is connected', 60_000);

async function containers(which: 'all' | 'of tasks' = 'of tasks'): Promise<readonly string[]> {
  const label = [`io.longshore.machine=${machineId}`, ...(which === 'all' ? [] : ['io.longshore.container'])];
  const found = await platform.engine.client.listContainers({ all: true, filters: { label } });
  return found.map((one) => `${one.Id} ${one.State}`).toSorted();
}

/** Every path of the host but those of apt, dpkg and the journal, which keep records of their own. */
async function paths(): Promise<readonly string[]> {
  const left = ['/proc', '/sys', '/dev', '/run', '/tmp', '/var/log', '/var/lib/dpkg', '/var/lib/apt', '/var/cache'];
  const prune = [...left, host.dataDir].map((path) => `-path ${path}`).join(' -o ');
  return (await host.sh(`find / -xdev \\( ${prune} \\) -prune -o -print`)).split('\n').toSorted();
}

/** Adds the settings that a host of tests needs to those of the package. */
async function writeSettings(): Promise<void> {
  const settings = [
    `LONGSHORE_DATA_DIR=${host.dataDir}`,
    `LONGSHORE_BASE_IMAGE=${baseImageOf(platform.engine)}`,
    `LONGSHORE_AGENT_NETWORK=${platform.network}`,
    'LONGSHORE_AGENT_METRICS_ADDRESS=127.0.0.1:0',
    'LONGSHORE_SHUTDOWN_DRAIN_SECONDS=60',
  ];
  await host.sh(
    `printf '%s\\n' ${settings.map((one) => `'${one}'`).join(' ')} >> /etc/longshore-agent/agent.env && ` +
      `mkdir -p /run/systemd/system/${AGENT}.d && ` +
      `printf '[Service]\\nReadWritePaths=${host.dataDir}\\n' > /run/systemd/system/${AGENT}.d/data.conf`,
  );
}

/** Runs the command line on this machine, as the administrator. */
const longshore = (...args: readonly string[]): Promise<string> =>
  runProgram(process.execPath, [MAIN, ...args], {
    env: { ...plainEnv(), LONGSHORE_URL: platform.url, LONGSHORE_TOKEN: platform.token },
  });

const reloads = async (): Promise<number> =>
  Number(await host.try("journalctl --sync; journalctl -o cat _PID=1 | grep -cE '^Reloading(\\.| requested)'"));

/** Calls one after the other while something is done. @returns the statuses of the answers */
async function underLoad(change: () => Promise<unknown>): Promise<ReadonlySet<number>> {
  const statuses = new Set<number>();
  const changed = new AbortController();
  const calls = (async () => {
    // The last call begins after the change.
    for (let isLast = false; !isLast;) {
      isLast = changed.signal.aborted;
      const { status: answer } = await platform.invoke(served, { key: 'load', seconds: 0.2 });
      statuses.add(answer);
    }
  })();
  await change().finally(() => changed.abort());
  await calls;
  return statuses;
}

beforeAll(async () => {
  const engine = await docker();
  work = tempDirectory('debian');
  const debs = join(work.path, 'debs');
  const releases = join(work.path, 'releases');
  built = join(work.path, 'built');
  for (const path of [debs, releases]) mkdirSync(path);
  host = new SystemdHost(engine, { [dirname(NODE)]: NODE_THERE, [debs]: DEBS });
  platform = new Platform(engine, { LONGSHORE_RELEASES_DIR: releases });
  const starting = platform.startScheduler();
  await Promise.all([writeRelease(built), host.start(), starting]);
  // Node is most of a package's bytes.
  writeFileSync(join(built, 'bin', 'node.new'), `#!/bin/sh\nexec '${NODE_THERE}/node' "$@"\n`, { mode: 0o755 });
  renameSync(join(built, 'bin', 'node.new'), join(built, 'bin', 'node'));
  await packRelease(built, releases, { level: 1 });
  const first = await platform.scheduler.request('ensureFirstWorkspace');
  platform.token = String(first['token']);
  platform.workspaceId = String(first['workspaceId']);
  before = await paths();
});

afterAll(async () => {
  await host.remove();
  await platform.stop();
  work.remove();
  await platform.engine.cleanUp();
});

describe('the agent as a Debian package', () => {
  test('waits for a token, and joins by the line that machine create prints', async () => {
    const reloadsBefore = await reloads();
    expect(await apt('install', await build('9.0.1'))).toContain('longshore-agent join --scheduler HOST:PORT');
    expect(await host.try(`systemctl is-active ${AGENT}`)).toBe('inactive\n');
    expect(await host.sh('stat -c %a /etc/longshore-agent/agent.env')).toBe('600\n');
    await writeSettings();
    const made = await longshore('machine', 'create', '--json');
    const { installLine } = JSON.parse(made) as { readonly installLine: string };
    // Other changes of the agent are refused: apt makes them.
    const upgrade = await longshore('machine', 'upgrade', '--json');
    const { line } = JSON.parse(upgrade) as { readonly line: string };
    await expect(host.sh(line)).rejects.toThrow('is a Debian package: `apt install');
    expect(await host.sh(installLine, 120_000)).toContain('longshore-agent 9.0.1: connected as ');
    expect(await host.try('ls /opt/longshore /etc/longshore-agent/join-token')).toMatch(/(No such file[^]*){2}/);
    machineId = /^connected as ([0-9a-f]{8})$/.exec(await status())?.[1] ?? '';
    expect(machineId).not.toBe('');
    expect(await reloads()).toBe(reloadsBefore);
    expect(await host.sh(`systemctl is-enabled ${RESETS[0]} && systemctl is-active ${RESETS[0]}`)).toBe(
      'enabled\nactive\n',
    );
    served = await platform.deploy({ app: 'counted.py', handler: 'handler', name: 'served', keepWarmSeconds: 600 });
    expect(await platform.invoke(served, { key: 'a', seconds: 0 })).toMatchObject({ status: 200 });
    expect(await containers()).toHaveLength(1);
    const check = await host.try('longshore agent check --json');
    expect(check).toContain(`${host.dataDir}/agent, an agent runs on it`);
  });

  test('is upgraded and goes back under load: calls and containers go on, and systemd is not reloaded', async () => {
    const running = await containers();
    const pid = await host.property(AGENT, 'MainPID');
    const reloadsBefore = await reloads();
    const next = await build('9.0.2');
    expect(await underLoad(() => apt('install', next))).toEqual(new Set([200]));
    await connected();
    expect(await host.property(AGENT, 'MainPID')).not.toBe(pid);
    expect(await installed()).toBe('9.0.2');
    expect(await underLoad(() => apt('install', next.replaceAll('9.0.2', '9.0.1')))).toEqual(new Set([200]));
    await connected();
    expect(await installed()).toBe('9.0.1');
    expect(await containers()).toEqual(running);
    expect(await reloads()).toBe(reloadsBefore);
  });

  test('is upgraded with its pool, by a command that installs the package', async () => {
    const running = await containers();
    const next = await build('9.0.2');
    const env = { ...plainEnv(), LONGSHORE_URL: platform.url, LONGSHORE_TOKEN: platform.token };
    const run = `docker exec ${host.id} apt-get -y -q --allow-downgrades install ${next}`;
    const args = [MAIN, 'machine', 'upgrade', '--pool', 'default', '--run', run, '--to', '9.0.2', '--json'];
    const upgrade = async (): Promise<unknown> => {
      const said = await runProgram(process.execPath, args, { env }, APT_MS);
      return JSON.parse(said.slice(said.indexOf('{')));
    };
    expect(await upgrade()).toMatchObject({ upgraded: [machineId], already: [], away: [], failed: null });
    expect(await installed()).toBe('9.0.2');
    expect(await containers()).toEqual(running);
    expect(await upgrade()).toMatchObject({ upgraded: [], already: [machineId], failed: null });
  });

  test('is configured while Docker does not answer, and its agent starts once Docker does', async () => {
    const running = await containers();
    await host.sh("echo 'DOCKER_HOST=unix:///nowhere/docker.sock' >> /etc/longshore-agent/agent.env");
    expect(await apt('install', '--reinstall', `${DEBS}/9.0.2/longshore-agent_9.0.2_*.deb`)).toContain(
      'no Docker Engine answers, so the agent cannot run',
    );
    expect(await host.sh("dpkg-query -W -f '${Status}' longshore-agent")).toBe('install ok installed');
    expect(await host.try('systemctl is-active longshore-agent-drain.service')).toBe('active\n');
    expect(await status()).not.toMatch(/^connected/);
    await host.sh("sed -i '/^DOCKER_HOST=/d' /etc/longshore-agent/agent.env");
    await connected();
    expect(await containers()).toEqual(running);
  });

  test('a package whose agent does not start fails, and says so; its containers go on, and the one before takes them up', async () => {
    const running = await containers();
    const bundle = join(built, 'lib', 'agent.mjs');
    const good = readFileSync(bundle);
    writeFileSync(bundle, 'process.exit(78);\n');
    const broken = await build('9.0.3');
    writeFileSync(bundle, good);
    await expect(apt('install', broken)).rejects.toThrow('the agent does not start');
    expect(await containers()).toEqual(running);
    await apt('install', broken.replaceAll('9.0.3', '9.0.1'));
    await connected();
    expect(await containers()).toEqual(running);
    expect(await platform.invoke(served, { key: 'b', seconds: 0 })).toMatchObject({ status: 200 });
  });

  test('removal ends its work and leaves settings and identity; the package takes them up; a purge leaves nothing', async () => {
    await apt('remove', 'longshore-agent');
    expect(await containers('all')).toEqual([]);
    for (const unit of UNITS) expect(await host.try(`systemctl cat ${unit}`)).toContain('No files found');
    const added = (now: readonly string[]) => now.filter((path) => !before.includes(path));
    expect(added(await paths())).toEqual([
      '/etc/longshore-agent',
      '/etc/longshore-agent/agent.env',
      '/etc/longshore-agent/mounts.env',
      '/var/lib/longshore-agent',
    ]);
    await apt('install', `${DEBS}/9.0.1/longshore-agent_9.0.1_*.deb`);
    await connected();
    expect(await status()).toBe(`connected as ${machineId}`);
    await apt('purge', 'longshore-agent');
    expect(await paths()).toEqual(before);
    expect(await host.sh(`ls -A ${host.dataDir}`)).toBe('');
  });

  test('joins by an enrolment token on standard input, as a machine of its own', async () => {
    await apt('install', `${DEBS}/9.0.1/longshore-agent_9.0.1_*.deb`);
    await writeSettings();
    const { secret, agentUpstreamUrl } = JSON.parse(
      await longshore('enrol-token', 'create', 'golden', '--machines', '1', '--json'),
    ) as { readonly secret: string; readonly agentUpstreamUrl: string };
    expect(secret).toMatch(/^lse1\./);
    const join = `longshore-agent join --scheduler '${agentUpstreamUrl.replace(/^grpcs:\/\//, '')}'`;
    expect(await host.try(`${join} ${secret}`)).toContain('a join token is no argument');
    expect(await host.sh(`echo '${secret}' | ${join}`, 120_000)).toContain('longshore-agent 9.0.1: connected as ');
    const before = machineId;
    machineId = /^connected as ([0-9a-f]{8})$/.exec(await status())?.[1] ?? '';
    expect(machineId).not.toBe('');
    expect(machineId).not.toBe(before);
    expect(await host.try('ls /etc/longshore-agent/join-token')).toContain('No such file');
    const listed: unknown = JSON.parse(await longshore('enrol-token', 'list', '--json'));
    expect(listed).toMatchObject([{ name: 'golden', state: 'active', machines: 1, joined: 1 }]);
  });

  test(
    'a refused token is named at once; a full one waits for room, joins late, and is left in no file',
    { timeout: 420_000 },
    async () => {
      const of = async (token: string): Promise<string> => {
        await host.sh('longshore-agent reset', 120_000);
        return host.try(`echo '${token}' | longshore-agent join`);
      };
      // The installer waits for 90 s otherwise.
      await host.sh('sed -i s/^WAIT_SECONDS=.*/WAIT_SECONDS=15/ /usr/lib/longshore-agent/systemd/install-agent.sh');
      const { secret } = JSON.parse(await longshore('enrol-token', 'create', 'one', '--machines', '1', '--json')) as {
        readonly secret: string;
      };
      expect(await of(secret.replace(/[^.]+$/, 'x'.repeat(43)))).toMatch(
        /\nlongshore-agent: the agent does not run: the scheduler refused the enrolment token: .*is of no pool here[^\n]*\n$/,
      );
      expect(await host.property(AGENT, 'ActiveState')).toBe('failed');
      expect(await of(secret)).toContain('connected as ');
      const first = /^connected as ([0-9a-f]{8})$/.exec(await status())?.[1] ?? '';
      expect(await of(secret)).toContain(
        'not joined yet, and the agent goes on trying: joining: enrolment token one admits 1 machines, and 1 have joined',
      );
      expect(await host.sh('cat /etc/longshore-agent/join-token')).toBe(`${secret}\n`);
      await longshore('machine', 'delete', first, '--force');
      await waitFor(async () => (await status()).startsWith('connected as '), 'the host joins late', 180_000);
      expect(await host.sh('cat /etc/longshore-agent/join-token')).toBe('');
      machineId = /^connected as ([0-9a-f]{8})$/.exec(await status())?.[1] ?? '';
      expect(machineId).not.toBe(first);
    },
  );

  test('removal with an agent that does not run ends no container; the commands of the documents do', async () => {
    expect(await platform.invoke(served, { key: 'c', seconds: 0 })).toMatchObject({ status: 200 });
    const running = await containers();
    expect(running).toHaveLength(1);
    await expect(apt('install', `${DEBS}/9.0.3/longshore-agent_9.0.3_*.deb`)).rejects.toThrow(
      'the agent does not start',
    );
    await apt('remove', 'longshore-agent');
    expect(await containers()).toEqual(running);
    for (const unit of UNITS) expect(await host.try(`systemctl cat ${unit}`)).toContain('No files found');
    const lines = readFileSync(join(ROOT, 'docs/packages.md'), 'utf8').match(
      /^docker (?:ps|volume ls|network rm) .*$/gm,
    );
    expect(lines).toHaveLength(3);
    for (const line of lines ?? []) {
      const here = line.replace('=ID ', `=${machineId} `).replace('rm longshore ', `rm ${platform.network} `);
      await runProgram('sh', ['-c', here], { env: plainEnv() });
    }
    expect(await containers('all')).toEqual([]);
    await apt('purge', 'longshore-agent');
  });

  test('a host that install-agent.sh installed is left alone', async () => {
    await host.sh(`touch /etc/systemd/system/${AGENT}`);
    await expect(apt('install', `${DEBS}/9.0.1/longshore-agent_9.0.1_*.deb`)).rejects.toThrow(
      'has an agent that install-agent.sh installed',
    );
    await host.sh(`rm /etc/systemd/system/${AGENT}`);
  });
});
