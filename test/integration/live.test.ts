// The live stream on a whole scheduler with both kinds of stores: whole answers, then changes; lines; who may follow
// what; bounds; and that nobody reads while nobody follows.
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { SseClient } from '../helpers/sse.ts';
import type { Frame } from '../helpers/sse.ts';
import { waitFor } from '../helpers/programs.ts';
import { NOBODY, aPlatform } from './verbs-fixture.ts';
import type { Json, Platform, StoreKind } from './verbs-fixture.ts';
import { kitOf } from './verbs-kit.ts';

describe.each(['servers', 'embedded'] satisfies StoreKind[])('live topics with %s stores', (stores) => {
  let platform: Platform;
  beforeAll(async () => {
    platform = await aPlatform({}, stores);
  });
  afterAll(() => platform.stop());
  const { aStartedTask, aTask, unique } = kitOf(() => platform);

  const opened: SseClient[] = [];
  afterEach(() => {
    for (const client of opened.splice(0)) client.close();
  });
  const follow = async (
    topics: readonly string[],
    token: string = platform.own.token,
    workspaceId: string = platform.own.workspaceId,
    wait = '',
  ): Promise<SseClient> => {
    const query = new URLSearchParams({ topics: topics.join(','), wait });
    const url = `http://${platform.address}/api/v1/live/${workspaceId}?${query.toString()}`;
    const client = await SseClient.open(url, token === '' ? undefined : token);
    opened.push(client);
    return client;
  };
  const dataOf = (frame: Frame | undefined): Json => JSON.parse(frame?.data ?? '{}') as Json;
  const of = (client: SseClient, topic: string, event?: string): readonly Json[] =>
    client.frames
      .filter((frame) => event === undefined || frame.event === event)
      .map(dataOf)
      .filter((data) => data['topic'] === topic);
  const seen = (client: SseClient, topic: string, event: string): Promise<readonly Json[]> =>
    waitFor(() => {
      const frames = of(client, topic, event);
      return frames.length > 0 && frames;
    }, `a frame ${event} of ${topic}`);
  const cancel = (...taskIds: readonly string[]) => platform.gateway('POST /tasks/stop', { taskIds });
  const read = async (path: string): Promise<Json> =>
    (await platform.call(`GET /api/v1${path.replace('{ws}', platform.own.workspaceId)}`)).json;

  test('a topic is the whole answer of its route, then what changes', async () => {
    const taskId = await aTask();
    const client = await follow([`task:${taskId}`, 'tasks:limit=5', 'overview', `explain:${taskId}`]);
    const [whole] = await seen(client, `task:${taskId}`, 'whole');
    expect(whole).toMatchObject({ value: { id: taskId, status: 'PENDING' } });
    for (const topic of ['tasks:limit=5', 'overview', `explain:${taskId}`]) await seen(client, topic, 'whole');
    const list = of(client, 'tasks:limit=5')[0]?.['value'] as { readonly data: readonly Json[] };
    expect(list).toEqual(await read('/task-summary/{ws}?limit=5'));
    await cancel(taskId);
    const changed = await waitFor(
      () => of(client, `task:${taskId}`, 'changed').find(({ fields }) => (fields as Json)['status'] === 'CANCELLED'),
      'the end is told',
    );
    expect(changed['value']).toBeUndefined();
    expect(Object.keys(changed['fields'] as Json)).not.toContain('stub_name');
    const rows = await waitFor(
      () => of(client, 'tasks:limit=5', 'changed').flatMap(({ rows: some = [] }) => some as readonly Json[])[0],
      'the row is told',
    );
    expect(rows).toMatchObject({ id: taskId, status: 'CANCELLED' });
    const before = of(client, 'tasks:limit=5').length;
    const next = await aTask();
    const moved = await waitFor(
      () =>
        of(client, 'tasks:limit=5', 'changed')
          .slice(before - 1)
          .find(({ order }) => (order as readonly string[] | undefined)?.[0] === next),
      'a new task is told',
    );
    expect((moved['rows'] as readonly Json[]).map(({ id }) => id)).toEqual([next]);
  });

  test('a long result is not in the topic of its task, and its route has it', async () => {
    for (const [characters, isLeftOut] of [
      [10_000, false],
      [20_000, true],
      // Results of that size are objects.
      [300_000, true],
    ] as const) {
      const taskId = await aStartedTask({}, 'c1');
      const said = { taskId, containerId: 'c1', taskStatus: 'COMPLETE' };
      const result = Buffer.from(JSON.stringify('x'.repeat(characters))).toString('base64');
      expect((await platform.gateway('POST /tasks/end', { ...said, result })).status).toBe(200);
      const client = await follow([`task:${taskId}`]);
      const [whole] = await seen(client, `task:${taskId}`, 'whole');
      const { value = {} } = (whole ?? {}) as { readonly value?: Json };
      expect([typeof value['result'], value['result_left_out'], typeof value['ended_at']]).toEqual(
        isLeftOut ? ['object', true, 'string'] : ['string', undefined, 'string'],
      );
      expect(String((await read(`/task/{ws}/${taskId}`))['result'])).toHaveLength(characters);
      const short = await read(`/task/{ws}/${taskId}?short=true`);
      expect([typeof short['result'], short['result_left_out']]).toEqual(
        isLeftOut ? ['object', true] : ['string', undefined],
      );
    }
  });

  test('who follows later gets the whole answer, and both get the same bytes', async () => {
    const taskId = await aTask();
    const topic = `task:${taskId}`;
    const first = await follow([topic]);
    await seen(first, topic, 'whole');
    const second = await follow([topic]);
    await seen(second, topic, 'whole');
    await cancel(taskId);
    const ends = await Promise.all([first, second].map((client) => seen(client, topic, 'changed')));
    expect(ends[0]?.[0]).toEqual(ends[1]?.[0]);
  });

  test('lines come by a topic of logs, which needs a filter as its route does', async () => {
    const taskId = await aTask();
    const topic = `logs:task_id=${taskId}`;
    const client = await follow([topic, `logs:task_id=${NOBODY}`]);
    // Followers learn that the topic is there before anybody prints.
    expect((await seen(client, topic, 'lines'))[0]).toMatchObject({ lines: [] });
    expect(await seen(client, `logs:task_id=${NOBODY}`, 'failed')).toMatchObject([
      { status: 404, code: 'task_not_found' },
    ]);
    await cancel(taskId);
    const line = await waitFor(
      () => of(client, topic, 'lines').flatMap(({ lines }) => lines as readonly Json[])[0],
      'its end is a line',
    );
    expect(line).toMatchObject({ task_id: taskId, message: expect.stringContaining('cancelled') as string });
    const again = await follow([`${topic}&seq_num=${String(line['seq_num'])}`]);
    await waitFor(() => again.text.includes('cancelled'), 'a line is told again from its number on');
  });

  test('a topic that cannot be read says why, and is tried again', async () => {
    const name = unique('later');
    const client = await follow([`deployment:${name}`]);
    expect((await seen(client, `deployment:${name}`, 'failed'))[0]).toMatchObject({ status: 404, code: 'not_found' });
    await platform.deploy(name, { stubType: 'taskqueue/deployment' });
    expect((await seen(client, `deployment:${name}`, 'whole'))[0]).toMatchObject({
      value: { kind: 'deployment', deployment: { name } },
    });
  });

  test('each topic has the rights of its route', async () => {
    const taskId = await aTask();
    const made = await platform.call(`POST /api/v1/token/${platform.own.workspaceId}`, {
      name: 'invokes',
      scopes: ['invoke'],
    });
    const client = await follow(['overview', `task:${taskId}`], String(made.json['key']));
    expect(await seen(client, 'overview', 'failed')).toMatchObject([{ status: 401, code: 'unauthorized' }]);
    // The token sees no tasks of others.
    expect(await seen(client, `task:${taskId}`, 'failed')).toMatchObject([{ status: 404 }]);
    const other = await follow([`task:${taskId}`], platform.other.token, platform.other.workspaceId);
    expect(await seen(other, `task:${taskId}`, 'failed')).toMatchObject([{ status: 404, code: 'task_not_found' }]);
    for (const token of ['', platform.revoked, platform.other.token])
      expect((await follow(['overview'], token)).status).toBe(401);
  });

  test('the fleet has topics: containers that wait for administrators, GPUs for the machines of the token', async () => {
    const { token, workspaceId } = platform.admin;
    const topics = ['waiting', 'gpus', 'gpus:limit=5&pool=none'];
    const client = await follow(topics, token, workspaceId);
    const [waits] = await seen(client, 'waiting', 'whole');
    expect(waits).toMatchObject({ value: { data: expect.any(Array), containers: expect.any(Number) } });
    const bare = { data: [], next: '', pools: [], counts: { total: 0 } };
    for (const topic of topics.slice(1)) expect(await seen(client, topic, 'whole')).toMatchObject([{ value: bare }]);
    const own = await follow(['waiting', 'gpus']);
    expect(await seen(own, 'waiting', 'failed')).toMatchObject([{ status: 401, code: 'unauthorized' }]);
    expect(await seen(own, 'gpus', 'whole')).toMatchObject([{ value: bare }]);
  });

  test('no topics and too many of them are refused by the name of the parameter', async () => {
    const cases: readonly (readonly [readonly string[], RegExp])[] = [
      [[], /topics must name topics/],
      [Array.from({ length: 61 }, (_, at) => `task:${at}`), /topics has more than 60/],
    ];
    for (const [topics, text] of cases) {
      const client = await follow(topics);
      expect([topics.length, client.status, client.text]).toEqual([topics.length, 400, expect.stringMatching(text)]);
    }
  });

  test('what cannot be a topic fails alone, and the others are followed', async () => {
    const thirteen = Array.from({ length: 13 }, () => NOBODY).join('%2C');
    const cases: readonly (readonly [string, RegExp])[] = [
      ['weather', /topics has no topic weather/],
      ['task', /topics needs what it is about/],
      ['task:%00', /topics has a topic that cannot be decoded/],
      ['tasks:limit=x', /limit must be/],
      [`tasks:stub_ids=${thirteen}`, /topics has a topic longer than/],
      [`logs:query=${'x'.repeat(500)}`, /topics has a topic longer than/],
    ];
    const client = await follow([...cases.map(([topic]) => topic), 'overview']);
    expect(client.status).toBe(200);
    await seen(client, 'overview', 'whole');
    for (const [topic, text] of cases)
      expect(await seen(client, topic, 'failed')).toMatchObject([
        { status: 400, code: 'invalid_query', message: expect.stringMatching(text) as string },
      ]);
    const lines = Array.from({ length: 17 }, (_, at) => `logs:seq_num=${at}`);
    const many = await follow([...lines, 'overview']);
    await seen(many, 'overview', 'whole');
    expect(await seen(many, lines[16]!, 'failed')).toMatchObject([
      { message: expect.stringMatching(/topics has more than 16 topics of logs/) as string },
    ]);
    expect(String(of(many, lines[15]!, 'failed')[0]?.['message'])).not.toContain('more than');
  });

  test('with wait it ends by itself', async () => {
    const client = await follow(['overview'], platform.own.token, platform.own.workspaceId, '1');
    await client.over();
    expect(client.status).toBe(200);
  });

  test('it ends when its token is switched off', async () => {
    const tokens = `/api/v1/token/${platform.own.workspaceId}`;
    const made = (await platform.call(`POST ${tokens}`, { name: 'soon gone' })).json;
    const client = await follow(['overview'], String(made['key']));
    await seen(client, 'overview', 'whole');
    await platform.call(`DELETE ${tokens}/${String(made['id'])}`);
    await client.over();
  });
});
