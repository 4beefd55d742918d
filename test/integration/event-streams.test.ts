// History of events, live streams of events, and the stream of a task, on a whole scheduler with both kinds of stores.
// There is no machine: tasks are started and ended by the gateway's own operations.
import { connect } from 'node:net';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { SseClient } from '../helpers/sse.ts';
import { waitFor } from '../helpers/programs.ts';
import { NOBODY, aPlatform } from './verbs-fixture.ts';
import type { Json, Platform, StoreKind } from './verbs-fixture.ts';
import { kitOf } from './verbs-kit.ts';

describe.each(['servers', 'embedded'] satisfies StoreKind[])('events with %s stores', (stores) => {
  let platform: Platform;
  beforeAll(async () => {
    platform = await aPlatform({ LONGSHORE_HTTP_ORIGINS: 'https://dash.example.org' }, stores);
  });
  afterAll(() => platform.stop());
  const { aQueue, aTask } = kitOf(() => platform);

  const opened: SseClient[] = [];
  afterEach(() => {
    for (const client of opened.splice(0)) client.close();
  });
  const path = (rest: string): string => `/api/v1/events/${platform.own.workspaceId}/${rest}`;
  const open = async (
    url: string,
    token: string | undefined = platform.own.token,
    headers: Readonly<Record<string, string>> = {},
  ): Promise<SseClient> => {
    const client = await SseClient.open(`http://${platform.address}${url}`, token === '' ? undefined : token, headers);
    opened.push(client);
    return client;
  };
  const stream = (query: string, headers: Readonly<Record<string, string>> = {}): Promise<SseClient> =>
    open(path(`stream?${query}`), platform.own.token, headers);
  const history = async (query = ''): Promise<{ readonly events: readonly Json[] } & Json> => {
    const answer = await platform.call(`GET ${path(`history?${query}`)}`);
    expect([answer.status, answer.text]).toEqual([200, answer.text]);
    return answer.json as { readonly events: readonly Json[] } & Json;
  };
  /** A task whose creation is an event by now. */
  const aToldTask = async (): Promise<string> => {
    const taskId = await aTask();
    await waitFor(async () => (await history(`task_id=${taskId}`)).events.length > 0, 'its creation is told');
    return taskId;
  };
  const cancel = (...taskIds: readonly string[]) => platform.gateway('POST /tasks/stop', { taskIds });
  const told = (event: Json | undefined): unknown => (event?.['data'] as Json | undefined)?.['status'];
  const newest = async (): Promise<number> =>
    Number((await history('limit=1&event_types=task.*')).events[0]?.['seq_num'] ?? 0);

  test('calls of the gateway pass to administrators and primary tokens who name them, and are stored nowhere', async () => {
    const kind = 'gateway.endpoint.called';
    for (const token of [platform.restricted, platform.other.token, platform.revoked, ''])
      expect((await open(path(`stream?event_types=${kind}`), token)).status).toBe(401);
    const asking = await stream(`event_types=${kind}`);
    const others = await Promise.all(['', 'event_types=*', 'event_types=gateway.*'].map((query) => stream(query)));
    await platform.gateway('POST /deployments/not-an-id/stop?auth_token=hidden', { x: 1 });
    await platform.gateway('GET /nothing-there');
    await platform.gateway('GET /pools', undefined, { token: platform.other.token });
    await platform.gateway('GET /pools', undefined, { headers: { 'user-agent': 'tester' } });
    await asking.has(2);
    const [stop, pools] = [asking.json(0), asking.json(1)];
    expect(stop['data']).toMatchObject({
      method: 'POST',
      path: '/api/v1/gateway/deployments/not-an-id/stop',
      workspace_id: platform.own.workspaceId,
      remote_ip: '127.0.0.1',
      error_message: expect.stringMatching(/./) as string,
    });
    expect(pools['data']).toMatchObject({ path: '/api/v1/gateway/pools', status_code: 200, user_agent: 'tester' });
    expect(asking.text).not.toContain('hidden');
    expect(asking.frames.map(({ id, event }) => [id, event])).toEqual([
      [undefined, kind],
      [undefined, kind],
    ]);
    const taskId = await aToldTask();
    for (const client of others.slice(0, 2)) {
      await waitFor(() => client.text.includes(taskId), 'a stored event is told');
      expect(client.text).not.toContain(kind);
    }
    expect(others[2]?.frames).toEqual([]);
    expect((await history(`event_types=${kind}`)).events).toEqual([]);
    const limited = await stream(`event_types=${kind}&limit=1`);
    await platform.gateway('GET /pools');
    await limited.over();
    expect(limited.frames).toHaveLength(1);
  });

  test('history tells a task from its creation to its end, by every filter', async () => {
    const before = new Date().toISOString();
    const queue = await aQueue();
    const invoked = await platform.call(`POST /taskqueue/${queue.name}`, {});
    const taskId = String(invoked.json['task_id']);
    await cancel(taskId);
    await waitFor(async () => (await history(`task_id=${taskId}`)).events.length === 2, 'both changes are told');
    const { events, ...rest } = await history(`task_id=${taskId}`);
    // Changes of one moment are one row.
    expect(rest).toEqual({ scanned_records: expect.toBeOneOf([1, 2]) as number, truncated: false });
    expect(events.map((event) => [event['type'], told(event)])).toEqual([
      ['task.created', 'PENDING'],
      ['task.updated', 'CANCELLED'],
    ]);
    const [created] = events;
    expect(created).toMatchObject({
      task_id: taskId,
      workspace_id: platform.own.workspaceId,
      stub_type: 'taskqueue/deployment',
      timestamp: expect.stringMatching(/Z$/),
      data: { deployment_name: queue.name, deployment_version: '1', deployment_id: queue.id, container_id: '' },
      cloud_event: {
        specversion: '1.0',
        type: 'task.created',
        taskid: taskId,
        id: expect.stringMatching(/^[0-9a-f]{24}$/),
      },
    });
    expect((created?.['cloud_event'] as Json | undefined)?.['data']).toEqual(created?.['data']);
    const found = async (query: string): Promise<readonly unknown[]> =>
      (await history(query)).events.filter((event) => event['task_id'] === taskId).map(told);
    const { stub_id: stubId, app_id: appId } = created as Json;
    for (const query of [
      '',
      `stub_id=${String(stubId)}`,
      `app_id=${String(appId)}`,
      `app_id=${String(appId).toUpperCase()}&task_id=${taskId.toUpperCase()}`,
      `start_time=${before}`,
      'event_types=task.*',
    ])
      expect(await found(query), query).toEqual(['PENDING', 'CANCELLED']);
    expect(await found('event_types=task.updated')).toEqual(['CANCELLED']);
    expect(await found(`event_types=task.created,stub.*&stub_id=${String(stubId)}`)).toEqual(['PENDING']);
    for (const query of [
      'event_types=stub.*',
      `end_time=${before}`,
      `stub_id=${NOBODY}`,
      'container_id=c',
      'event_types=none',
    ])
      expect(await found(query), query).toEqual([]);
    expect(await found(`limit=1&task_id=${taskId}`)).toEqual(['CANCELLED']);
    const cut = await history(`limit=1&task_id=${taskId}`);
    expect(cut['truncated']).toBe(true);
    expect(await found(`task_id=${taskId}&before_seq=${String(cut['next_before_seq'])}`)).toEqual(['PENDING']);
  });

  test('what is asked wrongly is refused by its name', async () => {
    const taskId = await aToldTask();
    const status = async (url: string, headers = {}): Promise<readonly unknown[]> => {
      const answer = await platform.call(`GET ${url}`, undefined, { headers });
      return [answer.status, answer.json['message']];
    };
    for (const [query, said] of [
      ['limit=0', 'limit'],
      ['limit=x', 'limit'],
      ['start_time=x', 'start_time'],
      ['start_time=2030-01-02T00:00:00Z&end_time=2030-01-01T00:00:00Z', 'end_time'],
      ['event_types=*.x', 'event_types'],
    ] as const)
      expect(await status(path(`history?${query}`)), query).toEqual([400, expect.stringContaining(said)]);
    for (const [query, said] of [
      ['seq_num=1&tail_offset=1', 'seq_num and tail_offset'],
      ['timestamp=1&start_time=2', 'timestamp and start_time'],
      ['seq_num=-1', 'seq_num'],
      ['timestamp=x', 'timestamp'],
      ['wait=x', 'wait'],
      ['clamp=2', 'clamp'],
      ['limit=0', 'limit'],
      ['until=x', 'until'],
      ['tail_offset=10001', 'tail_offset'],
    ] as const)
      expect(await status(path(`stream?${query}`)), query).toEqual([400, expect.stringContaining(said)]);
    expect(await status(path('stream'), { 'last-event-id': 'x' })).toEqual([
      400,
      expect.stringContaining('Last-Event-ID'),
    ]);
    expect((await status(path('stream?clamp=false&seq_num=999999999')))[0]).toBe(416);
    for (const where of ['history', 'stream'])
      expect((await status(path(`${where}?task_id=${NOBODY}`)))[0], where).toBe(404);
    expect((await status(`/api/v1/task/${platform.own.workspaceId}/${NOBODY}/subscribe`))[0]).toBe(404);
    // Ids of another workspace, through its own path, and its own token.
    const others = `/api/v1/events/${platform.other.workspaceId}`;
    for (const url of [`${others}/history?task_id=${taskId}`, `${others}/stream?task_id=${taskId}`]) {
      expect((await platform.call(`GET ${url}`, undefined, { token: platform.other.token })).status).toBe(404);
      for (const token of [platform.own.token, '', 'nonsense', platform.revoked])
        expect((await platform.call(`GET ${url}`, undefined, { token })).status).toBe(401);
    }
    const mine = await platform.call(`GET ${others}/history?stub_id=${NOBODY}`, undefined, {
      token: platform.other.token,
    });
    expect(mine.json['events']).toEqual([]);
    for (const token of ['', platform.revoked, platform.other.token]) {
      const url = `GET /api/v1/task/${platform.own.workspaceId}/${taskId}/subscribe`;
      expect((await platform.call(url, undefined, { token })).status).toBe(401);
    }
  });

  test('the audit trail is for administrators and primary tokens', async () => {
    const line = `GET ${path('history?event_types=audit.*')}`;
    expect((await platform.call(line, undefined, { token: platform.restricted })).status).toBe(401);
    expect((await platform.call(`GET ${path('history')}`, undefined, { token: platform.restricted })).status).toBe(200);
    expect((await platform.call(line, undefined, { token: platform.admin.token })).status).toBe(200);
    expect((await platform.call(line)).status).toBe(200);
  });

  test('a stream opens as browsers and proxies need it, and tells what happens from now on', async () => {
    await aToldTask();
    const client = await stream('event_types=task.*');
    expect(client.headers).toMatchObject({
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-cache',
      connection: 'keep-alive',
      'x-accel-buffering': 'no',
      'x-request-id': expect.any(String),
    });
    await waitFor(() => client.text.length > 0, 'the first bytes');
    expect(client.text).toBe(': connected\n\nretry: 3000\n\n');
    const taskId = await aTask();
    await cancel(taskId);
    await client.has(2);
    expect(client.frames.map(({ event }) => event)).toEqual(['task.created', 'task.updated']);
    expect([client.json(0), client.json(1)].map((record) => [record['task_id'], told(record)])).toEqual([
      [taskId, 'PENDING'],
      [taskId, 'CANCELLED'],
    ]);
    expect(client.ids).toEqual([client.json(0), client.json(1)].map((record) => record['seq_num']));
    // The record of a stream is the record of history.
    const { events } = await history(`task_id=${taskId}`);
    expect(events).toEqual([client.json(0), client.json(1)]);
  });

  test('pages of the named origin may read a stream, and no others', async () => {
    const allowed = await stream('', { origin: 'https://dash.example.org' });
    expect(allowed.headers).toMatchObject({
      'content-type': 'text/event-stream; charset=utf-8',
      'access-control-allow-origin': 'https://dash.example.org',
    });
    const other = await stream('', { origin: 'https://other.example.org' });
    expect(other.headers).not.toHaveProperty('access-control-allow-origin');
  });

  test('a token in the address will do for browsers, and filters choose', async () => {
    const mine = await aToldTask();
    const url = path(`stream?task_id=${mine}&event_types=task.updated&auth_token=${platform.own.token}`);
    const client = await open(url, '');
    const other = await aTask();
    await cancel(other, mine);
    await client.has(1);
    expect([client.json(0)['task_id'], told(client.json(0))]).toEqual([mine, 'CANCELLED']);
    await waitFor(async () => (await history(`task_id=${other}`)).events.length === 2, 'the other is told');
    expect(client.frames).toHaveLength(1);
  });

  test('a stream begins where it is asked to', async () => {
    const taskId = await aToldTask();
    const [created] = (await history(`task_id=${taskId}`)).events;
    const seq = Number(created?.['seq_num']);
    await cancel(taskId);
    await waitFor(async () => (await newest()) > seq, 'its end is told');
    const last = await newest();
    const ids = async (query: string, headers = {}): Promise<readonly number[]> => {
      const client = await stream(
        `${query}&wait=0${query.includes('event_types') ? '' : '&event_types=task.*'}`,
        headers,
      );
      await client.over();
      return client.ids;
    };
    // Others are told of deployments, tokens and their likes, with numbers in between.
    const { events } = await history('event_types=task.*&limit=50000');
    const all = events.map((event) => Number(event['seq_num'])).toSorted((a, b) => a - b);
    const from = (first: number): readonly number[] => all.filter((one) => one >= first);
    expect(await ids(`seq_num=${seq}`)).toEqual(from(seq));
    expect(await ids('seq_num=0')).toEqual(from(1));
    expect(await ids('tail_offset=2')).toEqual(all.slice(-2));
    expect(await ids('tail_offset=0')).toEqual([]);
    expect(await ids('')).toEqual([]);
    // Counted behind the filters.
    expect(await ids(`tail_offset=1&task_id=${taskId}&event_types=task.created`)).toEqual([seq]);
    expect(await ids('timestamp=0')).toEqual(from(1));
    expect(await ids(`start_time=${new Date(Date.now() + 3_600_000).toISOString()}`)).toEqual([]);
    expect(await ids(`timestamp=${Math.round(Number(created?.['stored_at_ns']) / 1e6)}&task_id=${taskId}`)).toEqual([
      seq,
      last,
    ]);
    expect(await ids('seq_num=999999999')).toEqual([]);
    const again = { 'last-event-id': String(seq) };
    expect(await ids('', again)).toEqual(from(seq + 1));
    expect(await ids('timestamp=0', again)).toEqual(from(seq + 1));
    expect(await ids(`seq_num=${seq}`, again)).toEqual(from(seq));
    const few = await stream('seq_num=1&limit=2&event_types=task.*');
    await few.over();
    expect(few.ids).toEqual(all.slice(0, 2));
    const until = await stream(`seq_num=1&until=${new Date().toISOString()}&event_types=task.*`);
    await until.over();
    expect(until.ids).toEqual(from(1));
    expect((await stream('wait=1')).isOver).toBe(false);
  });

  test('a stream ends when its token is switched off, and others go on', async () => {
    const made = (await platform.gateway('POST /tokens')).json['token'] as Json;
    const [ended, kept] = await Promise.all([
      open(path('stream?event_types=task.*'), String(made['key'])),
      stream('event_types=task.*'),
    ]);
    const taskId = await aTask();
    await ended.has(1);
    await platform.gateway(`POST /tokens/${String(made['tokenId'])}/toggle`);
    await ended.over();
    await cancel(taskId);
    await kept.has(2);
    expect(kept.isOver).toBe(false);
  });

  test('a token of one use opens one stream, which lasts', async () => {
    const made = (await platform.gateway('POST /tokens?tokenType=workspace_restricted&reusable=false')).json;
    const key = String((made['token'] as Json)['key']);
    const client = await open(path('stream'), key);
    expect((await open(path('stream'), key)).status).toBe(401);
    const probe = await stream('wait=3');
    await probe.over();
    await aTask();
    await client.has(1);
  });

  test('a caller who does not read delays nobody, and gets everything when he reads again', async () => {
    const fields = { stubType: 'taskqueue/deployment', maxPendingTasks: 2000 };
    const { stubId } = await platform.deploy('unread', fields);
    const query = `seq_num=${await newest()}&stub_id=${stubId}&event_types=task.*`;
    const [slow, quick] = await Promise.all([stream(query), stream(query)]);
    slow.pause();
    const lines = Array.from({ length: 500 }, (_, n) => JSON.stringify({ n, text: 'x'.repeat(50) }));
    const taskIds: string[] = [];
    for (let turn = 0; turn < 3; turn += 1)
      for (const line of lines.slice(0, 100))
        taskIds.push(String((await platform.call('POST /taskqueue/unread', line)).json['task_id']));
    await quick.has(300);
    await cancel(...taskIds);
    await quick.has(600);
    slow.resume();
    await slow.has(600);
    expect(slow.ids).toEqual(quick.ids);
    expect(new Set(slow.ids).size).toBe(600);
  }, 60_000);

  test('a caller who leaves without a word costs nothing', async () => {
    const [host = '', port = ''] = platform.address.split(':');
    const socket = connect(Number(port), host);
    socket.write(`GET ${path('stream')} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${platform.own.token}\r\n\r\n`);
    await new Promise((resolve) => socket.once('data', resolve));
    const openNow = async (): Promise<string | undefined> =>
      /longshore_scheduler_event_streams\{kind="events"\} (\d+)/.exec((await platform.call('GET /metrics')).text)?.[1];
    const before = Number(await openNow());
    expect(before).toBeGreaterThan(0);
    socket.destroy();
    await waitFor(async () => Number(await openNow()) < before, 'its place is free');
  });

  test('a task tells its status at once and at each change, and closes with its result', async () => {
    const taskId = await aTask();
    const url = `/api/v1/task/${platform.own.workspaceId}/${taskId}/subscribe`;
    const client = await open(url);
    await client.has(1);
    expect(client.text.startsWith('retry: 3000\n\n')).toBe(true);
    expect(client.json(0)).toMatchObject({ id: taskId, status: 'PENDING', result: null });
    expect((await platform.gateway('POST /tasks/start', { taskId, containerId: '' })).json).toEqual({ ok: true });
    await client.has(2);
    expect(client.json(1)).toMatchObject({
      id: taskId,
      status: 'RUNNING',
      started_at: expect.any(String),
      result: null,
    });
    const result = Buffer.from('{"answer":42}').toString('base64');
    const ended = await platform.gateway('POST /tasks/end', {
      taskId,
      taskStatus: 'COMPLETE',
      result,
      containerId: '',
    });
    expect(ended.json).toMatchObject({ ok: true });
    await client.over();
    expect(client.frames.map(({ event }) => event)).toEqual(['status', 'status', 'status']);
    expect(client.json(2)).toMatchObject({ status: 'COMPLETE', result: { answer: 42 } });
    expect(client.ids).toEqual([...new Set(client.ids)].toSorted((a, b) => a - b));
    expect(client.text).not.toContain(': connected');
    // A task that is over says so, and closes.
    const again = await open(url);
    await again.over();
    expect(again.frames.map(({ data }) => (JSON.parse(data) as Json)['status'])).toEqual(['COMPLETE']);
    expect(again.json(0)).toEqual((await platform.call(`GET /api/v1/task/${platform.own.workspaceId}/${taskId}`)).json);
  });
});
