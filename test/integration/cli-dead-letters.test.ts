// `longshore task dead` against a small real HTTP server that plays the scheduler: pages, pace, and what it says.
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { Server } from 'node:http';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { runCommand } from '../helpers/command-line.ts';
import type { Ended } from '../helpers/command-line.ts';

const PAGE = 3;
let server: Server;
let url = '';
/** Ids of dead tasks, those that ended last first. */
let dead: string[] = [];
/** Tasks that are refused. */
let refused: string[] = [];
/** Requests that change something: when, and how many ids. */
let changes: { readonly atMs: number; readonly line: string; readonly ids: readonly string[] }[] = [];

const idOf = (place: number): string => `00000000-0000-4000-8000-${String(place).padStart(12, '0')}`;

function answer(method: string, { pathname, searchParams }: URL, body: string): object {
  if (pathname === '/api/v1/workspace/current') return { external_id: 'w-1' };
  if (method === 'GET') {
    const after = searchParams.get('cursor') ?? '\uffff';
    const found = dead.filter((id) => id < after);
    const page = found.slice(0, Math.min(PAGE, Number(searchParams.get('limit'))));
    const data = page.map((id) => ({ id, status: 'ERROR', stub_name: 'resize', ended_at: new Date().toISOString() }));
    return { data, next: found.length > page.length ? page.at(-1) : '' };
  }
  const { ids } = JSON.parse(body) as { ids: string[] };
  changes.push({ atMs: performance.now(), line: `${method} ${pathname}`, ids });
  const done = ids.filter((id) => dead.includes(id) && !refused.includes(id));
  dead = dead.filter((id) => !done.includes(id));
  if (method === 'DELETE') return { dropped: done };
  const redriven = done.map((id) => ({
    task_id: id.replace('8000', '9000'),
    redriven_from: id,
    deployment_name: 'resize',
    version: 2,
  }));
  return {
    redriven,
    refused: ids.filter((id) => !done.includes(id)).map((id) => ({ id, error: 'it was redriven as task x' })),
  };
}

beforeEach(async () => {
  [dead, refused, changes] = [Array.from({ length: 7 }, (_, n) => idOf(9 - n)), [], []];
  server = createServer((request, response) => {
    let body = '';
    request.on('data', (chunk: Buffer) => (body += chunk.toString()));
    request.on('end', () => {
      const value = answer(request.method ?? '', new URL(request.url ?? '', 'http://played'), body);
      response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(value));
    });
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  url = `http://127.0.0.1:${typeof address === 'object' && address !== null ? address.port : 0}`;
});
afterEach(() => {
  server.closeAllConnections();
  server.close();
});

const run = (...args: readonly string[]): Promise<Ended> =>
  runCommand(['task', 'dead', ...args], {
    LONGSHORE_URL: url,
    LONGSHORE_TOKEN: 'eyJ.test',
    LONGSHORE_CONTEXT_FILE: '/nonexistent/contexts.json',
  });

test('the list goes over pages, up to its limit', async () => {
  const { stdout } = await run('list', '--limit', '5');
  expect(stdout.split('\n').filter((line) => line.includes('ERROR'))).toHaveLength(5);
});

test('all are redriven, also beyond a page that is gone, and those that are refused are named', async () => {
  refused = [idOf(8)];
  const { code, stdout, stderr } = await run('redrive', '--all', '--yes');
  expect(code).toBe(1);
  expect(stdout.trim().split('\n')).toHaveLength(6);
  expect(stdout).toContain(`${idOf(9)} runs as ${idOf(9).replace('8000', '9000')} on resize/v2`);
  expect(stderr).toContain(`${idOf(8)}: it was redriven as task x`);
  expect(stderr).toContain('1 of 7 tasks were not redriven');
  expect(dead).toEqual([idOf(8)]);
});

test('a rate bounds how many go in each second', async () => {
  const { code } = await run('redrive', '--all', '--yes', '--rate', '2/s');
  expect(code).toBe(0);
  expect(changes.every(({ ids }) => ids.length <= 2)).toBe(true);
  for (const [at, { atMs }] of changes.entries()) {
    const before = changes[at - 1];
    if (before !== undefined) expect(atMs - before.atMs).toBeGreaterThanOrEqual(before.ids.length * 500 - 50);
  }
  expect(await run('redrive', '--all', '--yes', '--rate', '10')).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('must be tasks a second or a minute, such as 10/s or 30/m') as string,
  });
});

test('tasks are dropped by their ids; without any, or with both ways to choose, nothing happens', async () => {
  expect(await run('drop', idOf(9), idOf(5))).toMatchObject({
    code: 0,
    stdout: `dropped ${idOf(9)}\ndropped ${idOf(5)}\n`,
  });
  for (const [args, text] of [
    [['drop'], 'name tasks, or say --all'],
    [['drop', idOf(4), '--all'], 'both say which'],
    [['redrive', '--all'], 'all dead tasks would be redriven; without a terminal, say --yes: nothing was done'],
  ] as const)
    expect(await run(...args)).toMatchObject({ code: 2, stderr: expect.stringContaining(text) as string });
  expect(changes).toHaveLength(1);
});
