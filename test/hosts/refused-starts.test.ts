// Daemons that cannot start, as a service manager starts them. They print one sentence with the cure on stderr, and
// exit with a code other than 0. Nothing is left running. (`longshore up` has the same in up-refused.test.ts.)
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, existsSync, mkdirSync, mkdtempSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import type { Server } from 'node:net';
import { delimiter, join } from 'node:path';
import { describe, expect } from 'vitest';
import { TEST_NODE_FLAGS } from '../helpers/node-flags.ts';
import { baseImageOf, MAIN, plainEnv, processesNaming, test } from '../helpers/platform.ts';
import type { Platform } from '../helpers/platform.ts';
import { findProgram, waitFor } from '../helpers/services.ts';

interface Refused {
  readonly code: number | null;
  /** Output that is no line of the daemon's log. */
  readonly said: string;
  /** Lines of the daemon's log. */
  readonly logged: string;
  readonly dataDir: string;
  /** Processes that named that directory before. */
  readonly pidsBefore: ReadonlySet<number>;
}

const GIVE_UP_MS = 40_000;
const isRoot = process.getuid?.() === 0;

/** Runs a daemon that is expected to end by itself, in a data directory of its own. */
async function refused(
  platform: Platform,
  name: 'scheduler' | 'agent',
  env: NodeJS.ProcessEnv,
  asNobody = false,
): Promise<Refused> {
  const dataDir = env['LONGSHORE_DATA_DIR'] ?? mkdtempSync(join(platform.directory, 'd-'));
  if (asNobody && existsSync(dataDir)) chmodSync(dataDir, 0o777);
  // Root may do everything, so the daemon runs as another user. Such a user
  // may search directories, so that it can read the program at any path.
  const become = ['--reuid=65534', '--regid=65534', '--clear-groups'];
  const read = ['--inh-caps=+dac_read_search', '--ambient-caps=+dac_read_search'];
  const [command, before] =
    asNobody && isRoot
      ? [findProgram('setpriv') ?? 'setpriv', [...become, ...read, '--', process.execPath]]
      : [process.execPath, []];
  const pidsBefore = new Set(processesNaming(dataDir).map(({ pid }) => pid));
  const child = spawn(command, [...before, ...TEST_NODE_FLAGS, MAIN, name], {
    env: {
      ...plainEnv(),
      HOME: platform.directory,
      LONGSHORE_HTTP_ADDRESS: '127.0.0.1:0',
      LONGSHORE_AGENT_ADDRESS: '127.0.0.1:0',
      LONGSHORE_AGENT_METRICS_ADDRESS: '127.0.0.1:0',
      LONGSHORE_SCHEDULER_ADDRESS: platform.agentAddress,
      LONGSHORE_BASE_IMAGE: baseImageOf(platform.engine),
      ...env,
      LONGSHORE_DATA_DIR: dataDir,
    },
    stdio: ['ignore', 'ignore', 'pipe'],
    timeout: GIVE_UP_MS,
    killSignal: 'SIGKILL',
  });
  let text = '';
  child.stderr.setEncoding('utf8').on('data', (part: string) => (text += part));
  const [code] = (await once(child, 'close')) as [number | null];
  const lines = text.split('\n').filter((line) => line !== '');
  const isLogged = (line: string): boolean => line.startsWith('{');
  const said = lines.filter((line) => !isLogged(line)).join('\n');
  const logged = lines.filter(isLogged).join('\n');
  return { code, said, logged, dataDir, pidsBefore };
}

/** Expects a single line with the program's name and the words, that exit code, and no process left. */
async function expectSentence(result: Refused, code: number, ...words: readonly string[]): Promise<void> {
  expect(result.said).toMatch(/^longshore: [^\n]+$/);
  for (const word of words) expect(result.said).toContain(word);
  expect(result.code).toBe(code);
  await waitFor(
    () => processesNaming(result.dataDir).every(({ pid }) => result.pidsBefore.has(pid)),
    'nothing runs that did not before',
  );
}

async function aTakenPort(): Promise<{ readonly server: Server; readonly address: string }> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  return { server, address: `127.0.0.1:${typeof address === 'object' && address !== null ? address.port : 0}` };
}

async function joinToken(platform: Platform): Promise<string> {
  const machine = await platform.gateway('/machines', { poolName: 'default' });
  return String(machine['agentUpstreamToken']);
}

describe('a scheduler that cannot start', () => {
  for (const setting of ['LONGSHORE_HTTP_ADDRESS', 'LONGSHORE_AGENT_ADDRESS'])
    test(`because the port of ${setting} is taken says which, and the way out`, async ({ platform }) => {
      const { server, address } = await aTakenPort();
      const result = await refused(platform, 'scheduler', { [setting]: address });
      server.close();
      await expectSentence(result, 1, address, setting);
      expect(processesNaming(result.dataDir)).toEqual([]);
    });

  test('because its data directory is read-only says so', async ({ platform }) => {
    const parent = mkdtempSync(join(platform.directory, 'd-'));
    chmodSync(parent, 0o555);
    const result = await refused(platform, 'scheduler', { LONGSHORE_DATA_DIR: join(parent, 'data') }, true);
    await expectSentence(result, 1, join(parent, 'data'), 'LONGSHORE_DATA_DIR');
    expect(existsSync(join(parent, 'data'))).toBe(false);
  });

  test('because no redis-server is installed names the command', async ({ platform }) => {
    const path = (process.env['PATH'] ?? '').split(delimiter).filter((one) => !existsSync(join(one, 'redis-server')));
    const result = await refused(platform, 'scheduler', { PATH: path.join(delimiter) });
    await expectSentence(result, 1, 'apt-get install redis-server', 'REDIS_URL');
    expect(processesNaming(result.dataDir)).toEqual([]);
  });

  test('because its pools file is wrong names the file, the pool and the field', async ({ platform }) => {
    const path = join(mkdtempSync(join(platform.directory, 'd-')), 'pools.json');
    writeFileSync(path, '{"pools": {"gpu": {"priority": -1}}}');
    const result = await refused(platform, 'scheduler', { LONGSHORE_POOLS_FILE: path });
    await expectSentence(result, 78, `LONGSHORE_POOLS_FILE ${path}: pool gpu: priority must be a whole number`);
    expect(result.logged).toMatch(/"setting":"LONGSHORE_BASE_IMAGE","of":"agent","file":"\/etc\/longshore-agent\//);
    expect(processesNaming(result.dataDir)).toEqual([]);
  });

  test('because another works in its data directory says so, and does that one no harm', async ({ platform }) => {
    const result = await refused(platform, 'scheduler', { LONGSHORE_DATA_DIR: platform.dataDir });
    await expectSentence(result, 1, platform.dataDir, 'LONGSHORE_DATA_DIR');
    expect(platform.scheduler.log()).not.toContain('embedded redis ended');
    expect((await platform.call('/api/v1/health')).status).toBe(200);
  });
});

describe('an agent that cannot start', () => {
  test('because no Docker answers says where it looked', async ({ platform }) => {
    const result = await refused(platform, 'agent', {
      DOCKER_HOST: 'unix:///nonexistent/docker.sock',
      LONGSHORE_JOIN_TOKEN: await joinToken(platform),
    });
    await expectSentence(
      result,
      69,
      'no Docker Engine answers at unix:///nonexistent/docker.sock',
      'install and start',
    );
  });

  test('because it may not use Docker names the group', async ({ platform }) => {
    const socket = join(platform.directory, 'd.sock');
    const engine = createServer().listen(socket);
    await once(engine, 'listening');
    chmodSync(socket, 0o600);
    const env = { DOCKER_HOST: `unix://${socket}`, LONGSHORE_JOIN_TOKEN: await joinToken(platform) };
    if (!isRoot) chmodSync(socket, 0o000);
    const result = await refused(platform, 'agent', env, true);
    engine.close();
    await expectSentence(result, 1, 'no permission to use Docker', 'group docker');
  });

  test('because its state directory is read-only says so', async ({ platform }) => {
    const dataDir = mkdtempSync(join(platform.directory, 'd-'));
    mkdirSync(join(dataDir, 'agent'), { mode: 0o555 });
    const result = await refused(platform, 'agent', { LONGSHORE_DATA_DIR: dataDir }, true);
    await expectSentence(result, 1, join(dataDir, 'agent'), 'LONGSHORE_DATA_DIR');
  });

  test('because its metrics port is taken says which', async ({ platform }) => {
    const { server, address } = await aTakenPort();
    const result = await refused(platform, 'agent', {
      LONGSHORE_AGENT_METRICS_ADDRESS: address,
      LONGSHORE_JOIN_TOKEN: await joinToken(platform),
    });
    server.close();
    await expectSentence(result, 1, address, 'LONGSHORE_AGENT_METRICS_ADDRESS');
  });

  test('because another works in its state directory says so, and does that one no harm', async ({ platform }) => {
    const result = await refused(platform, 'agent', { LONGSHORE_DATA_DIR: platform.dataDir });
    await expectSentence(result, 1, 'another agent', 'LONGSHORE_DATA_DIR');
    expect(platform.agent.isRunning).toBe(true);
  });

  test('because it has no join token says where one comes from', async ({ platform }) => {
    const result = await refused(platform, 'agent', {});
    await expectSentence(result, 78, 'no join token', 'LONGSHORE_JOIN_TOKEN');
    // A daemon without a supervisor tells what only the other one reads.
    expect(result.logged).toMatch(/"setting":"LONGSHORE_HTTP_ADDRESS","of":"scheduler","file":"\/etc\/longshore\//);
    expect(result.logged).not.toContain('"setting":"LONGSHORE_AGENT_METRICS_ADDRESS"');
  });

  test('because its join token has a wrong secret, or was used, says to make another', async ({ platform }) => {
    const [prefix, fingerprint] = (await joinToken(platform)).split('.');
    const wrong = `${prefix}.${fingerprint}.${'x'.repeat(43)}`;
    await expectSentence(
      await refused(platform, 'agent', { LONGSHORE_JOIN_TOKEN: wrong }),
      78,
      'refused the join token',
      'make a new one',
    );
  });

  test('because the scheduler is not the one that made its join token says so', async ({ platform }) => {
    const [prefix, , secret] = (await joinToken(platform)).split('.');
    const wrong = `${prefix}.${'0'.repeat(64)}.${secret}`;
    const result = await refused(platform, 'agent', { LONGSHORE_JOIN_TOKEN: wrong });
    await expectSentence(result, 1, platform.agentAddress);
  });

  test('because a setting is misspelt names it', async ({ platform }) => {
    const result = await refused(platform, 'agent', { LONGSHORE_SCHEDULER_ADRESS: '127.0.0.1:1' });
    expect(result.code).toBe(78);
    expect(result.said).toContain('LONGSHORE_SCHEDULER_ADRESS');
  });
});
