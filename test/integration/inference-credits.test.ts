// Calls of priced models and the ledger: what a caller is told is what the ledger has, a prepaid workspace without
// credits is refused before the model is asked, and a caller who left pays for what was produced.
/* oxlint-disable no-empty-pattern */
import { Client } from 'pg';
import { expect } from 'vitest';
import { jsonOf } from '../helpers/platform.ts';
import { ReplicaSet } from '../helpers/replicas.ts';
import { ScriptedModelServer, chatAnswer, chatFrame, chatStream } from '../helpers/scripted-model-server.ts';
import { test as base, waitFor } from '../helpers/services.ts';

type Json = Readonly<Record<string, unknown>>;
interface Tenant {
  readonly id: string;
  readonly token: string;
}
interface World {
  readonly server: ScriptedModelServer;
  readonly tenant: (name: string) => Promise<Tenant>;
  readonly ask: (token: string, body?: Json, signal?: AbortSignal) => Promise<Response>;
  readonly limit: (workspaceId: string, limits: Json) => Promise<void>;
  readonly sql: Client;
  /** Row of the ledger of a request, once the leader has written it. */
  readonly row: (answer: Response) => Promise<Json>;
  readonly rows: (workspaceId: string) => Promise<readonly Json[]>;
}

const PRICES = { prompt_micros_per_million: 1_000_000, completion_micros_per_million: 2_000_000, request_micros: 5 };

const test = base.extend('world', { scope: 'file' }, async ({ postgres, redis }, { onCleanup }): Promise<World> => {
  const server = await new ScriptedModelServer().start();
  const set = new ReplicaSet(postgres, redis, postgres.url, {
    LONGSHORE_WEBHOOK_ALLOW: '127.0.0.1',
    LONGSHORE_RATE_LIMITS: 'on',
  });
  const sql = new Client({ connectionString: postgres.url });
  onCleanup(async () => {
    await sql.end();
    await set.stop();
    await server.stop();
  });
  const replica = await set.add();
  await sql.connect();
  const body = {
    id: 'dear',
    type: 'chat',
    visibility: 'public',
    prices: PRICES,
    backends: [{ kind: 'external', base_url: server.baseUrl }],
  };
  expect((await set.call(replica, `/api/v1/model/${set.workspaceId}`, { body })).status).toBe(201);
  const rows = async (where: string, value: string | null): Promise<readonly Json[]> =>
    (await sql.query<Json>(`select * from credit_ledger where ${where} = $1 and kind = 'request'`, [value])).rows;
  return {
    server,
    sql,
    tenant: async (name) => {
      const made = jsonOf<Json>(await set.call(replica, '/api/v1/workspace', { body: { name } }));
      return { id: String(made['id']), token: String(made['token']) };
    },
    limit: async (workspaceId, limits) => {
      const path = `/api/v1/workspace/${workspaceId}/limits`;
      expect((await set.call(replica, path, { method: 'PUT', body: limits })).status).toBe(200);
    },
    ask: (token, more = {}, signal) =>
      fetch(`${replica.url}/v1/chat/completions`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', authorization: `Bearer ${token}` },
        body: JSON.stringify({ model: 'dear', messages: [{ role: 'user', content: 'hello' }], ...more }),
        ...(signal === undefined ? {} : { signal }),
      }),
    row: (answer) =>
      waitFor(
        async () => (await rows('request_id', answer.headers.get('x-request-id')))[0],
        'the ledger has the request',
        60_000,
      ),
    rows: (workspaceId) => rows('workspace_id', workspaceId),
  };
});

test('a whole answer and a stream are in the ledger as their callers were told', async ({ world }) => {
  const { server, ask } = world;
  const { id, token } = await world.tenant('payer');
  server.script('/chat/completions', chatAnswer('good day'));
  const whole = await ask(token);
  expect(whole.status).toBe(200);
  // 7 prompt tokens and 3 completion tokens.
  expect(whole.headers.get('x-usage-cost')).toBe('0.000018');
  const told = { workspace_id: id, model: 'dear', status: 'complete', estimated: false };
  const numbers = (row: Json) => [row['prompt_tokens'], row['completion_tokens'], row['cost_micros']].map(Number);
  const first = await world.row(whole);
  expect([first, numbers(first)]).toMatchObject([{ ...told, stream: false }, [7, 3, 18]]);
  server.script('/chat/completions', chatStream('good', ' day'));
  const streamed = await ask(token, { stream: true, stream_options: { include_usage: true } });
  expect(await streamed.text()).toContain('"total_tokens":10');
  const second = await world.row(streamed);
  expect([second, numbers(second)]).toMatchObject([{ ...told, stream: true }, [7, 3, 18]]);
});

test('a prepaid workspace without credits gets 402, and the model is not asked', async ({ world }) => {
  const { server, ask, sql } = world;
  const { id, token } = await world.tenant('poor');
  await sql.query("insert into credit_accounts (workspace_id, mode) values ($1, 'prepaid')", [id]);
  const asked = server.requests.length;
  for (const stream of [false, true]) {
    const answer = await ask(token, { stream });
    const { error } = (await answer.json()) as { error: Json };
    expect([answer.status, error['code'], error['type']]).toEqual([402, 'insufficient_credits', 'insufficient_quota']);
  }
  expect(server.requests.length).toBe(asked);
});

test('a failure before any output is free', async ({ world }) => {
  const { server, ask } = world;
  const { id, token } = await world.tenant('unlucky');
  server.script('/chat/completions', { status: 500, json: {} });
  expect((await ask(token)).status).toBe(502);
  server.script('/chat/completions', chatAnswer('after all'));
  await world.row(await ask(token));
  expect(await world.rows(id)).toHaveLength(1);
});

test('a caller who leaves pays for what was produced', async ({ world }) => {
  const { server, ask } = world;
  const { token } = await world.tenant('leaver');
  const held = Promise.withResolvers<void>();
  server.script('/chat/completions', {
    frames: [chatFrame({ content: 'one' }), chatFrame({ content: ' two' }), { until: held.promise }],
  });
  const abort = new AbortController();
  const answer = await ask(token, { stream: true }, abort.signal);
  const reader = answer.body?.getReader();
  let text = '';
  while (!text.includes('two')) text += Buffer.from((await reader?.read())?.value ?? []).toString();
  abort.abort();
  expect(await world.row(answer)).toMatchObject({ status: 'aborted', estimated: true });
  expect(Number((await world.row(answer))['completion_tokens'])).toBe(2);
  held.resolve();
});

test('answers tell the rates of the workspace, and a call above one waits without reaching the model', async ({
  world,
}) => {
  const { server, ask } = world;
  const { id, token } = await world.tenant('hasty');
  await world.limit(id, { rate: { inference_per_minute: 2, inference_tokens_per_minute: 100_000 } });
  server.script('/chat/completions', chatAnswer('good day'));
  const first = await ask(token);
  expect(first.headers.get('x-ratelimit-limit-requests')).toBe('2');
  expect(first.headers.get('x-ratelimit-remaining-requests')).toBe('1');
  expect(Number(first.headers.get('x-ratelimit-remaining-tokens'))).toBeLessThan(100_000);
  await world.limit(id, { rate: { inference_per_minute: 1 } });
  await ask(token);
  const refused = await ask(token);
  expect(refused.status).toBe(429);
  expect(await refused.json()).toMatchObject({ error: { code: 'rate_limit_exceeded', type: 'requests' } });
  expect(Number(refused.headers.get('retry-after-ms'))).toBeGreaterThan(0);
});
