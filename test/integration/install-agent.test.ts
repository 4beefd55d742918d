// The installer of the agent, run by a shell in a directory of its own: what it makes of its input and of the machine. The programs of the system that it asks are stand-ins; test/hosts/systemd.test.ts has the real ones.
// vitest reads a fixture's needs from the pattern of its first parameter, which may be empty and not left out.
/* oxlint-disable no-empty-pattern */
import { chmodSync, existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { execa } from 'execa';
import { expect, test as base } from 'vitest';
import { loadAgentConfig } from '../../agent/config.ts';
import { tempDirectory } from '../helpers/services.ts';

const SCRIPT = join(import.meta.dirname, '../../systemd/install-agent.sh');
const TOKEN = 'lsj1.fingerprint.secret';

interface Machine {
  readonly env: () => string;
  readonly joinToken: () => string;
  /** Runs the installer. @returns its status and what it said */
  readonly install: (input: string, env?: Readonly<Record<string, string>>) => Promise<{ code: number | undefined; said: string }>;
}

const test = base.extend('machine', async ({}, { onCleanup }): Promise<Machine> => {
  const made = tempDirectory('install');
  onCleanup(() => made.remove());
  const at = (...parts: readonly string[]): string => join(made.path, ...parts);
  for (const name of ['bin', 'run', 'etc', 'opt/releases', 'state', 'units', 'local/bin', 'local/sbin'])
    mkdirSync(at(name), { recursive: true });
  const script = readFileSync(SCRIPT, 'utf8')
    .replace('ROOT=/opt/longshore', `ROOT=${at('opt')}`)
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
  program(
    'systemctl',
    `case "$*" in *StatusText*) echo "connected as 1234abcd" ;; *LoadState*) echo loaded ;; *NeedDaemonReload*) echo no ;; esac`,
  );
  // A release in the form that an archive has.
  for (const name of ['release/bin', 'release/systemd']) mkdirSync(at(name), { recursive: true });
  writeFileSync(at('release/bin/node'), '#!/bin/sh\n', { mode: 0o755 });
  for (const name of ['agent.env', 'longshore-agent.service', 'longshore-agent-drain.service'])
    writeFileSync(at('release/systemd', name), readFileSync(join(SCRIPT, '..', name)));
  await execa('tar', ['-czf', at('longshore-9.tar.gz'), '-C', made.path, 'release']);
  return {
    env: () => readFileSync(at('etc/agent.env'), 'utf8'),
    joinToken: () => (existsSync(at('etc/join-token')) ? readFileSync(at('etc/join-token'), 'utf8') : ''),
    install: async (input, env = {}) => {
      const args = [at('install.sh'), 'install', '--archive', at('longshore-9.tar.gz'), '--scheduler', '[fd00::1]:1995'];
      const { exitCode, all } = await execa('sh', args, {
        input,
        all: true,
        reject: false,
        extendEnv: false,
        env: { PATH: `${at('bin')}:${process.env['PATH'] ?? ''}`, ...env },
      });
      if (existsSync(at('etc/agent.env'))) expect(statSync(at('etc/agent.env')).mode & 0o777).toBe(0o600);
      return { code: exitCode, said: all };
    },
  };
});

/** As systemd reads an environment file of this form. */
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
    `${TOKEN}\nhttps_proxy=http://me:a"b\\c$d\`e@proxy.example:3128\nNO_PROXY=10.0.0.0/8, .example\n`,
    { HTTP_PROXY: 'http://other.example:80', http_proxy: '' },
  );
  expect(first).toMatchObject({ code: 0 });
  expect(first.said).not.toContain('proxy.example');
  const wanted = {
    LONGSHORE_SCHEDULER_ADDRESS: '[fd00::1]:1995',
    HTTPS_PROXY: 'http://me:a"b\\c$d`e@proxy.example:3128',
    HTTP_PROXY: 'http://other.example:80',
    NO_PROXY: '10.0.0.0/8, .example',
  };
  expect(settingsIn(machine.env())).toEqual(wanted);
  expect(loadAgentConfig({ LONGSHORE_DATA_DIR: '/x', ...settingsIn(machine.env()) })).toMatchObject(wanted);
  expect(await machine.install('')).toMatchObject({ code: 0 });
  expect(settingsIn(machine.env())).toEqual(wanted);
  expect(await machine.install('', { HTTPS_PROXY: 'http://new.example:1' })).toMatchObject({ code: 0 });
  expect(settingsIn(machine.env())).toEqual({ ...wanted, HTTPS_PROXY: 'http://new.example:1' });
});

test('other lines than a token and proxies are refused, and nothing is installed', async ({ machine }) => {
  for (const input of ['host-of-a-list\n', `${TOKEN}\nPATH=/tmp\n`]) {
    const { code, said } = await machine.install(input);
    expect({ code, said }).toMatchObject({ code: 1, said: expect.stringContaining('no join token') as string });
  }
  expect(machine.joinToken()).toBe('');
});
