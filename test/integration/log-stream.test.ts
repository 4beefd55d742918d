// Streams of log lines on a whole scheduler: where they begin and end, and what they show. The lines are written into
// the database by hand, as another replica does whose message is lost.
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { SseClient } from '../helpers/sse.ts';
import { withSql } from './contract-lists.ts';
import { aPlatform, NOBODY } from './verbs-fixture.ts';
import type { Json, Platform } from './verbs-fixture.ts';
import { kitOf } from './verbs-kit.ts';

const CONTAINER = 'taskqueue-watched-00000001';
const HOUR = '2030-01-01T00:';

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
});
