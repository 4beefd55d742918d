// `Prefer: respond-async` over HTTP: the checks before a call is accepted, its task as people read it, keys, cancels,
// and its cost. The model is a scripted server.
/* oxlint-disable no-empty-pattern */
import { Client } from 'pg';
import { expect } from 'vitest';
import { jsonOf } from '../helpers/platform.ts';
import type { Answer, CallOptions } from '../helpers/platform.ts';
import { ReplicaSet } from '../helpers/replicas.ts';
import type { Replica } from '../helpers/replicas.ts';
import { ScriptedModelServer, chatAnswer } from '../helpers/scripted-model-server.ts';
import { test as base, waitFor } from '../helpers/services.ts';

type Json = Readonly<Record<string, unknown>>;
const WAIT_MS = 60_000;
const LONG_MS = 120_000;
const LATER = { prefer: 'wait=5, respond-async; foo="a, b"' };
const PRICES = { prompt_micros_per_million: 1_000_000, completion_micros_per_million: 2_000_000, request_micros: 5 };

interface Tenant {
  readonly id: string;
  readonly token: string;
}
interface World {
  readonly server: ScriptedModelServer;
  readonly own: Tenant;
  readonly tenant: (name: string) => Promise<Tenant>;
  readonly post: (
    path: string,
    body: unknown,
    options?: { token?: string | null; headers?: Json; prefer?: boolean },
  ) => Promise<Response>;
  readonly call: (path: string, options?: CallOptions) => Promise<Answer>;
  readonly task: (tenant: Tenant, id: unknown) => Promise<Json>;
  readonly ended: (tenant: Tenant, id: unknown) => Promise<Json>;
  readonly sql: Client;
  /** Redis loses its idempotency keys. */
  readonly loseKeys: () => Promise<void>;
}

const test = base.extend('world', { scope: 'file' }, async ({ postgres, redis }, { onCleanup }): Promise<World> => {
  const server = await new ScriptedModelServer().start();
  const set = new ReplicaSet(postgres, redis, postgres.url, { LONGSHORE_WEBHOOK_ALLOW: '127.0.0.1' });
  const sql = new Client({ connectionString: postgres.url });
  onCleanup(async () => {
    await sql.end();
    await set.stop();
    await server.stop();
  });
  const replica: Replica = await set.add();
  await sql.connect();
  const call: World['call'] = (path, options = {}) => set.call(replica, path, options);
  const own = { id: set.workspaceId, token: set.token };
  const model = async (fields: Json): Promise<void> => {
    const backends = [{ kind: 'external', base_url: server.baseUrl }];
    const body = { visibility: 'public', backends, ...fields };
    expect((await call(`/api/v1/model/${own.id}`, { body })).status).toBe(201);
  };
  const input_schema = { type: 'object', required: ['prompt'], properties: { prompt: { type: 'string' } } };
  await model({ id: 'acme/shape', type: 'custom', input_schema, capabilities: { streaming: true } });
  await model({ id: 'chat', type: 'chat' });
  await model({ id: 'embed', type: 'embedding', embedding: { dimensions: 3, max_batch: 2 } });
  await model({ id: 'dear', type: 'custom', input_schema, prices: PRICES });
  const task: World['task'] = async ({ id: workspaceId, token }, id) => {
    const answer = await call(`/api/v1/task/${workspaceId}/${String(id)}`, { token });
    expect([answer.status, answer.text]).toEqual([200, expect.any(String)]);
    return jsonOf<Json>(answer);
  };
  return {
    server,
    own,
    sql,
    loseKeys: async () => {
      const keys = await set.redis.keys('*kept-answer*');
      expect(keys.length).toBeGreaterThan(0);
      await set.redis.del(...keys);
    },
    call,
    tenant: async (name) => {
      const made = jsonOf<Json>(await call('/api/v1/workspace', { body: { name } }));
      return { id: String(made['id']), token: String(made['token']) };
    },
    post: (path, body, { token = own.token, headers = {}, prefer = true } = {}) =>
      fetch(`${replica.url}/v1${path}`, {
        method: 'POST',
        headers: {
          'content-type': 'application/json',
          ...(token === null ? {} : { authorization: `Bearer ${token}` }),
          ...(prefer ? LATER : {}),
          ...headers,
        },
        body: JSON.stringify(body),
      }),
    task,
    ended: (tenant, id) =>
      waitFor(
        async () => {
          const now = await task(tenant, id);
          return now['ended_at'] !== null && now;
        },
        'the call has ended',
        WAIT_MS,
      ),
  };
});

const INVOKE = '/models/acme%2Fshape/invoke';
const idOf = async (answer: Response): Promise<string> => {
  expect([answer.status, answer.headers.get('preference-applied')]).toEqual([202, 'respond-async']);
  return ((await answer.json()) as { id: string }).id;
};

test('a call is accepted with the URL of its task, which gets the answer of the model', async ({ world }) => {
  const { server, own, post, ended, call } = world;
  const held = Promise.withResolvers<void>();
  server.script('/invoke', { json: { image: 'https://a', usage: { prompt_tokens: 1 } }, until: held.promise });
  const answer = await post(INVOKE, { prompt: 'a' });
  expect([answer.status, answer.headers.get('preference-applied')]).toEqual([202, 'respond-async']);
  const told = (await answer.json()) as { id: string; status: string; url: string };
  expect(told).toEqual({
    id: answer.headers.get('x-task-id'),
    status: 'queued',
    url: expect.stringContaining(`/api/v1/task/${own.id}/${told.id}`) as string,
  });
  expect(answer.headers.get('location')).toBe(told.url);
  const read = async (token: string): Promise<Response> =>
    await fetch(told.url, { headers: { authorization: `Bearer ${token}` } });
  await waitFor(
    async () => ((await (await read(own.token)).json()) as Json)['status'] === 'RUNNING',
    'it runs',
    WAIT_MS,
  );
  const explained = await call(`/api/v1/explain/${own.id}/${told.id}`);
  expect(jsonOf<Json>(explained)).toMatchObject({ state: 'RUNNING', waits_for: "the model's answer" });
  held.resolve();
  const task = await ended(own, told.id);
  expect(task).toMatchObject({
    status: 'COMPLETE',
    failure_reason: '',
    stub: null,
    stats: null,
    result: { image: 'https://a', usage: { prompt_tokens: 1 } },
  });
  expect(server.last.body).toEqual({ prompt: 'a' });
  const list = jsonOf<{ data: Json[] }>(await call(`/api/v1/task/${own.id}`));
  expect(list.data).toContainEqual(expect.objectContaining({ id: told.id, status: 'COMPLETE' }));
  const events = await waitFor(
    async () => {
      const page = jsonOf<{ events: { type: string; data: Json }[] }>(
        await call(`/api/v1/events/${own.id}/history?task_id=${told.id}`),
      );
      return page.events.length >= 3 && page.events;
    },
    'the events of the task',
    WAIT_MS,
  );
  expect(events.map(({ type, data }) => `${type} ${String(data['status'])}`).toSorted()).toEqual([
    'task.created PENDING',
    'task.updated COMPLETE',
    'task.updated RUNNING',
  ]);
});

test('chats, completions of a chat model by invoke, and embeddings are answered later, too', async ({ world }) => {
  const { server, own, post, ended } = world;
  server.script('/chat/completions', chatAnswer('good day'));
  server.script('/embeddings', { json: { data: [{ index: 0, embedding: [1, 2, 3] }], usage: { prompt_tokens: 2 } } });
  const messages = [{ role: 'user', content: 'hello' }];
  const chat = await ended(own, await idOf(await post('/chat/completions', { model: 'chat', messages })));
  expect(chat['result']).toMatchObject({ model: 'chat', usage: { total_tokens: 10 } });
  const invoked = await ended(own, await idOf(await post('/models/chat/invoke', { messages })));
  expect(invoked['result']).toMatchObject({ choices: [{ message: { content: 'good day' } }] });
  const body = { model: 'embed', input: ['a'], encoding_format: 'float' };
  const vectors = await ended(own, await idOf(await post('/embeddings', body)));
  expect(vectors['result']).toMatchObject({ data: [{ embedding: [1, 2, 3] }], usage: { prompt_tokens: 2 } });
});

test('a call is checked before it is accepted, and a stream is answered at once', async ({ world }) => {
  const { server, post } = world;
  const asked = server.requests.length;
  const refused = async (answer: Promise<Response>): Promise<unknown[]> => {
    const { status, headers, ...rest } = await answer;
    void rest;
    return [status, headers.get('preference-applied')];
  };
  expect(await refused(post(INVOKE, { prompt: 'a' }, { token: null }))).toEqual([401, null]);
  expect(await refused(post(INVOKE, { prompt: 'a' }, { token: 'no' }))).toEqual([401, null]);
  expect(await refused(post('/models/none/invoke', { prompt: 'a' }))).toEqual([404, null]);
  expect(await refused(post(INVOKE, {}))).toEqual([400, null]);
  expect(await refused(post(INVOKE, { prompt: 'x'.repeat(4 * 1024 * 1024) }))).toEqual([413, null]);
  expect(server.requests.length).toBe(asked);
  server.script('/invoke', { frames: [{ data: { a: 1 } }, { data: '[DONE]' }] });
  const stream = await post(INVOKE, { prompt: 'a', stream: true });
  expect([stream.status, stream.headers.get('preference-applied')]).toEqual([200, null]);
  expect(await stream.text()).toContain('data: {"a":1}');
  server.script('/invoke', { json: { b: 2 } });
  const plain = await post(INVOKE, { prompt: 'a' }, { prefer: false });
  expect([plain.status, await plain.json()]).toEqual([200, { b: 2 }]);
});

test('a key gives the same task again, and is refused with another body', async ({ world }) => {
  const { server, own, post, ended, sql } = world;
  server.script('/invoke', { json: { once: true } });
  const headers = { 'idempotency-key': 'later-1' };
  const first = await idOf(await post(INVOKE, { prompt: 'key' }, { headers }));
  const again = await post(INVOKE, { prompt: 'key' }, { headers });
  expect(again.headers.get('idempotency-replayed')).toBe('true');
  expect(await idOf(again)).toBe(first);
  await ended(own, first);
  const asked = server.requests.length;
  expect(await idOf(await post(INVOKE, { prompt: 'key' }, { headers }))).toBe(first);
  // A caller who no longer asks for a task is told of it, too: the work was ordered once.
  const plain = await post(INVOKE, { prompt: 'key' }, { headers, prefer: false });
  expect([plain.status, plain.headers.get('x-task-id')]).toEqual([202, first]);
  await world.loseKeys();
  expect(await idOf(await post(INVOKE, { prompt: 'key' }, { headers }))).toBe(first);
  const other = await post(INVOKE, { prompt: 'other' }, { headers });
  expect([other.status, other.headers.get('x-should-retry')]).toEqual([409, 'false']);
  expect(server.requests.length).toBe(asked);
  const { rows } = await sql.query('select 1 from deferred_calls where key_hash is not null');
  expect(rows).toHaveLength(1);
});

test('a call that runs is cancelled, and the request of its model ends', async ({ world }) => {
  const { server, own, post, ended, call } = world;
  const held = Promise.withResolvers<void>();
  server.script('/invoke', { json: {}, until: held.promise });
  const asked = server.requests.length;
  const id = await idOf(await post(INVOKE, { prompt: 'cancel' }));
  await waitFor(() => server.requests.length > asked, 'the model is asked', WAIT_MS);
  expect((await call(`/api/v1/task/${own.id}?task_ids=${id}`, { method: 'DELETE' })).status).toBe(200);
  expect(await ended(own, id)).toMatchObject({ status: 'CANCELLED', failure_reason: 'request_cancelled' });
  await waitFor(() => server.last.leftAtMs !== undefined, 'the request ends', WAIT_MS);
  held.resolve();
  // A runner of others can neither start nor end such a task.
  const end = { taskId: id, taskStatus: 'COMPLETE', containerId: '' };
  expect(jsonOf<Json>(await call('/api/v1/gateway/tasks/end', { body: end }))).toMatchObject({ ok: false });
  expect((await world.task(own, id))['status']).toBe('CANCELLED');
});

test('a model without room is asked again, and a failure is the result', { timeout: LONG_MS }, async ({ world }) => {
  const { server, own, post, ended } = world;
  server.script('/invoke', { status: 429, json: {} }, { status: 503, json: {} }, { json: { at: 'last' } });
  expect(await ended(own, await idOf(await post(INVOKE, { prompt: 'busy' })))).toMatchObject({
    status: 'COMPLETE',
    result: { at: 'last' },
  });
  server.script('/invoke', { status: 500, json: { error: { message: 'secret trace' } } });
  const failed = await ended(own, await idOf(await post(INVOKE, { prompt: 'bad' })));
  expect(failed).toMatchObject({
    status: 'ERROR',
    failure_reason: 'backend_error',
    result: {
      error: { code: 'backend_error', type: 'server_error', request_id: expect.stringMatching(/^req_/) as string },
    },
  });
  expect(JSON.stringify(failed)).not.toContain('secret trace');
});

test('the task is read by its workspace, and a limited token reads its own', async ({ world }) => {
  const { server, own, post, call, tenant } = world;
  server.script('/invoke', { json: {} });
  const stranger = await tenant('stranger');
  const token = async (): Promise<{ id: string; key: string }> =>
    jsonOf(await call(`/api/v1/token/${own.id}`, { body: { scopes: ['invoke'] } }));
  const [mine, theirs] = [await token(), await token()];
  const id = await idOf(await post(INVOKE, { prompt: 'a' }, { token: mine.key }));
  const status = async (key: string, workspace = own.id): Promise<number> =>
    (await call(`/api/v1/task/${workspace}/${id}`, { token: key })).status;
  expect([await status(own.token), await status(mine.key), await status(theirs.key)]).toEqual([200, 200, 404]);
  expect([await status(stranger.token, stranger.id), await status('none')]).toEqual([404, 401]);
  expect(await status(stranger.token)).not.toBe(200);
  expect((await call(`/api/v1/token/${own.id}/${mine.id}`, { method: 'DELETE' })).status).toBe(200);
  await waitFor(async () => (await status(mine.key)) === 401, 'the token is revoked', WAIT_MS);
});

test('credits are held before the 202 and charged once', { timeout: LONG_MS }, async ({ world }) => {
  const { server, post, ended, sql, tenant, call } = world;
  const payer = await tenant('payer');
  expect((await call(`/api/v1/credit/${payer.id}`, { method: 'PUT', body: { mode: 'prepaid' } })).status).toBe(200);
  const dear = (): Promise<Response> => post('/models/dear/invoke', { prompt: 'a' }, { token: payer.token });
  const refused = await dear();
  expect([refused.status, await refused.json()]).toMatchObject([402, { error: { code: 'insufficient_credits' } }]);
  const grant = { amount_micros: 20, key: 'later' };
  expect((await call(`/api/v1/credit/${payer.id}/grant`, { body: grant })).status).toBe(200);
  const held = Promise.withResolvers<void>();
  server.script('/invoke', { json: { usage: { prompt_tokens: 3, completion_tokens: 1 } }, until: held.promise });
  const first = await dear();
  const id = await idOf(first);
  // The hold of the first one leaves too little for many.
  const others = await Promise.all([dear(), dear(), dear()]);
  expect(others.map(({ status }) => status)).toContain(402);
  held.resolve();
  expect(await ended(payer, id)).toMatchObject({ status: 'COMPLETE' });
  const rows = await waitFor(
    async () => {
      const found = await sql.query<Json>('select * from credit_ledger where request_id = $1', [
        first.headers.get('x-request-id'),
      ]);
      return found.rows.length > 0 && found.rows;
    },
    'the ledger has the call',
    WAIT_MS,
  );
  expect(rows).toMatchObject([{ workspace_id: payer.id, status: 'complete', model: 'dear' }]);
  expect([rows[0]?.['prompt_tokens'], rows[0]?.['cost_micros']].map(Number)).toEqual([3, 10]);
});
