// `longshore events` against a small HTTP server that breaks its streams.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { afterAll, beforeEach, expect, test } from 'vitest';
import { runCommand } from '../helpers/command-line.ts';
import { playedServer } from '../helpers/played-server.ts';
import { ROOT } from '../helpers/repository.ts';
import { tempDirectory, waitFor } from '../helpers/services.ts';

const MAIN = join(ROOT, 'cli', 'main.ts');
const TASK = '0f6b2a1e-6f0a-4b8e-9a51-6a6d1c0a9f11';

const eventOf = (seq: number, status: string) => ({
  seq_num: seq,
  type: seq === 1 ? 'task.created' : 'task.updated',
  timestamp: `2030-01-01T00:00:0${seq}.000Z`,
  task_id: TASK,
  data: { id: TASK, status, ...(status === 'ERROR' ? { failure_reason: 'handler_error' } : {}) },
});
const frame = (seq: number, status: string): string =>
  `id: ${seq}\nevent: task.updated\ndata: ${JSON.stringify(eventOf(seq, status))}\n\n`;

const directory = tempDirectory('cli-events');
const asked: string[] = [];
/** Answers to requests for streams, one after another: what is written, and whether the connection breaks then. */
let streams: { readonly text: string; readonly breaks?: boolean; readonly status?: number }[] = [];
let stored: readonly object[] = [];
const server = playedServer((request, response) => {
  const { pathname, searchParams } = new URL(request.url ?? '', 'http://x');
  asked.push(`${pathname}?${searchParams.toString()}`);
  const json = (body: object, status = 200): void =>
    void response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
  if (pathname.endsWith('/workspace/current')) return json({ id: 'w', external_id: 'w' });
  if (pathname.endsWith('/history')) return json({ events: stored, truncated: false, scanned_records: 0 });
  const next = streams.shift() ?? { text: '' };
  if (next.status !== undefined) return json({ message: 'Unauthorized', code: 'unauthorized' }, next.status);
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  response.write(`: connected\n\nretry: 3000\n\n${next.text}`, () => {
    if (next.breaks === true) setImmediate(() => response.destroy());
  });
});
afterAll(() => directory.remove());
beforeEach(() => {
  asked.length = 0;
  stored = [eventOf(1, 'PENDING'), eventOf(2, 'RUNNING')];
});

const environment = () => ({
  LONGSHORE_URL: server.url,
  LONGSHORE_TOKEN: 'eyJ.token',
  LONGSHORE_CONTEXT_FILE: join(directory.path, 'contexts.json'),
});

const run = (...args: readonly string[]) => runCommand(['events', ...args], environment());

/** A process, which a signal ends. */
function start(...args: readonly string[]) {
  const child = spawn(process.execPath, [MAIN, 'events', ...args], {
    env: { ...process.env, ...environment() },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let [stdout, stderr] = ['', ''];
  child.stdout.setEncoding('utf8').on('data', (text: string) => (stdout += text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text));
  const ended = once(child, 'close').then(([code]) => ({ code: code as number | null, stdout, stderr }));
  return { child, ended, stdout: () => stdout };
}

test('prints what happened, oldest first, one line for each event', async () => {
  const ended = await run('--type', 'task.*', '--task', TASK, '--limit', '7');
  expect(ended).toEqual({
    code: 0,
    stdout:
      `2030-01-01 00:00:01.000 task.created         ${TASK} PENDING\n` +
      `2030-01-01 00:00:02.000 task.updated         ${TASK} RUNNING\n`,
    stderr: '',
  });
  expect(asked.at(-1)).toBe(`/api/v1/events/w/history?event_types=task.*&task_id=${TASK}&limit=7`);
});

test('prints records as they are with --json, and says when there are none', async () => {
  const { stdout } = await run('--json');
  expect(
    stdout
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as object),
  ).toEqual(stored);
  stored = [];
  expect(await run()).toMatchObject({ code: 0, stdout: '', stderr: expect.stringContaining('no event') });
});

test('follows, and dials a broken stream again behind the last event', { timeout: 30_000 }, async () => {
  streams = [{ text: frame(3, 'ERROR'), breaks: true }, { text: '', breaks: true }, { text: frame(4, 'COMPLETE') }];
  const following = start('--follow');
  await waitFor(() => following.stdout().includes('COMPLETE'), 'the last event is printed', 20_000);
  following.child.kill('SIGINT');
  await following.ended;
  expect(
    following
      .stdout()
      .split('\n')
      .map((line) => line.slice(82)),
  ).toEqual(['PENDING', 'RUNNING', 'ERROR handler_error', 'COMPLETE', '']);
  expect(asked.filter((line) => line.includes('/stream'))).toEqual([
    '/api/v1/events/w/stream?seq_num=3',
    '/api/v1/events/w/stream?seq_num=4',
    '/api/v1/events/w/stream?seq_num=4',
  ]);
});

test('follows events that only pass, and says how many were left out', { timeout: 30_000 }, async () => {
  stored = [];
  const passing = (type: string, data: object): string =>
    `event: ${type}\ndata: ${JSON.stringify({ seq_num: 0, type, timestamp: '2030-01-01T00:00:05.000Z', data })}\n\n`;
  streams = [
    {
      text:
        passing('container.log', { stream: 'stdout', line: 'a line' }) +
        'event: dropped\ndata: {"dropped":7}\n\n' +
        passing('gateway.endpoint.called', { method: 'GET', path: '/api/v1/gateway/pools', status_code: 200 }),
    },
  ];
  const following = start('--follow', '--type', 'container.log,gateway.endpoint.called');
  await waitFor(() => following.stdout().includes('pools'), 'the last event is printed', 20_000);
  following.child.kill('SIGINT');
  const { stdout, stderr } = await following.ended;
  expect(stdout).toBe(
    '2030-01-01 00:00:05.000 container.log        a line\n' +
      '2030-01-01 00:00:05.000 gateway.endpoint.called GET /api/v1/gateway/pools\n',
  );
  expect(stderr).toContain('7 events were left out');
});

test('a token that is refused ends it', async () => {
  streams = [{ text: '', status: 401 }];
  const ended = await run('-f');
  expect(ended.code).toBe(3);
  expect(ended.stderr).not.toBe('');
});
