// Streams of log lines on a whole scheduler: where they begin and end, and what they show; `longshore logs --since`.
// The lines are written into the database by hand, as another replica does whose message is lost.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { runCommand } from '../helpers/command-line.ts';
import { waitFor } from '../helpers/programs.ts';
import { ROOT } from '../helpers/repository.ts';
import { tempDirectory } from '../helpers/services.ts';
import { SseClient } from '../helpers/sse.ts';
import { withSql } from './contract-lists.ts';
import { aPlatform, NOBODY } from './verbs-fixture.ts';
import type { Json, Platform } from './verbs-fixture.ts';
import { kitOf } from './verbs-kit.ts';

const CONTAINER = 'taskqueue-watched-00000001';
const HOUR = '2030-01-01T00:';
const OLD = 'taskqueue-watched-00000002';
const NEW = 'taskqueue-watched-00000003';
const directory = tempDirectory('log-stream');

describe('a stream of log lines', () => {
  let platform: Platform;
  const ids = { stub: '', deployment: '', app: '', task: '' };
  let seqs: number[] = [];
  const opened: SseClient[] = [];

  const write = async (count: number): Promise<void> => {
    await withSql(platform, (sql) =>
      sql.query(
        `insert into log_lines (workspace_id, stub_id, deployment_id, container_id, task_id, stream, line, at)
         select $1, $2, $3, $4, $5, 'stdout', 'Line ' || n, '${HOUR}00:00Z'::timestamptz + n * interval '1 minute'
         from generate_series($6::int, $6::int + $7::int - 1) as n`,
        [platform.own.workspaceId, ids.stub, ids.deployment, CONTAINER, ids.task, seqs.length + 1, count],
      ),
    );
    const answer = await platform.call(`GET /api/v1/logs/${platform.own.workspaceId}?container_id=${CONTAINER}`);
    seqs = (answer.json['logs'] as Json[]).map((line) => Number(line['seq_num']));
  };
  beforeAll(async () => {
    platform = await aPlatform({}, 'servers');
    const { aQueue } = kitOf(() => platform);
    const queue = await aQueue();
    const task = await platform.call(`POST /taskqueue/${queue.name}`, {});
    const deployment = await platform.call(`GET /api/v1/deployment/${platform.own.workspaceId}/${queue.id}`);
    Object.assign(ids, {
      stub: deployment.json['stub_id'],
      app: deployment.json['app_id'],
      deployment: queue.id,
      task: task.json['task_id'],
    });
    await write(5);
  });
  afterAll(() => platform.stop());
  afterEach(() => {
    for (const client of opened.splice(0)) client.close();
  });

  const open = async (query: string, headers: Readonly<Record<string, string>> = {}): Promise<SseClient> => {
    const url = `http://${platform.address}/api/v1/logs/${platform.own.workspaceId}/stream?${query}`;
    const client = await SseClient.open(url, platform.own.token, headers);
    opened.push(client);
    return client;
  };
  const numbers = (client: SseClient): number[] =>
    client.frames.map((_frame, at) => Number(String(client.json(at)['message']).slice('Line '.length)));
  /** The lines of a stream that ends by itself. */
  const linesOf = async (query: string, headers?: Readonly<Record<string, string>>): Promise<number[]> => {
    const client = await open(`wait=0&${query}`, headers);
    await client.over();
    expect(client.status, query).toBe(200);
    return numbers(client);
  };
  const ALL = [1, 2, 3, 4, 5];

  test('a task has all of its lines, whenever they were printed', async () => {
    // The task is of today, and its lines are of another year.
    const answer = await platform.call(`GET /api/v1/logs/${platform.own.workspaceId}?task_id=${ids.task}&limit=1000`);
    expect((answer.json['logs'] as Json[]).map((line) => Number(line['seq_num']))).toEqual(seqs);
    expect(await linesOf(`task_id=${ids.task}&seq_num=${seqs[0]}`)).toEqual(seqs.map((_seq, at) => at + 1));
  });

  test('shows the lines of what the query names, and no others', async () => {
    for (const about of [
      `container_id=${CONTAINER}`,
      `object_type=BETA9_TASK&object_id=${ids.task}`,
      `task_id=${ids.task}`,
      `stub_id=${ids.stub}`,
      `deployment_id=${ids.deployment}`,
      `app_id=${ids.app}`,
      `app_id=${ids.app.toUpperCase()}`,
      '',
    ])
      expect(await linesOf(`seq_num=1&${about}`), about).toEqual(ALL);
    expect(await linesOf('seq_num=1&query=lINE%204')).toEqual([4]);
    expect(await linesOf('seq_num=1&container_id=another')).toEqual([]);
    for (const [query, status] of [
      [`task_id=${NOBODY}`, 404],
      [`stub_id=${NOBODY}`, 404],
      [`app_id=${NOBODY}`, 404],
      [`machine_id=ffffffff`, 404],
      [`worker_id=ffffffff`, 404],
      ['object_type=planet', 400],
      ['seq_num=1&tail_offset=1', 400],
      ['wait=x', 400],
    ] as const)
      expect([query, (await open(query)).status]).toEqual([query, status]);
  });

  test('begins and ends where the query says', async () => {
    const third = String(seqs[2]);
    expect(await linesOf(`seq_num=${third}`)).toEqual([3, 4, 5]);
    expect(await linesOf('', { 'last-event-id': third })).toEqual([4, 5]);
    expect(await linesOf('seq_num=1', { 'last-event-id': third })).toEqual(ALL);
    expect(await linesOf('tail_offset=2')).toEqual([4, 5]);
    expect(await linesOf(`tail_offset=1&query=${encodeURIComponent('line 2')}`)).toEqual([2]);
    expect(await linesOf('')).toEqual([]);
    for (const name of ['timestamp', 'start_time']) {
      // A time to come begins at the newest line, unless the caller wants to be told.
      expect(await linesOf(`${name}=${encodeURIComponent(`${HOUR}03:00Z`)}`)).toEqual([]);
      expect((await open(`${name}=${encodeURIComponent(`${HOUR}03:00Z`)}&clamp=false`)).status).toBe(416);
      expect(await linesOf(`${name}=0`)).toEqual(ALL);
    }
    expect(await linesOf(`seq_num=1&until=${encodeURIComponent(`${HOUR}03:00Z`)}`)).toEqual([1, 2]);
    // `limit` bounds no stream.
    expect(await linesOf('seq_num=1&limit=2')).toEqual(ALL);
  });

  test('goes on with lines of a replica whose message was lost', async () => {
    const client = await open(`container_id=${CONTAINER}`);
    expect(client.text.startsWith(': connected\n\nretry: 3000\n\n')).toBe(true);
    await write(3);
    await client.has(3);
    expect(client.ids).toEqual(seqs.slice(-3));
    expect(client.frames.map(({ event }) => event)).toEqual(['log', 'log', 'log']);
    expect(client.json(0)).toMatchObject({ message: 'Line 6', app_id: ids.app, stub_type: 'taskqueue/deployment' });
  });

  const writeOf = (container: string, count: number, at: string): Promise<unknown> =>
    withSql(platform, (sql) =>
      sql.query(
        `insert into log_lines (workspace_id, stub_id, container_id, stream, line, at)
         select $1, $2, $3, 'stdout', 'Line ' || n, ${at} from generate_series(1, $4::int) as n`,
        [platform.own.workspaceId, ids.stub, container, count],
      ),
    );

  const env = (): Readonly<Record<string, string>> => ({
    LONGSHORE_CONTEXT_FILE: join(directory.path, 'contexts.json'),
    LONGSHORE_URL: `http://${platform.address}`,
    LONGSHORE_TOKEN: platform.own.token,
  });
  const logs = (...args: readonly string[]) => runCommand(['logs', ...args], env());
  const numbersOf = (stdout: string): readonly number[] =>
    stdout
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => Number(String((JSON.parse(line) as Json)['message']).slice('Line '.length)));
  const upTo = (from: number, to: number): readonly number[] =>
    Array.from({ length: to - from + 1 }, (_, n) => from + n);

  describe('and `longshore logs --since`', () => {
    // A line a minute, the oldest first: more than two pages, and all of them older than an hour.
    beforeAll(() => writeOf(OLD, 2_200, `now() - interval '1 hour' - (2200 - n) * interval '1 minute'`));
    afterAll(() => directory.remove());

    test('--since prints all lines from then on, oldest first, over several pages', async () => {
      const all = await logs('--container', OLD, '--since', '3d', '--json');
      expect(numbersOf(all.stdout)).toEqual(upTo(1, 2_200));
      expect(all.stderr).toBe('');
      // The line of 61 minutes ago is the oldest of the last 62 minutes, give or take the time that the test took.
      const hour = numbersOf((await logs('--container', OLD, '--since', '100m', '--json')).stdout);
      expect(hour.at(-1)).toBe(2_200);
      expect(hour.length).toBeGreaterThan(0);
      expect(hour.length).toBeLessThanOrEqual(40);
    });

    test('--since takes a time, and --limit keeps the newest lines', async () => {
      const first = await platform.call(`GET /api/v1/logs/${platform.own.workspaceId}?container_id=${OLD}&limit=7`);
      const [start] = first.json['logs'] as Json[];
      const since = String(start?.['timestamp']);
      const sinceThen = await logs('--container', OLD, '--since', since, '--json');
      expect(numbersOf(sinceThen.stdout)).toEqual(upTo(2_194, 2_200));
      const cut = await logs('--container', OLD, '--since', since, '--limit', '3', '--json');
      expect(numbersOf(cut.stdout)).toEqual([2_198, 2_199, 2_200]);
      expect(cut.stderr).toContain(`only the newest 3 lines since ${new Date(since).toISOString()}`);
      expect(numbersOf((await logs('--container', OLD, '--limit', '1500', '--json')).stdout)).toEqual(upTo(701, 2_200));
    });

    test('a start that is none is refused with the name of the option, and exit code 2', async () => {
      expect(await logs('--since', 'yesterday')).toEqual({
        code: 2,
        stdout: '',
        stderr: 'longshore: --since yesterday is no time: give 30m, 24h, 7d or 2030-01-31T12:00:00Z\n',
      });
      expect(await logs('--limit', '100001')).toMatchObject({ code: 2, stderr: expect.stringContaining('--limit') });
    });

    test('--follow goes on from a start behind which nothing was written, and shows no older line', async () => {
      await writeOf(NEW, 3, `now() - interval '2 hours'`);
      const child = spawn(
        process.execPath,
        [join(ROOT, 'cli/main.ts'), 'logs', '--container', NEW, '--since', '30m', '--follow'],
        { env: { ...process.env, ...env() }, stdio: ['ignore', 'pipe', 'pipe'] },
      );
      let [stdout, stderr] = ['', ''];
      child.stdout.setEncoding('utf8').on('data', (text: string) => (stdout += text));
      child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text));
      const ended = once(child, 'close');
      await waitFor(() => stderr.includes('no line since'), 'the command says that there is none yet', 30_000);
      await withSql(platform, (sql) =>
        sql.query(
          `insert into log_lines (workspace_id, stub_id, container_id, stream, line, at)
         values ($1, $2, $3, 'stdout', 'too late', now() - interval '2 hours'), ($1, $2, $3, 'stdout', 'in time', now())`,
          [platform.own.workspaceId, ids.stub, NEW],
        ),
      );
      await waitFor(() => stdout.includes('in time'), 'the new line is printed', 30_000);
      child.kill('SIGINT');
      await ended;
      expect(stdout).toMatch(/^(\S+ )?\S+ 00000003 in time\n$/);
    });
  });
});
