// Flow control as callers meet it: keys of calls, the list of keys, `longshore deployment queue`, and what is refused.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { request } from 'undici';
import { runCommand } from '../helpers/command-line.ts';
import { waitFor } from '../helpers/programs.ts';
import type { Json, Platform } from './verbs-fixture.ts';
import { aPlatform } from './verbs-fixture.ts';

let platform: Platform;
let deployed: { readonly id: string };

beforeAll(async () => {
  platform = await aPlatform({}, 'embedded');
  deployed = await platform.deploy('bill', {
    stubType: 'taskqueue/deployment',
    extra: JSON.stringify({ flow: { concurrency: 1, key: 'customer', position: 0 } }),
  });
});
afterAll(() => platform.stop());

const put = (body: unknown, headers: Readonly<Record<string, string>> = {}) =>
  platform.call('POST /taskqueue/bill', body, { headers });
const commandOf = (...line: readonly string[]) =>
  runCommand(line, {
    LONGSHORE_URL: `http://${platform.address}`,
    LONGSHORE_TOKEN: platform.own.token,
    LONGSHORE_CONTEXT_FILE: '/nonexistent/contexts.json',
  });
const keys = async (): Promise<Json> =>
  (await platform.call(`GET /api/v1/deployment/${platform.own.workspaceId}/flow/${deployed.id}`)).json;

test('calls have their keys in a field, by position or in the header, and a list shows them', async () => {
  const answers = [
    await put({ customer: 'c-17' }),
    await put({ args: ['c-17'], kwargs: {} }),
    await put({}, { 'x-longshore-key': 'M%C3%BCller' }),
  ];
  expect(answers.map(({ status }) => status)).toEqual([200, 200, 200]);
  await waitFor(async () => ((await keys())['data'] as Json[]).length === 2, 'both keys are listed');
  expect(await keys()).toEqual({
    concurrency: 1,
    key: 'customer',
    throttle: '',
    rate: '',
    priority: null,
    debounce: null,
    singleton: '',
    fair_key: '',
    paused: false,
    limit: null,
    waiting: 2,
    running: 0,
    held: 1,
    delayed: 0,
    limits: [],
    data: [
      { key: 'c-17', running: 1, waiting: 1 },
      { key: 'Müller', running: 1, waiting: 0 },
    ],
  });
  const shown = await commandOf('deployment', 'queue', 'show', 'bill');
  expect([shown.code, shown.stdout]).toEqual([
    0,
    expect.stringMatching(/KEY +RUNNING +MOST +WAITING\s+c-17 +1 +1 +1\n/),
  ]);
  const held = JSON.parse(answers[1]?.text ?? '{}') as { task_id: string };
  const why = await platform.call(`GET /api/v1/explain/${platform.own.workspaceId}/${held.task_id}`);
  expect(why.text).toContain('Key c-17 has 1 of 1 running; 1 task of it waits');
});

test('a call without a usable key is refused, and so are bad settings, by the name of the field', async () => {
  for (const [answer, text] of [
    [await put({}), 'customer'],
    [await put({}, { 'x-longshore-key': '%' }), 'X-Longshore-Key'],
  ] as const) {
    expect(answer).toMatchObject({ status: 400, json: { code: 'invalid_flow_key' } });
    expect(answer.text).toContain(text);
  }
  for (const [flow, text] of [
    [{ concurrency: 0 }, 'extra.flow.concurrency'],
    [{ concurrency: 1, rate: 1 }, 'extra.flow.rate'],
    [{ priority: 0, rote: 1 }, 'extra.flow.rote'],
  ] as const) {
    const stub = await platform.gateway('POST /stubs', {
      stubType: 'taskqueue/deployment',
      name: 'bad',
      handler: 'app:handler',
      extra: JSON.stringify({ flow }),
    });
    expect(stub.text).toContain(text);
  }
});

test('calls that come too often are answered 429 with Retry-After, or dropped; endpoints have rates, too', async () => {
  await platform.deploy('paced', {
    stubType: 'endpoint/deployment',
    extra: JSON.stringify({ flow: { rate: '1/h', key: 'customer' } }),
  });
  await platform.deploy('dropping', {
    stubType: 'taskqueue/deployment',
    extra: JSON.stringify({ flow: { rate: '1/h', onExcess: 'skip' } }),
  });
  // The first call waits for a container, and its caller leaves when the file ends.
  const first = platform.call('POST /endpoint/paced', { customer: 'a' }).catch(() => undefined);
  const refused = await waitFor(async () => {
    const answer = await request(`http://${platform.address}/endpoint/paced`, {
      method: 'POST',
      headers: { authorization: `Bearer ${platform.own.token}`, 'content-type': 'application/json' },
      body: JSON.stringify({ customer: 'a' }),
      headersTimeout: 60_000,
    });
    return { status: answer.statusCode, after: answer.headers['retry-after'], text: await answer.body.text() };
  }, 'the second call is answered');
  expect(refused.status).toBe(429);
  expect(Number(refused.after)).toBeGreaterThan(3_000);
  expect(JSON.parse(refused.text)).toMatchObject({ code: 'flow_rate_exceeded' });
  expect((await platform.call('POST /taskqueue/dropping', {})).json).toEqual({ task_id: expect.any(String) as string });
  expect(await platform.call('POST /taskqueue/dropping', {})).toMatchObject({
    status: 200,
    json: { task_id: null, skipped: 'rate' },
  });
  void first;
});

test('an endpoint has a rate and a key alone, and other kinds have no flow control', async () => {
  for (const [stubType, flow, text] of [
    ['endpoint/deployment', { concurrency: 1 }, 'extra.flow.concurrency is for task queues'],
    ['endpoint/deployment', { rate: '1/s', onExcess: 'skip' }, 'extra.flow.onExcess is for task queues'],
    ['function/deployment', { rate: '1/s' }, 'not for function'],
  ] as const) {
    const stub = await platform.gateway('POST /stubs', {
      stubType,
      name: 'bad',
      handler: 'app:handler',
      extra: JSON.stringify({ flow }),
    });
    expect(stub.text).toContain(text);
  }
});

test('a call has a priority where the queue has priorities, and a list shows the settings', async () => {
  const { id } = await platform.deploy('ordered', {
    stubType: 'taskqueue/deployment',
    extra: JSON.stringify({ flow: { priority: 5, throttle: '1/h' } }),
  });
  const call = (name: string, priority: string) =>
    platform.call(`POST /taskqueue/${name}`, {}, { headers: { 'x-longshore-priority': priority } });
  expect(await call('ordered', '600')).toMatchObject({ status: 200 });
  for (const answer of [await call('ordered', '3601'), await call('ordered', 'high'), await call('dropping', '1')]) {
    expect(answer).toMatchObject({ status: 400, json: { code: 'invalid_flow_priority' } });
    expect(answer.text).toContain('X-Longshore-Priority');
  }
  const second = await call('ordered', '600');
  const shown = await platform.call(`GET /api/v1/deployment/${platform.own.workspaceId}/flow/${id}`);
  expect(shown.json).toMatchObject({ concurrency: null, throttle: '1/h', rate: '', priority: 5, delayed: 1, data: [] });
  const why = await platform.call(`GET /api/v1/explain/${platform.own.workspaceId}/${String(second.json['task_id'])}`);
  expect(why.text).toContain('The tasks start at most one every 3600 s');
  expect(why.json).toMatchObject({ task: { next_retry_at: null } });
});

test('calls of a key are one task where the deployment wants it, and the answer says why', async () => {
  for (const [name, flow] of [
    ['once', { singleton: 'skip', key: 'customer' }],
    ['gathered', { debounce: 600, key: 'customer' }],
  ] as const) {
    await platform.deploy(name, { stubType: 'taskqueue/deployment', extra: JSON.stringify({ flow }) });
    const call = (body: unknown) => platform.call(`POST /taskqueue/${name}`, body);
    const first = await call({ customer: 'a' });
    const id = first.json['task_id'];
    expect(first.json).toEqual({ task_id: expect.any(String) as string });
    expect(await call({ customer: 'a', n: 2 })).toMatchObject({
      status: 200,
      json: { task_id: id, skipped: name === 'once' ? 'singleton' : 'debounce' },
    });
    const input = await platform.call(`GET /api/v1/task/${platform.own.workspaceId}/${String(id)}/input`);
    expect(JSON.parse(String(input.json['input']))).toEqual(
      name === 'once' ? { customer: 'a' } : { customer: 'a', n: 2 },
    );
    const many = await platform.call(`POST /taskqueue/${name}`, '{"customer":"a"}\n{"customer":"b"}', {
      headers: { 'content-type': 'application/x-ndjson' },
    });
    expect(many.json).toEqual({ task_ids: [id, expect.any(String) as string] });
    const rerun = await platform.call(`POST /api/v1/task/${platform.own.workspaceId}/${String(id)}/rerun`);
    expect(rerun.status, rerun.text).toBe(409);
  }
  const why = await platform.call(`GET /api/v1/deployment/${platform.own.workspaceId}?name=gathered`);
  expect(why.status).toBe(200);
});

test('a queue is paused, bounded and goes on, with all versions of its name', async () => {
  const said = { stubType: 'taskqueue/deployment', extra: JSON.stringify({ flow: { concurrency: 1 } }) };
  const first = await platform.deploy('paused', said);
  expect((await commandOf('deployment', 'queue', 'pause', 'paused')).code).toBe(0);
  const second = await platform.deploy('paused', { ...said, forceCreate: true });
  const shown = async (id: string) =>
    (await platform.call(`GET /api/v1/deployment/${platform.own.workspaceId}/flow/${id}`)).json;
  for (const { id } of [first, second]) expect(await shown(id)).toMatchObject({ paused: true, limit: null });
  const { task_id: taskId } = (await platform.call('POST /taskqueue/paused', {})).json;
  await waitFor(async () => (await shown(second.id))['waiting'] === 1, 'the task waits');
  const why = await platform.call(`GET /api/v1/explain/${platform.own.workspaceId}/${String(taskId)}`);
  expect(why.json).toMatchObject({ waits_for: 'its queue to be resumed' });
  expect(why.text).toContain('longshore deployment queue resume paused');
  expect((await commandOf('deployment', 'queue', 'limit', 'paused', '5')).code).toBe(0);
  expect((await commandOf('deployment', 'queue', 'resume', 'paused')).code).toBe(0);
  for (const { id } of [first, second]) expect(await shown(id)).toMatchObject({ paused: false, limit: 5 });
  expect((await commandOf('deployment', 'queue', 'limit', 'paused', '0')).code).toBe(0);
  expect(await shown(second.id)).toMatchObject({ paused: false, limit: null });
  const audited = await platform.call(
    `GET /api/v1/events/${platform.own.workspaceId}/history?event_types=audit.deployment.queue_controlled`,
  );
  expect(audited.text).toContain('"paused":true');
  // Other kinds have no such queue, and nothing is no change.
  const other = await platform.deploy('waited', { stubType: 'endpoint/deployment' });
  const patch = (id: string, body: unknown) =>
    platform.call(`PATCH /api/v1/deployment/${platform.own.workspaceId}/flow/${id}`, body);
  expect((await patch(other.id, { paused: true })).status).toBe(400);
  expect(await patch(second.id, {})).toMatchObject({ status: 422, json: { code: 'invalid_body' } });
  expect((await patch(second.id, { limit: 100_001 })).status).toBe(422);
});
