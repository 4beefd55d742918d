// `longshore map` and `longshore queue` against a real scheduler: what they print, and what they refuse.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { EXIT } from '#cli/exit-codes.ts';
import { runCommand } from '../helpers/command-line.ts';
import type { Ended } from '../helpers/command-line.ts';
import { waitFor } from '../helpers/programs.ts';
import { ROOT } from '../helpers/repository.ts';
import { tempDirectory } from '../helpers/services.ts';
import { terminal } from '../helpers/terminal.ts';
import { withSql } from './contract-lists.ts';
import { aPlatform } from './verbs-fixture.ts';
import type { Answer, Platform } from './verbs-fixture.ts';

const directory = tempDirectory('cli-shared-state');
let platform: Platform;

beforeAll(async () => {
  platform = await aPlatform();
});
afterAll(async () => {
  await platform.stop();
  directory.remove();
});

const environment = (token: string): Readonly<Record<string, string>> => ({
  LONGSHORE_CONTEXT_FILE: join(directory.path, 'contexts.json'),
  LONGSHORE_URL: `http://${platform.address}`,
  LONGSHORE_TOKEN: token,
  NO_COLOR: '1',
});
const by = (token: string, args: readonly string[]): Promise<Ended> => runCommand(args, environment(token));
/** Starts a command as a process. @param on - arguments of Python, which runs it; none: it runs by itself */
function start(on: readonly string[], ...args: readonly string[]) {
  const [program = '', ...words] = [...on, process.execPath, join(ROOT, 'cli/main.ts'), ...args];
  return spawn(program, words, {
    env: { ...process.env, ...environment(platform.own.token) },
    stdio: ['pipe', 'pipe', 'inherit'],
  });
}
const run = (...args: readonly string[]): Promise<Ended> => by(platform.own.token, args);
const call = (line: string, body?: unknown): Promise<Answer> =>
  platform.call(line.replace(' /', ' /api/v1/').replace('{ws}', platform.own.workspaceId), body);
const file = (name: string, bytes: string | Buffer): string => {
  const path = join(directory.path, name);
  writeFileSync(path, bytes);
  return path;
};
/** Runs a command whose output a person sees. */
async function onTerminal(...args: readonly string[]): Promise<Ended> {
  const own = Object.getOwnPropertyDescriptor(process.stdout, 'isTTY');
  Object.defineProperty(process.stdout, 'isTTY', { configurable: true, value: true });
  try {
    return await run(...args);
  } finally {
    if (own === undefined) Reflect.deleteProperty(process.stdout, 'isTTY');
    else Object.defineProperty(process.stdout, 'isTTY', own);
  }
}
const PICKLE = Buffer.from([0x80, 0x04, 0x4b, 0x01, 0x2e]);

describe('a value', () => {
  test.each([
    '{"10": 1.0,  "9": 12345678901234567890, "9": "\\u00e4 ä 😀"}',
    '-5',
    '1e400',
    '"@file"',
    'null',
    String.raw`"\ud800\u0000"`,
    ' [1] ',
  ])('%s keeps its characters in a map and in a queue', async (value) => {
    expect(await run('map', 'set', 'exact', 'k', '--', value)).toMatchObject({
      code: 0,
      stdout: 'set k of map exact\n',
    });
    expect((await run('map', 'get', 'exact', 'k')).stdout).toBe(`${value}\n`);
    expect(JSON.parse((await run('map', 'get', 'exact', 'k', '--json')).stdout)).toMatchObject({
      encoding: 'json',
      value,
    });
    expect((await run('queue', 'put', 'exact', '--', value)).code).toBe(0);
    expect((await run('queue', 'peek', 'exact')).stdout).toBe(`${value}\n`);
    expect((await run('queue', 'pop', 'exact')).stdout).toBe(`${value}\n`);
  });

  test('comes from a file, without the line end behind it, and goes back as it came', async () => {
    expect((await run('map', 'set', 'exact', 'k', `@${file('value.json', '{\n  "a": 1\n}\n')}`)).code).toBe(0);
    const { stdout } = await run('map', 'get', 'exact', 'k');
    expect(stdout).toBe('{\n  "a": 1\n}\n');
    await run('map', 'set', 'exact', 'k', `@${file('again.json', stdout)}`);
    expect((await call('GET /map/{ws}/entry?name=exact&key=k')).json['value']).toBe('{\n  "a": 1\n}');
  });

  test.each(['ready', '{a: 1}', '', '1 2', 'NaN'])('%j is no JSON, and is refused before any call', async (value) => {
    for (const args of [
      ['map', 'set', 'refused', 'k', value],
      ['queue', 'put', 'refused', value],
    ]) {
      const ended = await run(...args);
      expect(ended).toMatchObject({ code: EXIT.usage, stdout: '' });
      expect(ended.stderr).toContain('the value is not JSON: write a text in quotes of its own');
    }
  });

  test('comes from a pipe', async () => {
    const child = start([], 'queue', 'put', 'piped', '-');
    const ended = once(child, 'close');
    child.stdin.end('{"n": 1.0}\n');
    expect((await ended)[0]).toBe(0);
    expect((await run('queue', 'pop', 'piped')).stdout).toBe('{"n": 1.0}\n');
  });

  test('that is no UTF-8, or no file, is refused', async () => {
    const latin = file('latin.json', Buffer.from([0x22, 0xe4, 0x22]));
    expect(await run('map', 'set', 'refused', 'k', `@${latin}`)).toMatchObject({ code: EXIT.usage });
    const none = await run('queue', 'put', 'refused', `@${join(directory.path, 'none.json')}`);
    expect(none).toMatchObject({ code: EXIT.usage, stderr: expect.stringContaining('the value: cannot read') });
  });

  test('that is too long is refused by the scheduler, with the same code', async () => {
    const long = file('long.json', `"${'x'.repeat(1_000_000)}"`);
    expect(await run('map', 'set', 'refused', 'k', `@${long}`)).toMatchObject({
      code: EXIT.usage,
      stderr: expect.stringContaining('value must have at most 1000000 characters'),
    });
  });

  test('lives as long as --ttl says', async () => {
    await run('map', 'set', 'short', 'k', '1', '--ttl', '60');
    const { json } = await call('GET /map/{ws}/entry?name=short&key=k');
    expect(Date.parse(String(json['expires_at'])) - Date.now()).toBeLessThanOrEqual(60_000);
    for (const ttl of ['0', '604801', '-1', 'x'])
      expect((await run('queue', 'put', 'short', '1', '--ttl', ttl)).code).toBe(EXIT.usage);
  });
});

describe('a value that Python pickled', () => {
  beforeAll(async () => {
    const pickled = { name: 'pickled', encoding: 'pickle', value: PICKLE.toString('base64') };
    await call('PUT /map/{ws}/entry', { ...pickled, key: 'k' });
    await call('POST /queue/{ws}', pickled);
  });

  test('is told with its size, and a pipe gets its bytes', async () => {
    for (const args of [
      ['map', 'get', 'pickled', 'k'],
      ['queue', 'peek', 'pickled'],
    ]) {
      const ended = await run(...args);
      expect(ended).toEqual({
        code: 0,
        stdout: PICKLE.toString('utf8'),
        stderr: 'the value is pickled by Python, 5 B\n',
      });
      const seen = await onTerminal(...args);
      expect([seen.code, seen.stdout]).toEqual([0, '']);
      expect(seen.stderr).toContain(`\`longshore ${args.join(' ')} > FILE\` writes its bytes`);
    }
    expect((await run('queue', 'show', 'pickled')).stdout).toMatch(/^first  pickled by Python, 5 B, kept until /m);
  });

  test('is not taken from its queue for a terminal', async () => {
    const seen = await onTerminal('queue', 'pop', 'pickled');
    expect(seen).toMatchObject({ code: EXIT.usage, stdout: '' });
    expect(seen.stderr).toContain('`longshore queue pop pickled > FILE` takes it, nothing was taken');
    expect((await run('queue', 'pop', 'pickled')).stdout).toBe(PICKLE.toString('utf8'));
    expect((await run('queue', 'pop', 'pickled')).code).toBe(EXIT.notFound);
  });
});

test('a terminal gets no control characters, of values or of keys', async () => {
  await call('PUT /map/{ws}/entry', { name: 'odd', key: 'a\u001b[2J', encoding: 'json', value: '"\u009b2J"' });
  for (const args of [
    ['map', 'show', 'odd'],
    ['map', 'get', 'odd', 'a\u001b[2J'],
  ]) {
    const { code, stdout } = await onTerminal(...args);
    expect([code, stdout.includes('\u001b'), stdout.includes('\u009b')]).toEqual([0, false, false]);
  }
});

describe('lists', () => {
  test('have names with their numbers and bytes, and with --json the records', async () => {
    await run('map', 'set', 'listed', 'a', '1');
    await run('map', 'set', 'listed', 'b', '1');
    await run('queue', 'put', 'listed', '1');
    expect((await run('map', 'list')).stdout).toMatch(/^listed +2 +16 B$/m);
    expect((await run('queue', 'list')).stdout).toMatch(/^listed +1 +7 B$/m);
    expect(JSON.parse((await run('queue', 'list', '--json')).stdout)).toEqual(
      expect.arrayContaining([{ name: 'listed', entries: 1, bytes: 7 }]),
    );
  });

  test('of another workspace are its own', async () => {
    const theirs = await by(platform.other.token, ['queue', 'list']);
    expect(theirs).toEqual({ code: 0, stdout: '(none)\n', stderr: '' });
    expect((await by(platform.other.token, ['map', 'show', 'listed'])).code).toBe(EXIT.notFound);
    expect((await by(platform.restricted, ['map', 'list'])).code).toBe(EXIT.refused);
  });

  test('of keys are bounded, and say where they go on', async () => {
    for (const key of ['a', 'b', 'it’s c']) await run('map', 'set', 'keys', key, '1');
    expect(await run('map', 'show', 'keys')).toEqual({ code: 0, stdout: 'KEY\na\nb\nit’s c\n', stderr: '' });
    expect(await run('map', 'show', 'keys', '--limit', '2')).toEqual({
      code: 0,
      stdout: 'KEY\na\nb\n',
      stderr: '2 of 3 keys; those behind them: `longshore map show keys --after b`\n',
    });
    expect((await run('map', 'show', 'keys', '--after', 'b')).stdout).toBe('KEY\nit’s c\n');
    expect(JSON.parse((await run('map', 'show', 'keys', '--limit', '1', '--json')).stdout)).toEqual({
      data: ['a'],
      next: 'a',
      count: 3,
    });
    expect((await run('map', 'show', 'keys', '--limit', '1001')).code).toBe(EXIT.usage);
  });
});

describe('a name that nothing has', () => {
  test.each([
    [
      'map show visist',
      'there is no map visist in this workspace; did you mean visits? `longshore map list` shows them',
    ],
    ['map get visist page', 'there is no map visist in this workspace; did you mean visits?'],
    [
      'map get visits pagee',
      'there is no key pagee in map visits; did you mean pages? `longshore map show visits` shows',
    ],
    ['map delete visits pagee', 'there is no key pagee in map visits; did you mean pages?'],
    ['map delete nowhere k', 'there is no map nowhere in this workspace: `longshore map list` shows them'],
    ['map clear visist --yes', 'there is no map visist in this workspace; did you mean visits?'],
    [
      'queue show visist',
      'queue visist has no items in this workspace; did you mean visits? `longshore queue list` shows',
    ],
    ['queue peek nowhere', 'Calls of a task queue: `longshore task list --deployment nowhere`'],
    ['queue pop visist', 'queue visist has no items in this workspace; did you mean visits?'],
    ['queue clear visist --yes', 'queue visist has no items in this workspace; did you mean visits?'],
  ])('%s is not found, and the near one is named', async (words, text) => {
    await run('map', 'set', 'visits', 'pages', '1');
    await run('queue', 'put', 'visits', '1', '--ttl', '60');
    for (const args of [words.split(' '), [...words.split(' '), '--json']]) {
      const ended = await run(...args);
      expect([ended.code, ended.stdout]).toEqual([EXIT.notFound, '']);
      expect(ended.stderr).toContain(text);
    }
  });

  test.each(['map show', 'queue show'])('%s takes a name of 1 to 200 characters', async (words) => {
    for (const name of ['', 'x'.repeat(201)]) expect((await run(...words.split(' '), name)).code).toBe(EXIT.usage);
  });
});

describe('clearing', () => {
  test('without a terminal wants --yes, and nothing is deleted before', async () => {
    await run('map', 'set', 'kept', 'a', '1');
    await run('queue', 'put', 'kept', '1');
    await run('queue', 'put', 'kept', '2');
    expect(await run('map', 'clear', 'kept')).toEqual({
      code: EXIT.usage,
      stdout: '',
      stderr: 'longshore: map kept has 1 entry; without a terminal, say --yes: nothing was deleted\n',
    });
    expect((await run('queue', 'clear', 'kept')).stderr).toContain('queue kept has 2 items; without a terminal');
    expect((await run('queue', 'pop', 'kept')).stdout).toBe('1\n');
    expect((await run('map', 'clear', 'kept', '--yes')).stdout).toBe('deleted 1 entry of map kept\n');
    expect((await run('map', 'show', 'kept')).code).toBe(EXIT.notFound);
    expect((await run('queue', 'show', 'kept')).stdout).toMatch(/^items  1$/m);
  });

  test.each([
    ['y', 0, EXIT.notFound],
    ['n', EXIT.failed, 0],
  ])('on a terminal asks, and takes the answer %s', async (answer, code, after) => {
    await run('map', 'set', 'asked', 'a', '1');
    const child = start(['python3', '-c', terminal()], 'map', 'clear', 'asked');
    let seen = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => (seen += text));
    const ended = once(child, 'close');
    await waitFor(() => seen.includes('map asked has 1 entry. Delete all of them? [y/N]'), 'it asks', 20_000);
    child.stdin.write(`${answer}\r`);
    expect([(await ended)[0], seen]).toEqual([
      code,
      expect.stringContaining(code === 0 ? 'deleted 1 entry of map asked' : 'nothing was deleted'),
    ]);
    expect((await run('map', 'show', 'asked')).code).toBe(after);
  });

  test('takes as many requests as it needs, and leaves others alone', async () => {
    await withSql(platform, (sql) =>
      sql.query(
        `insert into shared_entries (workspace_id, kind, name, encoding, value, bytes, expires_at)
         select $1, 'queue', 'many', 'json', n::text, 8, now() + interval '1 hour' from generate_series(1, 6000) n`,
        [platform.own.workspaceId],
      ),
    );
    await run('queue', 'put', 'beside', '1');
    const cleared = await run('queue', 'clear', 'many', '--yes', '--json');
    expect(JSON.parse(cleared.stdout)).toEqual({ name: 'many', removed: 6000, done: 'cleared' });
    expect((await run('queue', 'list')).stdout).not.toContain('many');
    expect((await run('queue', 'peek', 'beside')).code).toBe(0);
  });
});

test('completion offers the names that there are', async () => {
  await run('queue', 'put', 'completed', '1');
  expect((await run('complete-names', 'queues')).stdout).toContain('completed\n');
  await run('map', 'set', 'offered', 'k', '1');
  expect((await run('complete-names', 'maps')).stdout).toContain('offered\n');
});
