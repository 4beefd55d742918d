// Scripts of the Debian package of the agent, run by a shell in a directory of its own. The programs of the system are
// stand-ins; test/hosts/debian-agent.test.ts has the real ones.
// vitest reads a fixture's needs from the pattern of its first parameter, which may be empty and not left out.
/* oxlint-disable no-empty-pattern */
import { chmodSync, existsSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { execa } from 'execa';
import { expect, test as base } from 'vitest';
import { tempDirectory } from '../helpers/services.ts';

const ROOT = join(import.meta.dirname, '../..');
const AGENT = 'longshore-agent.service';

interface Ended {
  readonly code: number | undefined;
  readonly said: string;
}

interface Host {
  readonly at: (...parts: readonly string[]) => string;
  /** Puts a stand-in in the place of a program of the system. */
  readonly program: (name: string, text: string) => void;
  readonly write: (path: string, text: string) => void;
  /** Runs a script of the package. */
  readonly run: (script: 'longshore-agent.sh' | 'postrm', argument: string) => Promise<Ended>;
}

const test = base.extend('host', async ({}, { onCleanup }): Promise<Host> => {
  const made = tempDirectory('debian-scripts');
  onCleanup(() => made.remove());
  const at = (...parts: readonly string[]): string => join(made.path, ...parts);
  const here = (text: string): string =>
    text
      .replaceAll('/usr/lib/longshore-agent', at('lib/longshore-agent'))
      .replace('ROOT=/usr/lib\n', `ROOT=${at('lib')}\n`)
      .replaceAll('/etc/longshore-agent', at('etc'))
      .replaceAll('/var/lib/longshore-agent', at('state'))
      .replaceAll('/run/', `${at('run')}/`);
  const write = (path: string, text: string): void => {
    mkdirSync(dirname(at(path)), { recursive: true });
    writeFileSync(at(path), text);
  };
  const program = (name: string, text: string): void => {
    write(`bin/${name}`, `#!/bin/sh\n${text}\n`);
    chmodSync(at('bin', name), 0o755);
  };
  const units = 'lib/longshore-agent/systemd';
  write(`${units}/install-agent.sh`, here(readFileSync(join(ROOT, 'systemd/install-agent.sh'), 'utf8')));
  for (const name of ['agent.env', 'mounts.env'])
    write(`${units}/${name}`, readFileSync(join(ROOT, 'systemd', name), 'utf8'));
  mkdirSync(at('run/systemd/system'), { recursive: true });
  program('id', 'echo 0');
  program('journalctl', 'echo journal');
  return {
    at,
    program,
    write,
    run: async (script, argument) => {
      write(script, here(readFileSync(join(ROOT, 'deploy/debian/agent', script), 'utf8')));
      const { exitCode, all } = await execa('sh', [at(script), argument], {
        cwd: made.path,
        all: true,
        reject: false,
        extendEnv: false,
        env: { PATH: `${at('bin')}:${process.env['PATH'] ?? ''}` },
      });
      return { code: exitCode, said: all };
    },
  };
});

/** A stand-in for systemctl: the agent does not start, and has ended with that status. It writes down its calls. */
const notStarting = (status: number, asked: string): string =>
  `echo "$*" >> '${asked}'; case "$*" in restart*) exit 1 ;; *ExecMainStatus*) echo ${status} ;; *LoadState*) echo loaded ;; *NeedDaemonReload*) echo no ;; esac`;

test('a package is configured while Docker is down: it says what to do, and systemd starts the agent later', async ({
  host,
}) => {
  host.write('state/agent/machine.json', '{}');
  host.program('systemctl', notStarting(69, host.at('asked')));
  const ended = await host.run('longshore-agent.sh', 'configure');
  expect(ended).toMatchObject({ code: 0 });
  expect(ended.said).toContain('no Docker Engine answers, so the agent cannot run. Start Docker');
  const asked = readFileSync(host.at('asked'), 'utf8');
  expect(asked).toContain(`restart ${AGENT}\n`);
  // The drain unit is there when the host goes down.
  expect(asked).toContain('start longshore-agent-drain.service\n');
  expect(asked).not.toMatch(/^stop|disable.* longshore-agent/m);
});

test('a package whose agent does not start for another reason fails', async ({ host }) => {
  host.write('state/agent/machine.json', '{}');
  for (const status of [1, 78]) {
    host.program('systemctl', notStarting(status, host.at('asked')));
    const ended = await host.run('longshore-agent.sh', 'configure');
    expect(ended, String(status)).toMatchObject({ code: 1 });
    expect(ended.said).toContain('the agent does not start');
  }
});

test("a purge removes the agent's own folders of the data directory, and leaves what others keep there", async ({
  host,
}) => {
  for (const [line, folder] of [
    [`LONGSHORE_DATA_DIR='${host.at('my data')}'`, 'my data'],
    [`LONGSHORE_DATA_DIR="${host.at('data')}"`, 'data'],
    [`LONGSHORE_DATA_DIR=${host.at('plain')}/  `, 'plain'],
    ['#LONGSHORE_DATA_DIR=', 'state'],
  ] as const) {
    host.write('etc/agent.env', `A=1\n${line}\n`);
    for (const path of ['agent/machine.json', 'cache/ws/one', 'volumes/ws/one', 'photos/one.jpg'])
      host.write(`${folder}/${path}`, '');
    for (const path of ['state/agent/journal.json', 'my/agent/one']) host.write(path, '');
    expect(await host.run('postrm', 'purge'), line).toMatchObject({ code: 0 });
    expect(readdirSync(host.at(folder)), line).toEqual(['photos']);
    expect(readdirSync(host.at(folder, 'photos'))).toEqual(['one.jpg']);
    expect(existsSync(host.at('state/agent'))).toBe(false);
    expect(existsSync(host.at('my/agent/one'))).toBe(true);
    expect(existsSync(host.at('etc'))).toBe(false);
  }
});

test("a data directory that cannot be the agent's own refuses the purge, which changes nothing", async ({ host }) => {
  // A script that would remove the root of this machine finds no program for it.
  host.program('find', 'exit 0');
  host.write('volumes/ws/one', '');
  for (const path of ['/', '"//./"', '.', 'volumes', `'${host.at('below')}/..'`]) {
    host.write('etc/agent.env', `LONGSHORE_DATA_DIR=${path}\n`);
    const ended = await host.run('postrm', 'purge');
    expect(ended, path).toMatchObject({ code: 1 });
    expect(ended.said).toContain('nothing was changed: LONGSHORE_DATA_DIR in ');
    expect(existsSync(host.at('etc/agent.env'))).toBe(true);
  }
  expect(existsSync(host.at('volumes/ws/one'))).toBe(true);
});
