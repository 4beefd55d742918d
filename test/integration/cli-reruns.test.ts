// `longshore task rerun` against a small real HTTP server that plays the scheduler: which tasks it starts, what it
// says about those that it does not, and its exit codes.
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { Server } from 'node:http';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { runCommand } from '../helpers/command-line.ts';
import type { Ended } from '../helpers/command-line.ts';

interface PlayedTask {
  readonly id: string;
  readonly status: string;
  readonly rerunOf: string;
  readonly createdAt: string;
}

let server: Server;
let url = '';
let tasks: PlayedTask[] = [];
/** Refusals of the routes of single tasks, by task. */
let refusals: Readonly<Record<string, { readonly code: string; readonly message: string }>> = {};
/** Result of every rerun. */
let ends = 'COMPLETE';

const idOf = (place: number): string => `00000000-0000-4000-8000-${String(place).padStart(12, '0')}`;
function add(status: string, rerunOf = ''): PlayedTask {
  const place = tasks.length + 1;
  const task = { id: idOf(place), status, rerunOf, createdAt: new Date(place * 60_000).toISOString() };
  tasks.push(task);
  return task;
}

function listed(query: URLSearchParams): readonly PlayedTask[] {
  const filters = JSON.parse(query.get('filters') ?? '{}') as Record<string, readonly string[]>;
  const { status, 'rerun-of': rerunOf } = filters;
  return tasks
    .filter((task) => status?.includes(task.status) !== false && rerunOf?.includes(task.rerunOf) !== false)
    .toReversed();
}

function answer(method: string, { pathname, searchParams }: URL): readonly [number, object] {
  if (pathname === '/api/v1/workspace/current') return [200, { external_id: 'w-1' }];
  if (pathname === '/api/v1/gateway/deployments')
    return [
      200,
      { ok: true, deployments: [{ id: 'd', name: 'flaky', stubId: 's', stubType: 'taskqueue/deployment' }] },
    ];
  if (pathname === '/api/v1/gateway/tasks') return [200, { ok: true, tasks: listed(searchParams) }];
  const id = /^\/api\/v1\/task\/w-1\/([^/]+)\/(?:rerun|input)$/.exec(pathname)?.[1] ?? '';
  const refusal = refusals[id];
  if (refusal !== undefined) return [404, { ok: false, ...refusal }];
  if (method !== 'POST' || id === '') return [404, { code: 5, message: 'Not Found' }];
  return [201, { task_id: add(ends, id).id, rerun_of: id, deployment_name: 'flaky', version: 2 }];
}

beforeEach(async () => {
  [tasks, refusals, ends] = [[], {}, 'COMPLETE'];
  server = createServer((request, response) => {
    const [status, body] = answer(request.method ?? '', new URL(request.url ?? '', 'http://played'));
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
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
  runCommand(['task', ...args], {
    LONGSHORE_URL: url,
    LONGSHORE_TOKEN: 'eyJ.test',
    LONGSHORE_CONTEXT_FILE: '/nonexistent/contexts.json',
  });
const byFilter = (): Promise<Ended> => run('rerun', '--deployment', 'flaky', '--status', 'failed', '--yes');

test('a filter runs tasks again once: the second time all are left out, as their reruns completed', async () => {
  for (let count = 0; count < 11; count += 1) add('ERROR');
  expect(await byFilter()).toMatchObject({ code: 0, stderr: '' });
  expect(tasks.length).toBe(22);
  expect(await byFilter()).toMatchObject({
    code: 0,
    stdout: '',
    stderr: expect.stringContaining(
      '11 tasks left out: a rerun of the same input completed, is open, or is newer\n',
    ) as string,
  });
  expect(tasks.length).toBe(22);
});

test('a filter runs an input once where its rerun failed, too, and names the rerun', async () => {
  const first = add('ERROR');
  ends = 'ERROR';
  await byFilter();
  const { stdout, stderr } = await byFilter();
  expect(stdout).toBe(`${idOf(2)} runs again as ${idOf(3)} on flaky/v2\n`);
  expect(stderr).toContain('1 task left out');
  // By its id alone it runs.
  expect((await run('rerun', first.id)).stdout).toContain(`${first.id} runs again as ${idOf(4)}`);
});

test('a task without an input is told in one sentence, by rerun and by get --input', async () => {
  const { id } = add('ERROR');
  const message = `the input of task ${id} is not there: its deployment keeps no inputs (keep_inputs)`;
  refusals = { [id]: { code: 'input_not_kept', message } };
  expect(await run('rerun', id)).toMatchObject({ code: 4, stdout: '', stderr: `longshore: ${message}\n` });
  expect(await run('get', id, '--input')).toMatchObject({ code: 4, stdout: '', stderr: `longshore: ${message}\n` });
});

test('a task whose deployment was deleted is told in one sentence', async () => {
  const { id } = add('ERROR');
  const message = `task ${id} cannot run again: its deployment was deleted`;
  refusals = { [id]: { code: 'deployment_not_found', message } };
  expect(await run('rerun', id)).toMatchObject({ code: 4, stdout: '', stderr: `longshore: ${message}\n` });
});

test('tasks of which one was skipped end with code 1, after the others ran', async () => {
  const [a, b, c] = [add('ERROR'), add('ERROR'), add('ERROR')];
  const message = `the input of task ${b.id} is not there: it was removed`;
  refusals = { [b.id]: { code: 'input_not_kept', message } };
  const { code, stdout, stderr } = await run('rerun', a.id, b.id, c.id);
  expect(code).toBe(1);
  expect(stdout.split('\n').length).toBe(3);
  expect(stderr).toContain(message);
  expect(stderr).toContain('1 of 3 tasks did not run again');
});
