// Colours on a real terminal, and none where a person or a program wants none.
import { execFile } from 'node:child_process';
import { resolve } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { playedServer } from '../helpers/played-server.ts';
import { terminal } from '../helpers/terminal.ts';

const MAIN = resolve(import.meta.dirname, '..', '..', 'cli', 'main.ts');
const server = playedServer((request, response) => {
  request.resume();
  const isList = request.url?.startsWith('/api/v1/gateway/') === true;
  response.writeHead(isList ? 200 : 404, { 'content-type': 'application/json' });
  const one = { id: 'd-1', name: 'evil\u001b[2J', version: 3, stubType: 'endpoint/deployment', active: true };
  const deployments = [
    { ...one, serving: true },
    { ...one, version: 4, rollout: 'failed' },
  ];
  const containers = [{ containerId: 'evil\u001b[2J', stubId: 's-1', status: 'RUNNING' }];
  response.end(JSON.stringify(isList ? { deployments, containers } : { code: 5, message: 'Not Found' }));
});

/** The command's stdout and stderr on a terminal. */
const shown = async (args: readonly string[], more: Readonly<Record<string, string>> = {}): Promise<string> => {
  const { PATH = '', HOME = '' } = process.env;
  const own = {
    LONGSHORE_URL: server.url,
    LONGSHORE_TOKEN: 'eyJ.x',
    LONGSHORE_CONTEXT_FILE: '/nonexistent/contexts.json',
  };
  const env = { PATH, HOME, TERM: 'xterm-256color', ...own, ...more };
  const ended = await promisify(execFile)('python3', ['-c', terminal(200), process.execPath, MAIN, ...args], {
    env,
  }).catch((error: unknown) => error as { readonly stdout: string });
  return ended.stdout;
};

test('states and failures have colours on a terminal, and names in a table give it no orders', async () => {
  const list = await shown(['deployment', 'list']);
  expect(list).toContain('\u001b[32myes\u001b[39m');
  expect(list).toContain('\u001b[31mfailed\u001b[39m');
  expect(list).toContain('evil\u{fffd}[2J');
  expect(list).not.toContain('\u001b[2J');
  expect(await shown(['task', 'get', '0f6b2a1e-6f0a-4b8e-9a51-6a6d1c0a9f11'])).toContain(
    '\u001b[31mlongshore:\u001b[39m ',
  );
});

test('top has the colours of lists, and names in it give the terminal no orders', async () => {
  const text = await shown(['top', '--once']);
  expect(text).toContain('\u001b[32mRUNNING\u001b[39m');
  expect(text).not.toContain('\u001b[2J');
});

test.for([
  ['NO_COLOR', ['deployment', 'list'], { NO_COLOR: '1' }],
  ['TERM=dumb', ['deployment', 'list'], { TERM: 'dumb' }],
  ['--no-color', ['deployment', 'list', '--no-color'], {}],
  ['--json', ['deployment', 'list', '--json'], {}],
] as const)('%s has no escape in it', async ([, args, env]) => {
  const text = await shown(args, env);
  expect(text).toContain('evil');
  expect(text).not.toContain('\u001b');
});
