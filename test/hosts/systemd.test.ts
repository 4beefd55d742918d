// The agent as a service of a host that runs systemd. The line that `longshore
// machine create` prints installs it, from a release that the scheduler gives out.
import { cpSync, mkdirSync, readFileSync, realpathSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect } from 'vitest';
import { resetByUnit } from '../../agent/devices/reset-unit.ts';
import { volumesOn } from '../helpers/mounts.ts';
import { MAIN, Platform, ROOT, baseImageOf, jsonOf, plainEnv, test } from '../helpers/platform.ts';
import type { Deployment } from '../helpers/platform.ts';
import type { S3Server } from '../helpers/s3-server.ts';
import { anS3Server } from '../helpers/s3-server.ts';
import { docker, runProgram, tempDirectory, waitFor } from '../helpers/services.ts';
import { SystemdHost } from '../helpers/systemd-host.ts';

const AGENT = 'longshore-agent.service';
const DRAIN = 'longshore-agent-drain.service';
const MOUNTS = 'longshore-mounts.service';
const RESETS = ['longshore-gpu-reset.path', 'longshore-gpu-reset.service'];
// Plain JavaScript, so that its types are said here.
const BUILD: string = join(ROOT, 'scripts/build/release.mjs');
const { packRelease, writeRelease } = (await import(BUILD)) as {
  writeRelease: (directory: string) => Promise<void>;
  packRelease: (directory: string, into: string, options: { level: number }) => Promise<{ readonly sha256: string }>;
};

const NODE = join(realpathSync(join(ROOT, 'node_modules')), `node-linux-${process.arch}`, 'bin', 'node');
/** The folder of Node on the host with systemd. A checkout may be below /tmp, which the unit does not see. */
const NODE_THERE = '/usr/local/lib/node-of-tests';

let platform: Platform;
let host: SystemdHost;
let server: S3Server;
let work: ReturnType<typeof tempDirectory>;
let releases = '';
let built = '';
let machineId = '';
let served: Deployment;

/** Gives out the built release under another version. */
async function giveOut(version: string): Promise<string> {
  const path = join(built, 'package.json');
  writeFileSync(path, JSON.stringify({ ...JSON.parse(readFileSync(path, 'utf8')), version }));
  return (await packRelease(built, releases, { level: 1 })).sha256;
}

function cli(...args: readonly string[]): Promise<string> {
  const env = { ...plainEnv(), LONGSHORE_URL: platform.url, LONGSHORE_TOKEN: platform.token };
  return runProgram(process.execPath, [MAIN, ...args], { env });
}

/** The line of the command's output that is to be run on the host. */
const lineOf = (output: string): string =>
  output
    .split('\n')
    .find((line) => line.includes('/install/agent'))
    ?.trim() ?? '';
const status = async (): Promise<string> => host.property(AGENT, 'StatusText');
const release = async (): Promise<string> => (await host.sh('readlink /opt/longshore/current')).trim();
const runningSince = (): Promise<string> => host.property(AGENT, 'MainPID');
const connected = (): Promise<boolean> =>
  waitFor(async () => (await status()).startsWith('connected as '), 'the agent is connected', 60_000);

/** Containers that the host's agent made: all of them, or those of tasks alone. */
async function containers(which: 'all' | 'of tasks' = 'of tasks'): Promise<readonly string[]> {
  const label = [`io.longshore.machine=${machineId}`, ...(which === 'all' ? [] : ['io.longshore.container'])];
  const found = await platform.engine.client.listContainers({ all: true, filters: { label } });
  return found.map((one) => `${one.Id} ${one.State}`).toSorted();
}

/** Another owner's container with a GPU, as the host sees it: NVIDIA's hook mounts the device node into it. */
const OTHERS = 'gpu-container-of-others.service';
const startOthers = (): Promise<string> =>
  host.sh(
    `touch /dev/nvidiactl && systemd-run -q --unit=${OTHERS} -p PrivateMounts=yes sh -c 'mount --bind /dev/null /dev/nvidiactl && exec sleep 3600' && ` +
      'timeout 10 sh -c \'until grep -qs " /dev/nvidiactl " /proc/[0-9]*/mountinfo; do sleep 0.05; done\'',
  );
/** The path of an `s3` volume that the mount helper of the host has mounted. */
async function mounted(): Promise<string> {
  const body = JSON.stringify({ holder: 'c-1', workspaceId: 'ws-1', volumeId: 'v-1' });
  const ask = `curl -sS --unix-socket /run/longshore-mounts/mounts.sock -d '${body}' http://helper/volume`;
  return (JSON.parse(await host.sh(ask)) as { readonly path: string }).path;
}

/** The daemon of the mount, its content, and the settings of the helper. */
const mounts = async (): Promise<readonly string[]> => [
  await host.sh('pidof s3fs'),
  await host.sh(`cat ${await mounted()}/a.txt`),
  await host.sh('sha256sum /etc/longshore-agent/mounts.env'),
];

/** How often systemd has read all of its units again. */
const reloads = async (): Promise<number> =>
  Number(await host.try("journalctl --sync; journalctl -o cat _PID=1 | grep -cE '^Reloading(\\.| requested)'"));

beforeAll(async () => {
  const engine = await docker();
  host = new SystemdHost(engine, { [dirname(NODE)]: NODE_THERE }, ['/dev/fuse']);
  work = tempDirectory('systemd');
  releases = join(work.path, 'releases');
  built = join(work.path, 'built');
  mkdirSync(releases);
  platform = new Platform(engine, { LONGSHORE_RELEASES_DIR: releases });
  const starting = platform.startScheduler();
  await Promise.all([writeRelease(built).then(() => giveOut('9.0.1')), host.start(), starting]);
  server = await anS3Server(engine);
  // The first release was packed whole; the others leave out Node, which is most of a release's bytes.
  writeFileSync(join(built, 'bin', 'node.new'), `#!/bin/sh\nexec '${NODE_THERE}/node' "$@"\n`, { mode: 0o755 });
  renameSync(join(built, 'bin', 'node.new'), join(built, 'bin', 'node'));
  const first = await platform.scheduler.request('ensureFirstWorkspace');
  platform.token = String(first['token']);
  platform.workspaceId = String(first['workspaceId']);
  // The agent of this machine's own default would share its page's port and its network with others.
  const settings = [
    `LONGSHORE_DATA_DIR=${host.dataDir}`,
    `LONGSHORE_BASE_IMAGE=${baseImageOf(engine)}`,
    `LONGSHORE_AGENT_NETWORK=${platform.network}`,
    'LONGSHORE_AGENT_METRICS_ADDRESS=127.0.0.1:0',
    'LONGSHORE_SHUTDOWN_DRAIN_SECONDS=60',
  ];
  await host.sh(
    `mkdir -p /etc/longshore-agent /etc/systemd/system/${AGENT}.d && printf '%s\\n' ${settings.map((one) => `'${one}'`).join(' ')} > /etc/longshore-agent/agent.env && ` +
      `printf '[Service]\\nReadWritePaths=${host.dataDir}\\n' > /etc/systemd/system/${AGENT}.d/data.conf`,
  );
});

afterAll(async () => {
  await host.remove();
  await platform.stop();
  work.remove();
  await platform.engine.cleanUp();
});

describe('the agent as a service', () => {
  test('is installed, joined and serving by the one line that machine create prints', async () => {
    const printed = await cli('machine', 'create', '--pool', 'default');
    const line = lineOf(printed);
    expect(line).toMatch(/^f=\$\(mktemp\) && curl -fsSL '[^']+\/install\/agent\?channel=stable' /);
    // The token is in no program's arguments: a shell builtin writes it to a pipe.
    expect(line).toMatch(
      /&& \{ echo 'lsj1\.[^']+'; env \| grep -iE '[^']+'; \} \| sudo sh "\$f" install --from \S+ --scheduler \S+$/,
    );
    const before = await reloads();
    await startOthers();
    await host.sh(line, 120_000);
    // A reload takes GPUs away from containers, also from those of other people.
    expect(await reloads()).toBe(before);
    expect(await host.sh(`systemctl is-enabled ${AGENT} ${DRAIN}`)).toBe('enabled\nenabled\n');
    machineId = /^connected as ([0-9a-f]{8})$/.exec(await status())?.[1] ?? '';
    expect(machineId).not.toBe('');
    expect(await release()).toMatch(/^releases\/9\.0\.1-[0-9a-f]{12}$/);
    expect(await host.try('ls /etc/longshore-agent/join-token')).toContain('No such file');
    served = await platform.deploy({
      app: 'counted.py',
      handler: 'handler',
      name: 'served',
      keepWarmSeconds: 600,
    });
    expect(await platform.invoke(served, { key: 'a', seconds: 0 })).toMatchObject({ status: 200 });
    expect(await containers()).toHaveLength(1);
  });

  test('checks that are run by hand look at the service, with its settings', async () => {
    const printed = await host.try('longshore agent check --json');
    const { findings } = JSON.parse(printed.slice(printed.indexOf('{'))) as {
      findings: { check: string; level: string; found: string }[];
    };
    const of = (check: string) => findings.find((one) => one.check === check);
    expect(of('settings')?.found).toContain('/etc/longshore-agent/agent.env');
    expect(of('state')).toMatchObject({ level: 'ok', found: `${host.dataDir}/agent, an agent runs on it` });
    expect(of('metrics port')).toMatchObject({ level: 'ok' });
    expect(of('joined')).toMatchObject({ level: 'ok', found: expect.stringContaining(machineId) as string });
    await host.sh('echo "LONGSHORE_NVIDIA_SMI=\'/nowhere/nvidia-smi\'" >> /etc/longshore-agent/agent.env');
    expect(await host.try('longshore agent check-gpu')).toContain('/nowhere/nvidia-smi');
    await host.sh("sed -i '/^LONGSHORE_NVIDIA_SMI=/d' /etc/longshore-agent/agent.env");
    expect(await host.try('setpriv --reuid=65534 --clear-groups longshore agent check')).toContain('sudo longshore');
  });

  test('has the mount helper beside it, with settings of its own that the operator fills in', async () => {
    expect(await host.sh(`systemctl is-enabled ${MOUNTS} && systemctl is-active ${MOUNTS}`)).toBe('enabled\nactive\n');
    expect(await host.sh('stat -c %a:%U /etc/longshore-agent/mounts.env')).toBe('600:root\n');
    const settings = Object.entries(volumesOn(server)).map(([name, value]) => `'${name}=${value}'`);
    await host.sh(
      `printf '%s\\n' ${settings.join(' ')} >> /etc/longshore-agent/mounts.env && systemctl restart ${MOUNTS}`,
    );
    const path = await mounted();
    await host.sh(`echo hello > ${path}/a.txt`);
    expect(await host.sh(`cat ${path}/a.txt`)).toBe('hello\n');
  });

  test('has GPUs reset by a unit of its own, as root, and gains no capability', async () => {
    const [path = '', service = ''] = RESETS;
    expect(await host.sh(`systemctl is-enabled ${path} && systemctl is-active ${path}`)).toBe('enabled\nactive\n');
    // The request of an agent, whose data directory has the same path here.
    const stateDir = join(host.dataDir, 'agent');
    const folder = join(stateDir, 'gpu-reset');
    const gpu = { uuid: 'GPU-00000000-0000-4000-8000-000000000003', busId: '0000:1e:00.0' };
    const tool = async (does: string): Promise<void> => {
      const text = `#!/bin/sh\n{ echo "$@"; id -u; grep CapEff: /proc/self/status; cat /proc/self/cgroup; } >${folder}/seen\n${does}\n`;
      const encoded = Buffer.from(text).toString('base64');
      await host.sh(`echo ${encoded} | base64 -d >/usr/local/bin/nvidia-smi && chmod 755 /usr/local/bin/nvidia-smi`);
    };
    await tool('exit 0');
    // A link that a broken agent leaves there must not have root write elsewhere.
    await host.sh(`mkdir -p ${folder} && ln -s /etc/planted ${folder}/answer.new`);
    await resetByUnit(stateDir, gpu);
    const [args, user, capabilities, ...cgroups] = (await host.sh(`cat ${folder}/seen`)).trim().split('\n');
    expect([args, user]).toEqual([`--gpu-reset -i ${gpu.uuid}`, '0']);
    expect(Number.parseInt(capabilities?.split('\t')[1] ?? '', 16)).toBeGreaterThan(0);
    expect(cgroups.join('\n')).toContain(service);
    expect(await host.try('ls /etc/planted')).toContain('No such file');
    await tool('echo "* In use by another client"; exit 19');
    await expect(resetByUnit(stateDir, gpu)).rejects.toThrow('* In use by another client');
    expect(await host.property(path, 'ActiveState')).toBe('active');
    const agent = await host.sh(`grep -h Cap /proc/${await runningSince()}/status`);
    expect(agent.match(/^Cap(?:Eff|Prm|Bnd|Amb):\t0{16}$/gm)).toHaveLength(4);
    await host.sh('rm /usr/local/bin/nvidia-smi');
  });

  test('does not install what is not what was promised', async () => {
    const line = lineOf(await cli('machine', 'upgrade'));
    const other = line.replace(/echo "[0-9a-f]{4}/, 'echo "0000');
    await expect(host.sh(other)).rejects.toThrow(/FAILED|did NOT match/);
    // A mirror that gives out other bytes under the same name.
    const archive = join(releases, 'longshore-9.0.1-linux-x64.tar.gz');
    cpSync(archive, `${archive}.kept`);
    writeFileSync(archive, Buffer.concat([readFileSync(archive), Buffer.from('x')]));
    await host.sh(
      'rm -rf /opt/longshore/releases/.kept && mv "$(readlink -f /opt/longshore/current)" /opt/longshore/releases/.kept',
    );
    try {
      await expect(host.sh(line)).rejects.toThrow('is not what was promised');
    } finally {
      await host.sh('mv /opt/longshore/releases/.kept "/opt/longshore/$(readlink /opt/longshore/current)"');
      cpSync(`${archive}.kept`, archive);
      rmSync(`${archive}.kept`);
    }
  });

  test('passes systemd-analyze, and what it allows scores no more than 4.5', async () => {
    for (const unit of [AGENT, DRAIN, 'longshore-scheduler.service', 'longshore-registry.service']) {
      if (unit !== AGENT && unit !== DRAIN)
        await host.sh(`cp /opt/longshore/current/systemd/${unit} /etc/systemd/system/`);
      expect(await host.sh(`systemd-analyze verify /etc/systemd/system/${unit} 2>&1`), unit).toBe('');
      const score = await host.sh(`systemd-analyze security --offline=true --no-pager ${unit}`);
      expect(Number(/exposure level for .*: ([0-9.]+)/.exec(score)?.[1]), unit).toBeLessThanOrEqual(4.5);
    }
    for (const unit of RESETS)
      expect(await host.sh(`systemd-analyze verify /etc/systemd/system/${unit} 2>&1`), unit).toBe('');
  });

  test('keeps its containers when it is stopped, and takes them up again', async () => {
    const before = await containers();
    await host.sh(`systemctl stop ${AGENT}`);
    expect(await containers()).toEqual(before);
    await host.sh(`systemctl start ${AGENT}`);
    await connected();
    expect(await containers()).toEqual(before);
  });

  test('is killed and started again when it stands still, and again keeps its containers', async () => {
    const before = await containers();
    await host.sh(
      `printf '[Service]\\nWatchdogSec=3\\nRestartSec=0\\n' > /etc/systemd/system/${AGENT}.d/watchdog.conf`,
    );
    await host.sh(`systemctl daemon-reload && systemctl restart ${AGENT}`);
    await connected();
    const pid = await runningSince();
    // After twice the watchdog's limit the agent lives, because it sends signs of life.
    await waitFor(async () => Number(await host.sh(`ps -o etimes= -p ${pid}`)) >= 6, 'the agent lives for 6 s', 30_000);
    expect(await host.property(AGENT, 'NRestarts')).toBe('0');
    await host.sh(`kill -STOP ${pid}`);
    await waitFor(async () => (await host.property(AGENT, 'NRestarts')) === '1', 'systemd restarted it', 30_000);
    await connected();
    expect(await runningSince()).not.toBe(pid);
    expect(await containers()).toEqual(before);
    await host.sh(`rm /etc/systemd/system/${AGENT}.d/watchdog.conf && systemctl daemon-reload`);
  });

  test('is upgraded in place, comes back by itself from a release that does not start, and can be rolled back', async () => {
    const before = await containers();
    const first = await release();
    const mountsBefore = await mounts();
    await giveOut('9.0.2');
    await host.sh(lineOf(await cli('machine', 'upgrade')), 120_000);
    await connected();
    expect(await release()).toMatch(/^releases\/9\.0\.2-/);
    expect(await containers()).toEqual(before);
    expect(await mounts()).toEqual(mountsBefore);
    const second = await release();

    const bundle = join(built, 'lib', 'agent.mjs');
    const good = readFileSync(bundle);
    writeFileSync(bundle, 'process.exit(1);\n');
    await giveOut('9.0.3');
    writeFileSync(bundle, good);
    await expect(host.sh(lineOf(await cli('machine', 'upgrade')), 120_000)).rejects.toThrow(
      'not upgraded: the release before runs again',
    );
    expect(await release()).toBe(second);

    await host.sh('longshore-agent rollback');
    await connected();
    expect(await release()).toBe(first);
    expect(await containers()).toEqual(before);
    expect(await mounts()).toEqual(mountsBefore);
    expect(await host.sh('longshore-agent status')).toMatch(/release 9\.0\.1-.*, before it 9\.0\.2-/);
  });

  test('has units reloaded that changed, and never while anybody has a container with a GPU', async () => {
    const kept = await host.sh(`cat /etc/systemd/system/${AGENT}`);
    const before = await reloads();
    await giveOut('9.0.4');
    await host.sh(lineOf(await cli('machine', 'upgrade')), 120_000);
    expect(await release()).toMatch(/^releases\/9\.0\.4-/);
    expect(await reloads()).toBe(before);

    writeFileSync(join(built, 'systemd', AGENT), `${kept}\n# Changed.\n`);
    await giveOut('9.0.5');
    expect(await host.sh(lineOf(await cli('machine', 'upgrade')), 120_000)).toContain(
      'run `systemctl daemon-reload` once they have ended',
    );
    expect(await release()).toMatch(/^releases\/9\.0\.5-/);
    expect(await host.sh(`cat /etc/systemd/system/${AGENT}`)).toContain('# Changed.');
    expect(await reloads()).toBe(before);

    await host.sh(`systemctl stop ${OTHERS}`);
    await host.sh('longshore-agent install', 120_000);
    expect(await reloads()).toBe(before + 1);
    expect(await host.property(AGENT, 'NeedDaemonReload')).toBe('no');
    await connected();
  });

  test('drains when the host goes down: the unit that stops first waits for the task, nothing new comes, and starting it takes that back', async () => {
    const call = platform.invoke(served, { key: 'down', seconds: 4 });
    const machine = async (): Promise<string> =>
      jsonOf<{ machines: { status: string }[] }>(await platform.call('/api/v1/gateway/machines')).machines[0]?.status ??
      '';
    expect(await machine()).toBe('available');
    await waitFor(
      async () => (await platform.tasks(served)).some((task) => task.status === 'RUNNING'),
      'the task runs',
      30_000,
    );
    const stopped = host.sh(`systemctl stop ${DRAIN}`, 90_000);
    await waitFor(async () => (await machine()) === 'disabled', 'nothing new is placed there', 30_000);
    expect(await call).toMatchObject({ status: 200 });
    await stopped;
    expect((await containers()).filter((one) => one.endsWith(' running'))).toEqual([]);
    await host.sh(`systemctl start ${DRAIN}`);
    await waitFor(async () => (await machine()) === 'available', 'it takes work again', 30_000);
  });

  test('is gone after uninstall, its containers too', async () => {
    const path = await mounted();
    await host.sh('longshore-agent uninstall --purge', 120_000);
    expect(await containers('all')).toEqual([]);
    for (const unit of [AGENT, DRAIN, MOUNTS, ...RESETS])
      expect(await host.try(`systemctl cat ${unit}`)).toContain('No files found');
    for (const left of [
      '/opt/longshore',
      '/etc/longshore-agent',
      '/run/longshore-mounts',
      '/var/cache/longshore-mounts',
    ])
      expect(await host.try(`ls ${left}`)).toContain('No such file');
    expect(await host.try(`grep ' ${path} ' /proc/mounts`)).toBe('');
    await waitFor(async () => (await host.try('pidof s3fs')) === '', 's3fs has ended', 20_000);
  });
});
