// The installer of the agent, run by a shell in a directory of its own: what it makes of its input and of the machine.
// The programs of the system that it asks are stand-ins; test/hosts/systemd.test.ts has the real ones.
// vitest reads a fixture's needs from the pattern of its first parameter, which may be empty and not left out.
/* oxlint-disable no-empty-pattern */
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  readlinkSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { execa } from 'execa';
import { describe, expect, test as base } from 'vitest';
import { loadAgentConfig } from '../../agent/config.ts';
import { tempDirectory } from '../helpers/services.ts';
import type { SigningKey } from '../helpers/signing-key.ts';
import { signingKey } from '../helpers/signing-key.ts';

const SCRIPT = join(import.meta.dirname, '../../systemd/install-agent.sh');
const TOKEN = 'lsj1.fingerprint.secret';
const [AGENT, AGENT_DRAIN] = ['longshore-agent.service', 'longshore-agent-drain.service'];
const MOUNTS = 'longshore-mounts.service';
const RESET_UNITS = ['longshore-gpu-reset.path', 'longshore-gpu-reset.service'];

interface Machine {
  readonly env: () => string;
  readonly joinToken: () => string;
  /** Makes the archive anew. @param node - the first bytes of its Node binary */
  readonly pack: (node: Buffer | string) => Promise<void>;
  /** Puts a stand-in in the place of a program of the system. */
  readonly program: (name: string, text: string) => void;
  /** Sets a line of the settings, in place of the line with that name. */
  readonly set: (line: string) => void;
  readonly state: string;
  /** The link to the release that runs. */
  readonly current: string;
  /** The archive that an installation from a file takes. */
  readonly archive: string;
  /** Where a host has the keys by which its releases must be signed. */
  readonly keys: string;
  /** Names of the releases that are installed. */
  readonly releases: () => readonly string[];
  readonly purge: () => Promise<{ code: number | undefined; said: string }>;
  /** Runs another command of the installer. */
  readonly command: (
    args: readonly string[],
    input?: string,
    env?: Readonly<Record<string, string>>,
  ) => Promise<{ code: number | undefined; said: string }>;
  /** Commands that were given to systemctl since the last look. */
  readonly asked: () => string;
  readonly dataDir: string;
  /** The proxy setting that the last download got. */
  readonly fetchedBy: () => string;
  /** Runs a script as a scheduler serves it; no server listens where it fetches. */
  readonly fetch: (
    release: Readonly<Record<string, string>>,
    architecture: string,
  ) => Promise<{ code: number | undefined; said: string }>;
  /** Runs the installer. @returns its status and output */
  readonly install: (
    input: string,
    env?: Readonly<Record<string, string>>,
  ) => Promise<{ code: number | undefined; said: string }>;
}

const test = base.extend('machine', async ({}, { onCleanup }): Promise<Machine> => {
  const made = tempDirectory('install');
  onCleanup(() => made.remove());
  const at = (...parts: readonly string[]): string => join(made.path, ...parts);
  for (const name of ['bin', 'run', 'etc', 'opt/releases', 'state', 'units', 'local/bin', 'local/sbin'])
    mkdirSync(at(name), { recursive: true });
  const script = readFileSync(SCRIPT, 'utf8')
    .replace('ROOT=/opt/longshore', `ROOT=${at('opt')}`)
    .replace('PACKAGE=/usr/lib/longshore-agent', `PACKAGE=${at('package')}`)
    .replace('CONFIG=/etc/longshore-agent', `CONFIG=${at('etc')}`)
    .replace('STATE=/var/lib/longshore-agent', `STATE=${at('state')}`)
    .replace('UNITS=/etc/systemd/system', `UNITS=${at('units')}`)
    .replaceAll('/run/systemd/system', at('run'))
    .replaceAll('/usr/local/', `${at('local')}/`);
  writeFileSync(at('install.sh'), script);
  const program = (name: string, text: string): void => {
    writeFileSync(at('bin', name), `#!/bin/sh\n${text}\n`);
    chmodSync(at('bin', name), 0o755);
  };
  program('id', 'echo 0');
  program('uname', 'case "$1" in -m) echo "${FAKE_MACHINE:-x86_64}" ;; *) echo Linux ;; esac');
  program('systemd-notify', 'exit 0');
  program('journalctl', 'exit 0');
  program('curl', `printenv https_proxy > '${at('fetched-by')}'; exit 7`);
  program(
    'systemctl',
    `echo "$*" >>'${at('asked')}'; case "$*" in *StatusText*) echo "connected as 1234abcd" ;; *LoadState*) echo loaded ;; *NeedDaemonReload*) echo no ;; esac`,
  );
  // A release in the form that an archive has.
  for (const name of ['release/bin', 'release/systemd']) mkdirSync(at(name), { recursive: true });
  for (const name of ['agent.env', AGENT, AGENT_DRAIN, MOUNTS, ...RESET_UNITS])
    writeFileSync(at('release/systemd', name), readFileSync(join(SCRIPT, '..', name)));
  const pack = async (node: Buffer | string): Promise<void> => {
    writeFileSync(at('release/bin/node'), node, { mode: 0o755 });
    await execa('tar', ['-czf', at('longshore-9.tar.gz'), '-C', made.path, 'release']);
  };
  await pack('#!/bin/sh\n');
  const run = async (args: readonly string[], input: string, env: Readonly<Record<string, string>>) => {
    const { exitCode, all } = await execa('sh', args, {
      input,
      all: true,
      reject: false,
      extendEnv: false,
      env: { PATH: `${at('bin')}:${process.env['PATH'] ?? ''}`, ...env },
    });
    return { code: exitCode, said: all };
  };
  return {
    env: () => readFileSync(at('etc/agent.env'), 'utf8'),
    joinToken: () => (existsSync(at('etc/join-token')) ? readFileSync(at('etc/join-token'), 'utf8') : ''),
    pack,
    program,
    set: (line) => {
      const [name = ''] = line.split('=');
      const kept = readFileSync(at('etc/agent.env'), 'utf8')
        .split('\n')
        .filter((one) => !one.startsWith(`${name}=`));
      writeFileSync(at('etc/agent.env'), [...kept, line, ''].join('\n'));
    },
    state: at('elsewhere'),
    current: at('opt/current'),
    archive: at('longshore-9.tar.gz'),
    keys: at('etc/release-keys.gpg'),
    releases: () => readdirSync(at('opt/releases')),
    command: (args, input = '', env = {}) => run([at('install.sh'), ...args], input, env),
    asked: () => {
      const text = existsSync(at('asked')) ? readFileSync(at('asked'), 'utf8') : '';
      writeFileSync(at('asked'), '');
      return text;
    },
    dataDir: at('state'),
    purge: () => run([at('install.sh'), 'uninstall', '--purge'], '', {}),
    fetchedBy: () => readFileSync(at('fetched-by'), 'utf8').trim(),
    fetch: (release, architecture) => {
      const lines = Object.entries(release).map(
        ([name, value]) => [`\nRELEASE_${name}=''\n`, `\nRELEASE_${name}='${value}'\n`] as const,
      );
      writeFileSync(
        at('served.sh'),
        lines.reduce((text, [empty, full]) => text.replace(empty, full), script),
      );
      const from = ['install', '--from', 'http://127.0.0.1:9', '--scheduler', 'h:1995'];
      return run([at('served.sh'), ...from], '', { FAKE_MACHINE: architecture });
    },
    install: async (input, env = {}) => {
      const archive = ['install', '--archive', at('longshore-9.tar.gz'), '--scheduler', '[fd00::1]:1995'];
      const ended = await run([at('install.sh'), ...archive], input, env);
      if (existsSync(at('etc/agent.env'))) expect(statSync(at('etc/agent.env')).mode & 0o777).toBe(0o600);
      return ended;
    },
  };
});

/** Settings of an environment file of this form, as systemd reads it. */
function settingsIn(text: string): Record<string, string> {
  const lines = text.split('\n').filter((line) => /^[A-Z]/.test(line));
  return Object.fromEntries(
    lines.map((line) => {
      const [, name = '', quoted, bare] = /^([A-Z_]+)=(?:"(.*)"|(.*))$/.exec(line) ?? [];
      return [name, quoted?.replaceAll(/\\(.)/g, '$1') ?? bare ?? ''];
    }),
  );
}

test('proxies of the environment, and those that follow the token, become settings of the agent; an upgrade keeps them', async ({
  machine,
}) => {
  const first = await machine.install(
    `${TOKEN}\nhttps_proxy=http://me:a"b$d\`e@proxy.example:3128\nNO_PROXY=10.0.0.0/8, .example, odd\\one\n`,
    { HTTP_PROXY: 'http://other.example:80', http_proxy: '' },
  );
  expect(first).toMatchObject({ code: 0 });
  expect(first.said).not.toContain('proxy.example');
  const wanted = {
    LONGSHORE_SCHEDULER_ADDRESS: '[fd00::1]:1995',
    HTTPS_PROXY: 'http://me:a"b$d`e@proxy.example:3128',
    HTTP_PROXY: 'http://other.example:80',
    NO_PROXY: '10.0.0.0/8, .example, odd\\one',
  };
  expect(settingsIn(machine.env())).toEqual(wanted);
  expect(loadAgentConfig({ LONGSHORE_DATA_DIR: '/x', ...settingsIn(machine.env()) })).toMatchObject(wanted);
  expect(await machine.install('')).toMatchObject({ code: 0 });
  expect(settingsIn(machine.env())).toEqual(wanted);
  expect(await machine.install('', { HTTPS_PROXY: 'http://new.example:1' })).toMatchObject({ code: 0 });
  expect(settingsIn(machine.env())).toEqual({ ...wanted, HTTPS_PROXY: 'http://new.example:1' });
});

test('an upgrade reads proxies of the settings as systemd does, fetches by them, and leaves their lines as they are', async ({
  machine,
}) => {
  expect(await machine.install(`${TOKEN}\n`)).toMatchObject({ code: 0 });
  const served = { SHA256: 'ab'.repeat(32), FILE: 'longshore-9-linux-x64.tar.gz', VERSION: '9' };
  for (const [line, value] of [
    [`HTTPS_PROXY='http://me:a"b\\c@proxy.example:3128'`, String.raw`http://me:a"b\c@proxy.example:3128`],
    [
      String.raw`HTTPS_PROXY="http://me:a\"b\$c\d@proxy.example:3128"`,
      String.raw`http://me:a"b$c\d@proxy.example:3128`,
    ],
    ['HTTPS_PROXY= http://proxy.example:3128  ', 'http://proxy.example:3128'],
  ] as const) {
    machine.set(line);
    const before = machine.env();
    expect((await machine.fetch(served, 'x86_64')).said).toContain('could not be fetched');
    expect(machine.fetchedBy(), line).toBe(value);
    expect(await machine.install('')).toMatchObject({ code: 0 });
    expect(machine.env(), line).toBe(before);
  }
});

test('a state directory that the settings name in quotes is the one that a purge empties', async ({ machine }) => {
  expect(await machine.install(`${TOKEN}\n`)).toMatchObject({ code: 0 });
  machine.set(`LONGSHORE_DATA_DIR='${machine.state}'`);
  mkdirSync(join(machine.state, 'agent'), { recursive: true });
  expect(await machine.purge()).toMatchObject({ code: 0 });
  expect(existsSync(machine.state)).toBe(false);
});

test("a purge removes the agent's own folders, and leaves what others keep beside them", async ({ machine }) => {
  expect(await machine.install(`${TOKEN}\n`)).toMatchObject({ code: 0 });
  machine.set(`LONGSHORE_DATA_DIR="${machine.state}"`);
  for (const folder of ['agent', 'cache/ws', 'volumes/ws', 'photos'])
    mkdirSync(join(machine.state, folder), { recursive: true });
  writeFileSync(join(machine.state, 'photos', 'one.jpg'), '');
  expect(await machine.purge()).toMatchObject({ code: 0 });
  expect(readdirSync(machine.state)).toEqual(['photos']);
  expect(readdirSync(join(machine.state, 'photos'))).toEqual(['one.jpg']);
});

test("a data directory that cannot be the agent's own refuses a purge and a reset, which change nothing", async ({
  machine,
}) => {
  expect(await machine.install(`${TOKEN}\n`)).toMatchObject({ code: 0 });
  // A script that would remove the root of this machine finds no program for it.
  machine.program('find', 'exit 0');
  const volume = join(machine.state, 'volumes', 'one');
  mkdirSync(volume, { recursive: true });
  for (const path of ['/', '//./', 'volumes', `${machine.state}/below/..`, '"/srv/../"']) {
    machine.set(`LONGSHORE_DATA_DIR=${path}`);
    machine.asked();
    for (const args of [['uninstall', '--purge'], ['reset'], ['reset', '--purge']]) {
      const ended = await machine.command(args);
      expect(ended, path).toMatchObject({ code: 1 });
      expect(ended.said).toContain('nothing was changed: LONGSHORE_DATA_DIR in ');
      expect(ended.said).toContain('must be an absolute path other than / and without .. in it');
    }
    expect(machine.asked(), path).not.toMatch(/stop|disable/);
  }
  expect(existsSync(volume)).toBe(true);
  expect(machine.env()).toContain('LONGSHORE_DATA_DIR=');
});

/** A stand-in for systemctl: a start fails, and the agent has ended with that status. */
const notStarting = (status: number): string =>
  `case "$*" in restart*|*is-active*) exit 3 ;; *ExecMainStatus*) echo ${status} ;; *LoadState*) echo loaded ;; *NeedDaemonReload*) echo no ;; esac`;

describe('an upgrade', () => {
  /** A machine with one release, whose agent has a link by the release that runs. */
  const upgrade = async (machine: Machine, links: (release: string) => string) => {
    expect(await machine.install(`${TOKEN}\n`)).toMatchObject({ code: 0 });
    mkdirSync(join(machine.dataDir, 'agent'), { recursive: true });
    writeFileSync(join(machine.dataDir, 'agent/machine.json'), '{}');
    const [before = ''] = machine.releases();
    machine.program('sleep', 'exit 0');
    const status = `[ "$(basename "$(readlink '${machine.current}')")" = '${before}' ] && echo "${links('before')}" || echo "${links('new')}"`;
    machine.program(
      'systemctl',
      `case "$*" in *StatusText*) ${status} ;; *LoadState*) echo loaded ;; *NeedDaemonReload*) echo no ;; *is-failed*) exit 1 ;; esac`,
    );
    await machine.pack('#!/bin/sh\n# newer\n');
    const ended = await machine.install('');
    return { ...ended, isNew: readlinkSync(machine.current) !== `releases/${before}` };
  };

  test('after which an agent that was linked is linked no more goes back', async ({ machine }) => {
    const ended = await upgrade(machine, (release) => (release === 'before' ? 'connected as 1234abcd' : 'connecting'));
    expect(ended).toMatchObject({ code: 1, isNew: false });
    expect(ended.said).toMatch(/the new release has no link to the scheduler after 90 s \(connecting\); going back/);
    expect(ended.said).toMatch(/not upgraded: the release before runs again$/);
  });

  test('of an agent without a link is good without one, because its scheduler is away', async ({ machine }) => {
    expect(await upgrade(machine, () => 'connecting')).toMatchObject({ code: 0, isNew: true });
  });

  test('that goes back to a release without a link says that the scheduler is away', async ({ machine }) => {
    const once = join(machine.dataDir, 'once');
    const ended = await upgrade(machine, (release) =>
      // The scheduler goes away while the new release starts.
      release === 'before'
        ? `$([ -e ${once} ] && printf connecting || { touch ${once}; printf connected; })`
        : 'connecting',
    );
    expect(ended).toMatchObject({ code: 1, isNew: false });
    expect(ended.said).toMatch(/and has no link either \(connecting\)\. Run this again once the scheduler answers$/);
  });
});

test('a refused token is named by the last line, and is kept nowhere', async ({ machine }) => {
  machine.program('systemctl', notStarting(78));
  machine.program(
    'journalctl',
    "echo '{}'; echo 'longshore-agent: the scheduler refused the join token (used already)'",
  );
  const ended = await machine.install(`${TOKEN}\n`);
  expect(ended).toMatchObject({ code: 1 });
  expect(ended.said.split('\n').at(-1)).toBe(
    'longshore-agent: the agent does not run: the scheduler refused the join token (used already)',
  );
  expect(machine.joinToken()).toBe('');
});

test('a host whose Docker is down keeps its token, and joins once Docker answers', async ({ machine }) => {
  machine.program('systemctl', notStarting(69));
  const ended = await machine.install(`${TOKEN}\n`);
  expect(ended).toMatchObject({ code: 1 });
  expect(ended.said.split('\n').at(-1)).toContain('no Docker Engine answers, so the agent cannot run. Start Docker');
  expect(machine.joinToken()).toBe(`${TOKEN}\n`);
});

test('other lines than a token and proxies are refused, and nothing is installed', async ({ machine }) => {
  for (const input of ['host-of-a-list\n', `${TOKEN}\nPATH=/tmp\n`]) {
    const { code, said } = await machine.install(input);
    expect({ code, said }).toMatchObject({ code: 1, said: expect.stringContaining('no join token') as string });
  }
  expect(machine.joinToken()).toBe('');
});

/** The first bytes of a program, as the kernel reads them; `machine`: of its architecture. */
const program = (machine: number): Buffer =>
  Buffer.concat([Buffer.from('7f454c46020101', 'hex'), Buffer.alloc(11), Buffer.from([machine, 0]), Buffer.alloc(44)]);

test.for([
  ['x86_64', 0x3e, 0xb7],
  ['aarch64', 0xb7, 0x3e],
] as const)('%s takes an archive of its architecture alone', async ([name, own, others], { machine }) => {
  await machine.pack(program(others));
  const wrong = await machine.install('', { FAKE_MACHINE: name });
  expect(wrong).toMatchObject({ code: 1 });
  expect(wrong.said).toContain(`the release is for another architecture than this machine's, ${name}`);
  await machine.pack(program(own));
  expect(await machine.install('', { FAKE_MACHINE: name })).toMatchObject({ code: 0 });
});

test('a machine of an architecture without releases is told so', async ({ machine }) => {
  const riscv = await machine.install('', { FAKE_MACHINE: 'riscv64' });
  expect(riscv).toMatchObject({ code: 1 });
  expect(riscv.said).toContain('there is no release for Linux on riscv64, only for Linux on x86_64 and aarch64');
});

test('a script of a scheduler takes the hash of its architecture, and ends before it fetches where that has none', async ({
  machine,
}) => {
  const served = { SHA256: 'ab'.repeat(32), FILE: 'longshore-9-linux-x64.tar.gz', VERSION: '9' };
  const lacking = await machine.fetch(served, 'aarch64');
  expect(lacking).toMatchObject({ code: 1 });
  expect(lacking.said).toContain('this scheduler gives out no release for aarch64');
  // No server listens there; the output names the file that it would fetch.
  expect((await machine.fetch(served, 'x86_64')).said).toContain('longshore-9-linux-x64.tar.gz could not be fetched');
  const arm = { ARM64_SHA256: 'cd'.repeat(32), ARM64_FILE: 'longshore-9-linux-arm64.tar.gz', ARM64_VERSION: '9' };
  const both = await machine.fetch({ ...served, ...arm }, 'aarch64');
  expect(both.said).toContain('longshore-9-linux-arm64.tar.gz could not be fetched');
});

test("an agent whose data directory is elsewhere waits for that disk's mount, and never starts beside it", async ({
  machine,
}) => {
  const dropIn = join(machine.state, '../units/longshore-agent.service.d/10-longshore-state-disk.conf');
  expect((await machine.install(TOKEN)).code).toBe(0);
  expect(existsSync(dropIn)).toBe(false);
  machine.set('LONGSHORE_DATA_DIR="/mnt/nvme/longshore"');
  expect((await machine.install('')).code).toBe(0);
  expect(readFileSync(dropIn, 'utf8')).toContain('[Unit]\nRequiresMountsFor=/mnt/nvme/longshore\n');
  expect(readFileSync(dropIn, 'utf8')).toContain('[Service]\nReadWritePaths=-/mnt/nvme/longshore\n');
  machine.set('LONGSHORE_DATA_DIR=');
  expect((await machine.install('')).code).toBe(0);
  expect(existsSync(dropIn)).toBe(false);
});

test('the unit that resets GPUs waits on every host, follows the data directory, and goes with the agent', async ({
  machine,
}) => {
  const units = join(machine.state, '../units');
  const dropIn = (unit: string): string => join(units, `${unit}.d/10-longshore-state-disk.conf`);
  expect((await machine.install(TOKEN)).code).toBe(0);
  expect(machine.asked()).toMatch(/^restart longshore-gpu-reset\.path$/m);
  for (const unit of RESET_UNITS)
    expect(readFileSync(join(units, unit), 'utf8')).toBe(readFileSync(join(SCRIPT, '..', unit), 'utf8'));
  expect(readdirSync(units).toSorted()).toEqual([AGENT_DRAIN, AGENT, MOUNTS, ...RESET_UNITS].toSorted());
  machine.set('LONGSHORE_DATA_DIR="/mnt/nvme/longshore"');
  expect((await machine.install('')).code).toBe(0);
  const folder = '/mnt/nvme/longshore/agent/gpu-reset';
  expect(readFileSync(dropIn('longshore-gpu-reset.path'), 'utf8')).toContain(
    `[Path]\nPathExists=\nPathExists=${folder}/request\n`,
  );
  expect(readFileSync(dropIn('longshore-gpu-reset.service'), 'utf8')).toContain(
    `[Service]\nWorkingDirectory=${folder}\nReadWritePaths=-${folder}\n`,
  );
  machine.asked();
  expect(await machine.command(['uninstall'])).toMatchObject({ code: 0 });
  expect(machine.asked()).toMatch(/^disable --now .*longshore-gpu-reset\.path$/m);
  expect(readdirSync(units)).toEqual([]);
});

test("the agent's unit starts after the engine and after what sets NVIDIA's devices up", () => {
  const unit = readFileSync(join(SCRIPT, '..', 'longshore-agent.service'), 'utf8');
  const after = /^After=(.*)$/m.exec(unit)?.[1]?.split(' ');
  expect(after).toEqual(
    expect.arrayContaining(['docker.service', 'nvidia-persistenced.service', 'nvidia-fabricmanager.service']),
  );
});

test('an image of a disk has an agent that never ran; a token joins its hosts, and is left nowhere', async ({
  machine,
}) => {
  const archive = ['install', '--no-start', '--archive', join(machine.dataDir, '../longshore-9.tar.gz')];
  const prepared = await machine.command(archive, `${TOKEN}\n`);
  expect(prepared).toMatchObject({ code: 0 });
  expect(prepared.said).toContain('is installed and does not run');
  expect(machine.asked()).not.toMatch(/^(re)?start|^enable/m);
  expect(machine.joinToken()).toBe('');
  expect(await machine.command(['join', '--scheduler', 'h:1995'])).toMatchObject({ code: 1 });
  const token = 'lse1.fingerprint.secret';
  const argument = await machine.command(['join', '--scheduler', 'h:1995', token]);
  expect(argument).toMatchObject({ code: 1 });
  expect(argument.said).toContain('a join token is no argument');
  const file = join(machine.dataDir, '../given-token');
  writeFileSync(file, `${token}\n`, { mode: 0o600 });
  const joined = await machine.command(['join', '--scheduler', 'h:1995'], '', { LONGSHORE_JOIN_TOKEN_FILE: file });
  expect(joined).toMatchObject({ code: 0 });
  expect(joined.said).toContain('connected as 1234abcd');
  expect(machine.asked()).toMatch(/^restart longshore-agent\.service$/m);
  expect(settingsIn(machine.env())).toMatchObject({ LONGSHORE_SCHEDULER_ADDRESS: 'h:1995' });
  expect(machine.joinToken()).toBe('');
});

test('a reset forgets which machine the host is, and keeps volumes unless told otherwise', async ({ machine }) => {
  expect(await machine.install(`${TOKEN}\n`)).toMatchObject({ code: 0 });
  const [identity, volume] = [join(machine.dataDir, 'agent/machine.json'), join(machine.dataDir, 'volumes/one')];
  for (const path of [identity, volume]) {
    mkdirSync(join(path, '..'), { recursive: true });
    writeFileSync(path, '');
  }
  machine.asked();
  expect(await machine.command(['reset'])).toMatchObject({ code: 0 });
  expect(machine.asked()).toMatch(/^disable --now .*longshore-agent\.service/m);
  expect([existsSync(identity), existsSync(volume)]).toEqual([false, true]);
  expect(await machine.command(['reset', '--purge'])).toMatchObject({ code: 0 });
  expect(existsSync(volume)).toBe(false);
});

/** A key of its own for each test that asks for one. */
const signed = test.extend('keys', async ({ machine }, { onCleanup }): Promise<readonly [SigningKey, SigningKey]> => {
  const homes = join(machine.dataDir, '..');
  const own = await signingKey(homes, 'releases@longshore.example');
  const other = await signingKey(homes, 'other@longshore.example');
  onCleanup(async () => void (await Promise.all([own.end(), other.end()])));
  return [own, other];
});

signed('a host with a key takes the archive that the key has signed, and no other', async ({ machine, keys }) => {
  const [own, other] = keys;
  await own.exportTo(machine.keys);
  const refused = async (why: string): Promise<void> => {
    const ended = await machine.install(`${TOKEN}\n`);
    expect(ended, why).toMatchObject({ code: 1 });
    expect(ended.said).toContain(why);
    expect(machine.releases(), why).toEqual([]);
    expect(machine.joinToken(), why).toBe('');
  };
  await refused('has no signature beside it');
  await other.sign(machine.archive);
  await refused('is not signed by a key of');
  writeFileSync(`${machine.archive}.asc`, '');
  await refused('is not signed by a key of');
  await own.sign(machine.archive);
  const before = readFileSync(machine.archive);
  writeFileSync(machine.archive, Buffer.concat([before, Buffer.from('\0')]));
  await refused('is not signed by a key of');
  writeFileSync(machine.archive, before);
  // A key that is emptied is no leave to install anything.
  const key = readFileSync(machine.keys);
  writeFileSync(machine.keys, '');
  await refused('is not signed by a key of');
  writeFileSync(machine.keys, key);
  expect(await machine.install(`${TOKEN}\n`)).toMatchObject({ code: 0 });
});

signed(
  'a release of a scheduler needs the signature as well, which comes from beside it',
  async ({ machine, keys }) => {
    const [own, other] = keys;
    const sha256 = (await execa('sha256sum', [machine.archive])).stdout.slice(0, 64);
    const served = { SHA256: sha256, FILE: 'longshore-9-linux-x64.tar.gz', VERSION: '9' };
    await own.exportTo(machine.keys);
    // The scheduler's folder, by a stand-in for the download.
    machine.program(
      'curl',
      `for one; do case "$last" in -o) to=$one ;; esac; last=$one; done; case "$last" in *.asc) cp '${machine.archive}.asc' "$to" ;; *) cp '${machine.archive}' "$to" ;; esac`,
    );
    expect((await machine.fetch(served, 'x86_64')).said).toContain('.asc could not be fetched');
    await other.sign(machine.archive);
    expect((await machine.fetch(served, 'x86_64')).said).toContain('is not signed by a key of');
    expect(machine.releases()).toEqual([]);
    await own.sign(machine.archive);
    expect(await machine.fetch(served, 'x86_64')).toMatchObject({ code: 0 });
  },
);
