// The examples of pods and sandboxes, as examples/README.md has them.
import { randomInt } from 'node:crypto';
import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import { createConnection, createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { expect } from 'vitest';
import { MAIN, ROOT, jsonOf, test } from '../helpers/platform.ts';
import type { Deployment, Platform } from '../helpers/platform.ts';
import { nodeImage } from '../helpers/node-image.ts';
import { aPostgres } from '../helpers/postgres.ts';
import { routeHere } from '../helpers/routes.ts';
import { runProgram } from '../helpers/services.ts';

const LONG_MS = 170_000;

const envOf = (platform: Platform, more: NodeJS.ProcessEnv = {}): NodeJS.ProcessEnv => ({
  PATH: process.env['PATH'],
  HOME: platform.directory,
  LONGSHORE_URL: platform.url,
  LONGSHORE_TOKEN: platform.token,
  PYTHONPATH: join(ROOT, 'python'),
  PYTHONDONTWRITEBYTECODE: '1',
  ...more,
});

async function deploy(platform: Platform, file: string): Promise<Deployment> {
  const args = [MAIN, 'deploy', file, '--json'];
  const said = await runProgram(process.execPath, args, { cwd: ROOT, env: envOf(platform) }, LONG_MS);
  return JSON.parse(said.slice(said.indexOf('{\n'))) as Deployment;
}

/** JSON lines of a program; other lines are steps of its preparation. */
const linesOf = (said: string): unknown[] =>
  said
    .split('\n')
    .filter((line) => line.startsWith('{'))
    .map((line) => JSON.parse(line) as unknown);

test('tools of an agent work in a sandbox', { timeout: LONG_MS }, async ({ platform }) => {
  const said = await runProgram('python3', ['examples/sandbox/tools.py'], { cwd: ROOT, env: envOf(platform) }, LONG_MS);
  expect(linesOf(said)).toEqual([
    { tool: 'write_file', answer: 'written' },
    { tool: 'run_code', answer: '7' },
    { tool: 'run_command', answer: '2' },
    { tool: 'run_code', answer: 'stopped after 5 seconds' },
    { tool: 'run_code', answer: expect.stringMatching(/^ended with 1: urllib\.error\.URLError: /) as string },
    { tool: 'serve', answer: 'tea,3\ncoffee,4\n' },
  ]);
});

test('a site of files is served to everybody', { timeout: LONG_MS }, async ({ platform }) => {
  const { url } = await deploy(platform, 'examples/site/app.py');
  const page = await fetch(`${url}/`);
  expect([page.status, page.headers.get('content-type')]).toEqual([200, 'text/html']);
  expect(await page.text()).toContain('<h1>A site in a pod</h1>');
  expect(await (await fetch(`${url}/style.css`)).text()).toContain('sans-serif');
  expect((await fetch(`${url}/none`)).status).toBe(404);
});

test('a server in JavaScript answers', { timeout: LONG_MS }, async ({ platform }) => {
  // No registry is reached in these tests, so an image made here stands in for node:22-slim.
  const folder = join(platform.directory, 'node');
  cpSync(join(ROOT, 'examples/node/'), folder, { recursive: true });
  const text = readFileSync(join(folder, 'app.py'), 'utf8');
  expect(text).toContain("base_image='node:22-slim'");
  writeFileSync(join(folder, 'app.py'), text.replace('node:22-slim', await nodeImage(platform.engine)));
  const { url } = await deploy(platform, join(folder, 'app.py'));
  const answer = await platform.call(`${url}/?name=Ada`, { method: 'GET' });
  expect([answer.status, jsonOf(answer)]).toEqual([200, { greeting: 'Hello, Ada!', node: process.versions.node }]);
  expect((await fetch(url)).status).toBe(401);
});

test('a statement reaches its database and nothing else', { timeout: LONG_MS }, async ({ platform }) => {
  const address = `198.18.${randomInt(1, 255)}.1`;
  const postgres = await aPostgres();
  const inside = Number(new URL(postgres.url).port);
  // The server listens on the loopback device alone; this is its other address.
  const door = createServer((socket) => {
    const onward = createConnection(inside, '127.0.0.1');
    socket.pipe(onward).pipe(socket);
    for (const one of [socket, onward]) one.on('error', () => [socket, onward].forEach((other) => other.destroy()));
  });
  await new Promise<void>((resolve) => door.listen(0, '0.0.0.0', resolve));
  await routeHere(platform.engine, 'add', [address]);
  try {
    const { port } = door.address() as AddressInfo;
    const env = envOf(platform, { DATABASE_URL: `postgres://postgres@${address}:${port}/test` });
    const query = (sql: string): Promise<string> =>
      runProgram('python3', ['examples/database/query.py', sql], { cwd: ROOT, env }, LONG_MS);
    expect(linesOf(await query("select 6 * 7 as answer, 'tea' as name"))).toEqual([{ answer: 42, name: 'tea' }]);
    await expect(query('create table stolen (id int)')).rejects.toThrow('read-only transaction');
  } finally {
    await routeHere(platform.engine, 'del', [address]);
    door.close();
    await postgres.stop();
  }
});
