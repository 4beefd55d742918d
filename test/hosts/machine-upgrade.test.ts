// `machine upgrade --pool` as a process, against a small server that answers as the gateway does. The operator's
// command is a script that upgrades a simulated machine, or fails.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { appendFileSync, chmodSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join, resolve } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { expect, onTestFinished, test } from 'vitest';
import { tempDirectory } from '../helpers/programs.ts';

const MAIN = resolve(import.meta.dirname, '..', '..', 'cli', 'main.ts');
const SCRIPT = "#!/bin/sh\nRELEASE_VERSION='2.0.0'\n";

interface Host {
  readonly id: string;
  readonly status?: string;
  readonly version?: string;
  readonly hostname?: string;
  /** Conditions before the upgrade, and after. */
  readonly conditions?: readonly (readonly string[])[];
}

/** A pool of machines. A line `ID` in the file of upgrades gives the machine the new version. */
async function aPool(hosts: readonly Host[], script: string | null = SCRIPT) {
  const directory = tempDirectory('pool');
  const upgraded = join(directory.path, 'upgraded');
  const tool = join(directory.path, 'tool');
  const server = createServer((request, response) => {
    const asked = new URL(request.url ?? '', 'http://x');
    const id = asked.searchParams.get('machineId');
    const done = existsSync(upgraded) ? readFileSync(upgraded, 'utf8').split('\n') : [];
    const machines = hosts
      .filter((host) => id === null || host.id === id)
      .map((host) => ({
        id: host.id,
        status: host.status ?? 'available',
        agentVersion: done.includes(host.id) ? '2.0.0' : (host.version ?? '1.0.0'),
        lastKeepalive: new Date().toISOString(),
        conditions: host.conditions?.[done.includes(host.id) ? 1 : 0] ?? [],
        host: id === null ? null : { hostname: host.hostname ?? `host-${host.id}` },
      }));
    const isScript = asked.pathname === '/install/agent';
    response.writeHead(isScript && script === null ? 404 : 200, { 'content-type': 'application/json' });
    response.end(isScript ? (script ?? '{}') : JSON.stringify({ ok: true, machines }));
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
    directory.remove();
  });
  const address = server.address();
  const port = typeof address === 'object' && address !== null ? address.port : 0;
  return {
    upgraded,
    tool,
    /** The operator's program: its text, with the machine's name in `$1`. */
    program: (text: string) => {
      writeFileSync(tool, `#!/bin/sh\n${text}\n`);
      chmodSync(tool, 0o755);
    },
    run: async (...args: readonly string[]) => {
      const child = spawn(process.execPath, [MAIN, 'machine', 'upgrade', ...args], {
        env: {
          ...process.env,
          LONGSHORE_URL: `http://127.0.0.1:${port}`,
          LONGSHORE_TOKEN: 'eyJ.test',
          LONGSHORE_CONTEXT_FILE: join(directory.path, 'contexts.json'),
        },
        stdio: ['ignore', 'pipe', 'pipe'],
      });
      const [stdout, stderr, [code]] = await Promise.all([
        buffer(child.stdout),
        buffer(child.stderr),
        once(child, 'close') as Promise<[number]>,
      ]);
      return { code, stdout: stdout.toString(), stderr: stderr.toString() };
    },
  };
}

test('goes machine by machine with the line on standard input, and leaves alone what is new or away', async () => {
  const pool = await aPool([
    { id: 'a' },
    { id: 'b', version: '2.0.0' },
    { id: 'c', status: 'registered' },
    { id: 'd', hostname: 'gpu-4.example' },
  ]);
  pool.program(`grep -q 'sudo sh' && echo "$2" >> '${pool.upgraded}' && echo "$1" >> '${pool.upgraded}'`);
  const ended = await pool.run('--pool', 'gpu', '--run', `${pool.tool} {host} {id}`, '--json');
  expect(JSON.parse(ended.stdout)).toEqual({
    versions: ['2.0.0'],
    upgraded: ['a', 'd'],
    already: ['b'],
    away: ['c'],
    failed: null,
    failures: [],
    notTried: [],
  });
  expect(ended.code).toBe(0);
  expect(ended.stderr).toContain('1 of 2: a (host-a), the canary is connected with 2.0.0');
  expect(readFileSync(pool.upgraded, 'utf8')).toBe('a\nhost-a\nd\ngpu-4.example\n');
});

test('stops at the first machine that fails, names it, and goes on from there when it is run again', async () => {
  const pool = await aPool([{ id: 'a' }, { id: 'b' }, { id: 'c' }]);
  pool.program(`[ "$1" != b ] || { echo 'no route to host' >&2; exit 7; }; echo "$1" >> '${pool.upgraded}'`);
  const args = ['--pool', 'gpu', '--run', `${pool.tool} {id}`, '--json'];
  const first = await pool.run(...args);
  expect(first.code).toBe(1);
  expect(first.stderr).toMatch(
    /machine b \(host-b\) is not upgraded: .* ended with 7: no route to host\. 1 more were not tried/,
  );
  expect(JSON.parse(first.stdout)).toMatchObject({ upgraded: ['a'], failed: { machineId: 'b' }, notTried: ['c'] });
  expect(readFileSync(pool.upgraded, 'utf8')).toBe('a\n');
  pool.program(`echo "$1" >> '${pool.upgraded}'`);
  const second = await pool.run(...args);
  expect(JSON.parse(second.stdout)).toMatchObject({ upgraded: ['b', 'c'], already: ['a'], failed: null });
});

test('goes through several at once after the canary, and stops when so many have failed', async () => {
  const hosts = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'].map((id) => ({ id }));
  const pool = await aPool(hosts);
  // Each command waits until three run at once; the canary runs alone.
  const running = `${pool.upgraded}-running`;
  const meet = `echo "$1" >> '${running}'; [ "$1" = a ] || while [ $(wc -l < '${running}') -lt 4 ]; do sleep 0.05; done`;
  const args = ['--pool', 'gpu', '--run', `${pool.tool} {id}`, '--parallel', '3', '--deadline', '20', '--json'];
  pool.program(`${meet}; case "$1" in c|d) exit 7;; esac; echo "$1" >> '${pool.upgraded}'`);
  const ended = await pool.run(...args, '--max-failures', '2');
  expect(ended.code).toBe(1);
  const result = JSON.parse(ended.stdout) as {
    upgraded: string[];
    failures: { machineId: string }[];
    notTried: string[];
  };
  expect(result.upgraded).toEqual(expect.arrayContaining(['a', 'b']));
  expect(result.failures.map(({ machineId }) => machineId).toSorted()).toEqual(['c', 'd']);
  expect(ended.stderr).toMatch(/machine [cd] .* is not upgraded: .*; nor are 1 more: [cd]/);
  // Machines under way when the second one failed were brought to their end, and no other began.
  expect([...result.upgraded, 'c', 'd', ...result.notTried].toSorted()).toEqual(hosts.map(({ id }) => id));
  expect(result.notTried.length).toBeGreaterThanOrEqual(3);
});

test('a canary that fails ends it at once, however many may fail', async () => {
  const pool = await aPool([{ id: 'a' }, { id: 'b' }, { id: 'c' }]);
  pool.program('exit 7');
  const args = ['--pool', 'gpu', '--run', pool.tool, '--parallel', '2', '--max-failures', '3', '--json'];
  const ended = await pool.run(...args);
  expect(JSON.parse(ended.stdout)).toMatchObject({ upgraded: [], failed: { machineId: 'a' }, notTried: ['b', 'c'] });
});

test('a command that succeeds without an upgrade is a failure after the deadline', async () => {
  const pool = await aPool([{ id: 'a' }, { id: 'b' }]);
  pool.program('cat > /dev/null');
  const ended = await pool.run('--pool', 'gpu', '--run', pool.tool, '--deadline', '1');
  expect(ended.code).toBe(1);
  expect(ended.stderr).toContain(
    'its agent is not in service with 2.0.0 within 1 s (now available, agent 1.0.0). 1 more were not tried',
  );
});

test('stops at a machine that takes no containers with the new agent, and names the condition', async () => {
  const pool = await aPool([{ id: 'b', conditions: [['ClockSkew'], ['ClockSkew', 'EngineCannotStart']] }, { id: 'c' }]);
  pool.program(`echo "$1" >> '${pool.upgraded}'`);
  const ended = await pool.run('--pool', 'gpu', '--run', `${pool.tool} {id}`, '--deadline', '1', '--json');
  expect(ended.code).toBe(1);
  expect(ended.stderr).toContain(
    'with the new agent it takes no containers: EngineCannotStart, which it had not before (now available, agent 2.0.0',
  );
  expect(JSON.parse(ended.stdout)).toMatchObject({ upgraded: [], failed: { machineId: 'b' }, notTried: ['c'] });
});

test('a command that does not end is killed at the deadline', async () => {
  const pool = await aPool([{ id: 'a' }]);
  pool.program('exec sleep 600');
  const ended = await pool.run('--pool', 'gpu', '--run', pool.tool, '--deadline', '1');
  expect(ended.stderr).toContain('did not end within 1 s');
});

test('a hostname that is an option is in no command', async () => {
  const pool = await aPool([{ id: 'a', hostname: '-oProxyCommand=true' }]);
  pool.program(`echo called >> '${pool.upgraded}'`);
  const ended = await pool.run('--pool', 'gpu', '--run', `${pool.tool} {host}`);
  expect(ended.stderr).toContain('is none that a command may get as {host}: use {id}');
  expect(existsSync(pool.upgraded)).toBe(false);
});

test('without a release the version is named, and the flags need each other', async () => {
  const pool = await aPool([{ id: 'a' }], null);
  pool.program('exit 0');
  expect((await pool.run('--pool', 'gpu', '--run', pool.tool)).stderr).toContain('--to names it');
  appendFileSync(pool.upgraded, 'a\n');
  const named = await pool.run('--pool', 'gpu', '--run', pool.tool, '--to', '2.0.0');
  expect(named).toMatchObject({ code: 0, stdout: 'gpu: 0 machines upgraded, 1 machine had the version before\n' });
  expect(await pool.run('--pool', 'gpu')).toMatchObject({ code: 2 });
  expect(await pool.run('--to', '2.0.0')).toMatchObject({ code: 2 });
});
