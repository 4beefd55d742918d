// The /v1 surface as OpenAI clients meet it, with a scripted server behind the models: the catalog, refusals, whole
// answers and streams, embeddings, failures in the middle, and callers who leave.
/* oxlint-disable no-empty-pattern */
import { expect } from 'vitest';
import { jsonOf } from '../helpers/platform.ts';
import { ReplicaSet } from '../helpers/replicas.ts';
import { DONE, ScriptedModelServer, chatAnswer, chatFrame, chatStream } from '../helpers/scripted-model-server.ts';
import { test as base, waitFor } from '../helpers/services.ts';

type Json = Readonly<Record<string, unknown>>;

interface World {
  readonly set: ReplicaSet;
  readonly server: ScriptedModelServer;
  readonly url: string;
  readonly post: (path: string, body: unknown, options?: Options) => Promise<Response>;
  readonly get: (path: string, token?: string | null) => Promise<Response>;
  readonly model: (fields: Json) => Promise<void>;
}
interface Options {
  readonly token?: string | null;
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal;
}

const bearer = (token: string | null): Record<string, string> =>
  token === null ? {} : { authorization: `Bearer ${token}` };

const test = base.extend('world', { scope: 'file' }, async ({ postgres, redis }, { onCleanup }): Promise<World> => {
  const server = await new ScriptedModelServer().start();
  const set = new ReplicaSet(postgres, redis, postgres.url, { LONGSHORE_WEBHOOK_ALLOW: '127.0.0.1' });
  onCleanup(async () => {
    await set.stop();
    await server.stop();
  });
  const replica = await set.add();
  const world: World = {
    set,
    server,
    url: replica.url,
    post: (path, body, { token = set.token, headers = {}, signal } = {}) =>
      fetch(`${replica.url}/v1${path}`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', ...bearer(token), ...headers },
        body: typeof body === 'string' ? body : JSON.stringify(body),
        ...(signal === undefined ? {} : { signal }),
      }),
    get: (path, token = set.token) => fetch(`${replica.url}/v1${path}`, { headers: bearer(token) }),
    model: async (fields) => {
      const backends = [{ kind: 'external', base_url: server.baseUrl, served_model_name: 'served-name' }];
      const answer = await set.call(replica, `/api/v1/model/${set.workspaceId}`, {
        body: { type: 'chat', backends, ...fields },
      });
      expect([answer.status, answer.text]).toEqual([201, expect.any(String)]);
    },
  };
  await world.model({ id: 'acme/chat', context_length: 4096, visibility: 'public' });
  await world.model({ id: 'plain', capabilities: { tools: false, response_format: ['text'], streaming: false } });
  await world.model({
    id: 'acme/embed',
    type: 'embedding',
    embedding: { dimensions: 3, max_batch: 2, supported_dimensions: [2] },
  });
  await world.model({
    id: 'shape',
    type: 'custom',
    input_schema: {
      type: 'object',
      required: ['prompt'],
      properties: { prompt: { type: 'string' }, size: { enum: [1, 2] } },
    },
  });
  await world.model({ id: 'off', active: false });
  await world.model({
    id: 'dear',
    prices: { prompt_micros_per_million: 1, completion_micros_per_million: 0, request_micros: 0 },
  });
  return world;
});

const HELLO = [{ role: 'user', content: 'hello' }];
const errorIn = async (response: Response): Promise<Json> => ((await response.json()) as { error: Json }).error;

interface Frame extends Json {
  readonly choices: readonly Json[];
}
/** Data of the events of a stream. */
const eventsIn = (text: string): string[] =>
  text
    .split('\n\n')
    .filter((event) => event.startsWith('data: '))
    .map((event) => event.slice(6));
const framesIn = (text: string): Frame[] =>
  eventsIn(text)
    .filter((data) => data !== '[DONE]')
    .map((data) => JSON.parse(data) as Frame);

test('the catalog is open for public models, and a token adds those of its workspace', async ({ world }) => {
  const open = await world.get('/models', null);
  expect(open.headers.get('cache-control')).toBe('public, max-age=60');
  const shown = (await open.json()) as { data: Json[] };
  expect(shown.data.map(({ id }) => id)).toEqual(['acme/chat']);
  expect(shown.data[0]).toMatchObject({
    object: 'model',
    created: expect.any(Number),
    visibility: 'public',
    context_length: 4096,
    status: 'ready',
    pricing: { prompt: '0', unit: 'token' },
  });
  const own = await world.get('/models');
  expect(own.headers.get('cache-control')).toBe('private, no-store');
  const ids = ((await own.json()) as { data: Json[] }).data.map(({ id }) => id);
  expect(ids).toEqual(['acme/chat', 'acme/embed', 'dear', 'off', 'plain', 'shape']);
  const embeddings = (await (await world.get('/models?type=embedding')).json()) as { data: Json[] };
  expect(embeddings.data.map(({ id }) => id)).toEqual(['acme/embed']);
});

test.for(['/models/acme%2Fchat', '/models/acme/chat', '/models/acme/chat/'])(
  '%s is one model',
  async (path, { world }) => {
    const answer = await world.get(path, null);
    expect([answer.status, ((await answer.json()) as Json)['id']]).toEqual([200, 'acme/chat']);
    expect(answer.headers.get('x-request-id')).toMatch(/^req_[0-9a-f]{24}$/);
  },
);

const CHAT = { model: 'acme/chat', messages: HELLO };
const message = (fields: object): object => ({ ...CHAT, messages: [fields] });
test.for([
  ['GET', '/models', 'bad', undefined, 401, 'invalid_api_key', null],
  ['GET', '/models/none', null, undefined, 404, 'model_not_found', 'model'],
  ['GET', '/models/plain', null, undefined, 404, 'model_not_found', 'model'],
  ['POST', '/chat/completions', null, CHAT, 401, 'invalid_api_key', null],
  ['POST', '/chat/completions', 'bad', CHAT, 401, 'invalid_api_key', null],
  ['POST', '/completions', null, CHAT, 401, 'invalid_api_key', null],
  ['POST', '/embeddings', null, CHAT, 401, 'invalid_api_key', null],
  ['POST', '/models/shape/invoke', null, {}, 401, 'invalid_api_key', null],
  ['GET', '/nothing', null, undefined, 404, 'unknown_url', null],
  ['GET', '', null, undefined, 404, 'unknown_url', null],
  ['GET', '/chat/completions', 'good', undefined, 405, 'method_not_supported', null],
  ['DELETE', '/models', 'good', undefined, 405, 'method_not_supported', null],
  ['POST', '/chat/completions', 'good', '{', 400, 'invalid_json', null],
  ['POST', '/chat/completions', 'good', '[]', 400, 'invalid_json', null],
  ['POST', '/chat/completions', 'good', { messages: HELLO }, 400, 'missing_required_parameter', 'model'],
  ['POST', '/chat/completions', 'good', { model: 'none', messages: HELLO }, 404, 'model_not_found', 'model'],
  ['POST', '/chat/completions', 'good', { model: 'acme/chat' }, 400, 'missing_required_parameter', 'messages'],
  ['POST', '/chat/completions', 'good', { ...CHAT, messages: [] }, 400, 'invalid_request', 'messages'],
  [
    'POST',
    '/chat/completions',
    'good',
    message({ role: 'robot', content: 'x' }),
    400,
    'invalid_request',
    'messages[0].role',
  ],
  ['POST', '/chat/completions', 'good', message({ role: 'user' }), 400, 'invalid_request', 'messages[0].content'],
  [
    'POST',
    '/chat/completions',
    'good',
    message({ role: 'tool', content: 'x' }),
    400,
    'invalid_request',
    'messages[0].tool_call_id',
  ],
  [
    'POST',
    '/chat/completions',
    'good',
    message({ role: 'user', content: [{ type: 'image_url' }] }),
    400,
    'unsupported_content',
    'messages[0].content[0]',
  ],
  ['POST', '/chat/completions', 'good', { ...CHAT, temperature: 3 }, 400, 'invalid_request', 'temperature'],
  ['POST', '/chat/completions', 'good', { ...CHAT, n: 9 }, 400, 'invalid_request', 'n'],
  ['POST', '/chat/completions', 'good', { ...CHAT, max_tokens: 0 }, 400, 'invalid_request', 'max_tokens'],
  ['POST', '/chat/completions', 'good', { ...CHAT, stop: ['a', 'b', 'c', 'd', 'e'] }, 400, 'invalid_request', 'stop'],
  [
    'POST',
    '/chat/completions',
    'good',
    { ...CHAT, stream_options: { include_usage: true } },
    400,
    'invalid_request',
    'stream_options',
  ],
  ['POST', '/chat/completions', 'good', { ...CHAT, max_tokens: 5000 }, 400, 'context_length_exceeded', 'messages'],
  [
    'POST',
    '/chat/completions',
    'good',
    { ...CHAT, model: 'plain', tools: [{ type: 'function' }] },
    400,
    'unsupported_parameter',
    'tools',
  ],
  [
    'POST',
    '/chat/completions',
    'good',
    { ...CHAT, model: 'plain', response_format: { type: 'json_schema' } },
    400,
    'unsupported_parameter',
    'response_format',
  ],
  ['POST', '/chat/completions', 'good', { ...CHAT, model: 'acme/embed' }, 400, 'model_type_mismatch', 'model'],
  ['POST', '/chat/completions', 'good', { ...CHAT, model: 'off' }, 503, 'model_unavailable', null],
  ['POST', '/embeddings', 'good', { model: 'acme/chat', input: 'x' }, 400, 'model_type_mismatch', 'model'],
  ['POST', '/embeddings', 'good', { model: 'acme/embed' }, 400, 'missing_required_parameter', 'input'],
  ['POST', '/embeddings', 'good', { model: 'acme/embed', input: ['a', ''] }, 400, 'invalid_request', 'input'],
  ['POST', '/embeddings', 'good', { model: 'acme/embed', input: [[1, 2]] }, 400, 'invalid_request', 'input'],
  [
    'POST',
    '/embeddings',
    'good',
    { model: 'acme/embed', input: 'a', dimensions: 4 },
    400,
    'invalid_request',
    'dimensions',
  ],
  [
    'POST',
    '/embeddings',
    'good',
    { model: 'acme/embed', input: 'a', encoding_format: 'hex' },
    400,
    'invalid_request',
    'encoding_format',
  ],
  ['POST', '/models/shape/invoke', 'good', { size: 1 }, 400, 'invalid_request', '/prompt'],
  ['POST', '/models/shape/invoke', 'good', { prompt: 'x', size: 3 }, 400, 'invalid_request', '/size'],
  ['POST', '/models/shape/invoke', 'good', { prompt: 'x', stream: true }, 400, 'unsupported_parameter', 'stream'],
] as const)('%s %s (%s) %o is %d %s', async ([method, path, who, body, status, code, param], { world }) => {
  const token = who === null ? null : who === 'bad' ? 'no-such-token' : world.set.token;
  const asked = world.server.requests.length;
  const answer = await fetch(`${world.url}/v1${path}`, {
    method,
    headers: { ...bearer(token), ...(body === undefined ? {} : { 'content-type': 'application/json' }) },
    ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
  });
  const error = await errorIn(answer);
  expect([answer.status, error['code'], error['param']]).toEqual([status, code, param]);
  expect(error['request_id']).toBe(answer.headers.get('x-request-id'));
  expect(world.server.requests.length).toBe(asked);
});

test('a body of another type is 415, and one that is too large 413', async ({ world }) => {
  const plain = await world.post('/chat/completions', 'x', { headers: { 'content-type': 'text/plain' } });
  expect([plain.status, (await errorIn(plain))['code']]).toEqual([415, 'unsupported_media_type']);
  const large = await world.post('/chat/completions', `"${'x'.repeat(17 * 1024 * 1024)}"`);
  expect([large.status, (await errorIn(large))['code']]).toEqual([413, 'request_too_large']);
});

test('a chat passes with its own fields, and comes back under the id of the catalog', async ({ world }) => {
  const { server } = world;
  server.script('/chat/completions', chatAnswer('good day'));
  const tools = [{ type: 'function', function: { name: 'look', parameters: { type: 'object' } } }];
  const answer = await world.post('/chat/completions', {
    ...CHAT,
    tools,
    top_k: 5,
    max_completion_tokens: 20,
    store: true,
    response_format: { type: 'json_object' },
  });
  expect(answer.status).toBe(200);
  expect(await answer.json()).toMatchObject({
    object: 'chat.completion',
    model: 'acme/chat',
    choices: [{ message: { content: 'good day' }, finish_reason: 'stop' }],
    usage: { prompt_tokens: 7, completion_tokens: 3, total_tokens: 10 },
  });
  expect(answer.headers.get('x-usage-prompt-tokens')).toBe('7');
  expect(answer.headers.get('x-usage-cost')).toBe('0');
  expect(server.last.body).toEqual({
    model: 'served-name',
    messages: HELLO,
    tools,
    top_k: 5,
    max_tokens: 20,
    response_format: { type: 'json_object' },
  });
});

test('usage that a backend leaves out is estimated, and says so', async ({ world }) => {
  world.server.script('/chat/completions', {
    json: { choices: [{ index: 0, message: { role: 'assistant', content: '12345678' } }] },
  });
  const answer = (await (await world.post('/chat/completions', CHAT)).json()) as Json;
  expect(answer['usage']).toEqual({ prompt_tokens: 2, completion_tokens: 2, total_tokens: 4, estimated: true });
});

test('a stream has usage where it was asked for, and no trace of it otherwise', async ({ world }) => {
  const { server } = world;
  server.script('/chat/completions', chatStream('good', ' day'));
  const plain = await world.post('/chat/completions', { ...CHAT, stream: true });
  expect(plain.headers.get('content-type')).toBe('text/event-stream; charset=utf-8');
  const text = await plain.text();
  expect(eventsIn(text).at(-1)).toBe('[DONE]');
  expect(text).not.toContain('usage');
  expect(framesIn(text).map(({ model }) => model)).toEqual(Array.from({ length: 4 }, () => 'acme/chat'));
  expect(server.last.body).toMatchObject({
    model: 'served-name',
    stream: true,
    stream_options: { include_usage: true },
  });
  const asked = await world.post('/chat/completions', {
    ...CHAT,
    stream: true,
    stream_options: { include_usage: true },
  });
  const frames = framesIn(await asked.text());
  expect(frames.at(-1)).toMatchObject({ choices: [], usage: { total_tokens: 10 }, model: 'acme/chat' });
  expect(frames.slice(0, -1).every((frame) => frame['usage'] === null)).toBe(true);
});

test('fragments of a tool call pass as they are', async ({ world }) => {
  const call = (fields: object): object => ({ tool_calls: [{ index: 0, ...fields }] });
  world.server.script('/chat/completions', {
    frames: [
      chatFrame({ role: 'assistant', content: '' }),
      chatFrame(call({ id: 'call_1', type: 'function', function: { name: 'look', arguments: '' } })),
      chatFrame(call({ function: { arguments: '{"at":' } })),
      chatFrame(call({ function: { arguments: '"sea"}' } })),
      chatFrame({}, 'tool_calls'),
      DONE,
    ],
  });
  const frames = framesIn(await (await world.post('/chat/completions', { ...CHAT, stream: true })).text());
  const parts = frames.flatMap(({ choices }) => {
    const delta = choices[0]?.['delta'] as { tool_calls?: { function: { arguments: string } }[] };
    return delta.tool_calls?.map((one) => one.function.arguments) ?? [];
  });
  expect(parts.join('')).toBe('{"at":"sea"}');
  expect(frames.at(-1)?.choices[0]?.['finish_reason']).toBe('tool_calls');
});

test('events that are split anywhere, and comments between them, come whole', async ({ world }) => {
  const event = `data: ${JSON.stringify({ choices: [{ index: 0, delta: { content: 'münze' }, finish_reason: 'stop' }] })}`;
  const bytes = `: comment\r\n\r\n${event}\r\n\r\ndata: [DONE]\r\n\r\n`;
  world.server.script('/chat/completions', { frames: bytes.split('').map((raw) => ({ raw })) });
  const frames = framesIn(await (await world.post('/chat/completions', { ...CHAT, stream: true })).text());
  expect(frames.map(({ choices }) => choices[0]?.['delta'])).toEqual([{ content: 'münze' }]);
});

test('a model that does not stream answers a stream in one part', async ({ world }) => {
  world.server.script('/chat/completions', chatAnswer('all at once'));
  const answer = await world.post('/chat/completions', {
    ...CHAT,
    model: 'plain',
    stream: true,
    stream_options: { include_usage: true },
  });
  const frames = framesIn(await answer.text());
  expect(frames.map(({ choices }) => choices[0]?.['finish_reason'])).toEqual([null, 'stop', undefined]);
  expect(frames[0]?.choices[0]?.['delta']).toMatchObject({ content: 'all at once' });
  expect(frames.at(-1)?.['usage']).toMatchObject({ total_tokens: 10 });
  expect(world.server.last.body['stream']).toBeUndefined();
});

test.for([
  ['the connection breaks', ['break']],
  ['the stream just ends', []],
  ['the backend reports an error', [{ data: { error: { message: 'out of memory' } } }]],
  ['a frame is no JSON', [{ data: '{' }]],
] as const)('a stream ends with an error frame and without its last frame when %s', async ([, last], { world }) => {
  world.server.script('/chat/completions', { frames: [chatFrame({ role: 'assistant', content: 'go' }), ...last] });
  const answer = await world.post('/chat/completions', { ...CHAT, stream: true });
  const events = eventsIn(await answer.text());
  expect(events).not.toContain('[DONE]');
  expect(JSON.parse(events.at(-1) ?? '')).toMatchObject({ error: { code: 'backend_error', type: 'server_error' } });
});

test.for([
  [{ status: 400, json: { error: { message: 'bad tool' } } }, 400, 'invalid_request', 'bad tool'],
  [
    { status: 400, json: { message: 'the maximum context length is 4096 tokens' } },
    400,
    'context_length_exceeded',
    'maximum',
  ],
  [{ status: 422, json: { detail: 'odd' } }, 422, 'unprocessable', 'odd'],
  [{ status: 429, json: {} }, 429, 'model_overloaded', ''],
  [{ status: 500, json: { error: { message: 'Traceback at 10.0.0.7' } } }, 502, 'backend_error', ''],
  [{ status: 401, json: {} }, 502, 'backend_error', ''],
  [{ status: 200, json: [] }, 502, 'backend_error', ''],
] as const)('a backend that answers %o gives %d %s', async ([script, status, code, text], { world }) => {
  world.server.script('/chat/completions', script);
  for (const stream of [false, true]) {
    const answer = await world.post('/chat/completions', { ...CHAT, stream });
    if (status === 502 && script.status === 200 && stream) {
      expect(await answer.text()).toContain('backend_error');
      continue;
    }
    const error = await errorIn(answer);
    expect([answer.status, error['code']]).toEqual([status, code]);
    expect(error['message']).toContain(text);
    expect(error['message']).not.toContain('10.0.0.7');
  }
});

test('a caller who leaves ends the request of the backend', async ({ world }) => {
  const { server } = world;
  const held = Promise.withResolvers<void>();
  server.script('/chat/completions', {
    frames: [chatFrame({ role: 'assistant', content: 'go' }), { until: held.promise }],
  });
  const abort = new AbortController();
  const answer = await world.post('/chat/completions', { ...CHAT, stream: true }, { signal: abort.signal });
  await answer.body?.getReader().read();
  const leftAtMs = Date.now();
  abort.abort();
  await waitFor(() => server.last.leftAtMs !== undefined, 'the backend sees that its caller is gone', 20_000);
  expect((server.last.leftAtMs ?? Infinity) - leftAtMs).toBeLessThan(10_000);
  held.resolve();
});

test('a caller who leaves before a whole answer ends the request of the backend, too', async ({ world }) => {
  const { server } = world;
  const held = Promise.withResolvers<void>();
  server.script('/chat/completions', { json: {}, until: held.promise });
  const abort = new AbortController();
  const asked = server.requests.length;
  const answer = world.post('/chat/completions', CHAT, { signal: abort.signal });
  await waitFor(() => server.requests.length > asked, 'the backend is asked', 20_000);
  abort.abort();
  await expect(answer).rejects.toThrow();
  await waitFor(() => server.last.leftAtMs !== undefined, 'the backend sees that its caller is gone', 20_000);
  held.resolve();
});

test('embeddings are split for the backend, keep their order, and agree in both encodings', async ({ world }) => {
  const { server } = world;
  const vectorOf = (text: unknown): number[] => [String(text).length / 10, 0.1, -2.5];
  server.script('/embeddings', ({ body }) => {
    const data = (body['input'] as unknown[]).map((text, index) => ({
      object: 'embedding',
      index,
      embedding: vectorOf(text),
    }));
    return {
      json: {
        object: 'list',
        data: data.toReversed(),
        model: 'served-name',
        usage: { prompt_tokens: 2, total_tokens: 2 },
      },
    };
  });
  const asked = server.requests.length;
  const input = ['a', 'bb', 'ccc', 'dddd', 'eeeee'];
  const floats = (await (await world.post('/embeddings', { model: 'acme/embed', input })).json()) as {
    data: { index: number; embedding: number[] }[];
    usage: Json;
  };
  const sent = server.requests.slice(asked).map(({ body }) => body['input'] as string[]);
  expect(sent.toSorted(([a = ''], [b = '']) => a.localeCompare(b))).toEqual([['a', 'bb'], ['ccc', 'dddd'], ['eeeee']]);
  expect(floats.data.map(({ index }) => index)).toEqual([0, 1, 2, 3, 4]);
  expect(floats.data.map(({ embedding }) => embedding)).toEqual(
    input.map((text) => [...Float32Array.from(vectorOf(text))]),
  );
  expect(floats.usage).toEqual({ prompt_tokens: 6, total_tokens: 6 });
  const coded = (await (
    await world.post('/embeddings', { model: 'acme/embed', input, encoding_format: 'base64' })
  ).json()) as { data: { embedding: string }[] };
  for (const [at, { embedding }] of coded.data.entries()) {
    const bytes = Buffer.from(embedding, 'base64');
    expect([0, 4, 8].map((place) => bytes.readFloatLE(place))).toEqual(floats.data[at]?.embedding);
  }
});

test('a custom model gets its own form, and its answer is passed as it is', async ({ world }) => {
  world.server.script('/invoke', { json: { urls: ['https://example.com/a.png'] } });
  const answer = await world.post('/models/shape/invoke', { prompt: 'a boat', size: 2 });
  expect([answer.status, await answer.json()]).toEqual([200, { urls: ['https://example.com/a.png'] }]);
  expect(world.server.last.body).toEqual({ prompt: 'a boat', size: 2 });
});

test('another backend answers where the first fails before its answer, and not where it refuses', async ({ world }) => {
  const { server } = world;
  const second = await new ScriptedModelServer().start();
  try {
    await world.model({
      id: 'two',
      backends: [
        { kind: 'external', base_url: server.baseUrl, level: 0 },
        { kind: 'external', base_url: second.baseUrl, level: 1 },
      ],
    });
    second.script('/chat/completions', chatAnswer('second'));
    server.script('/chat/completions', { status: 503, json: {} });
    const answer = (await (await world.post('/chat/completions', { ...CHAT, model: 'two' })).json()) as Frame;
    expect(answer.choices[0]).toMatchObject({ message: { content: 'second' } });
    server.script('/chat/completions', { status: 400, json: { message: 'no' } });
    expect((await world.post('/chat/completions', { ...CHAT, model: 'two' })).status).toBe(400);
    server.script('/chat/completions', { frames: [chatFrame({ content: 'x' }), 'break'] });
    const cut = eventsIn(await (await world.post('/chat/completions', { ...CHAT, model: 'two', stream: true })).text());
    expect(JSON.parse(cut.at(-1) ?? '')).toMatchObject({ error: { code: 'backend_error' } });
    expect(second.requests.length).toBe(1);
  } finally {
    await second.stop();
  }
});

test('a repeated call gets the first answer, and another body under its key is a conflict', async ({ world }) => {
  const { server } = world;
  server.script('/chat/completions', chatAnswer('first'), chatAnswer('second'));
  const keyed = (body: Json, key = 'key-1'): Promise<Response> =>
    world.post('/chat/completions', body, { headers: { 'idempotency-key': key } });
  const asked = server.requests.length;
  const first = await (await keyed(CHAT)).text();
  const again = await keyed(CHAT);
  expect([again.status, await again.text()]).toEqual([200, first]);
  expect(again.headers.get('idempotency-replayed')).toBe('true');
  expect(server.requests.length).toBe(asked + 1);
  const other = await keyed({ ...CHAT, temperature: 1 });
  expect([other.status, (await errorIn(other))['code']]).toEqual([409, 'conflict']);
  expect(other.headers.get('x-should-retry')).toBe('false');
  // A failed call gives its key back, and a stream does not.
  server.script('/chat/completions', { status: 500, json: {} }, chatStream('streamed'));
  expect((await keyed(CHAT, 'key-2')).status).toBe(502);
  const streamed = { ...CHAT, stream: true };
  expect(eventsIn(await (await keyed(streamed, 'key-2')).text()).at(-1)).toBe('[DONE]');
  await waitFor(
    async () => {
      const answer = await keyed(streamed, 'key-2');
      return answer.status === 409 && answer.headers.get('x-should-retry') === 'false';
    },
    'the stream is noted as given',
    20_000,
  );
  expect((await keyed(CHAT, 'a b')).status).toBe(400);
});

test('200 streams run side by side', async ({ world }) => {
  world.server.script('/chat/completions', chatStream('a', 'b', 'c'));
  const texts = await Promise.all(
    Array.from({ length: 200 }, async () => (await world.post('/chat/completions', { ...CHAT, stream: true })).text()),
  );
  expect(texts.filter((text) => eventsIn(text).at(-1) === '[DONE]').length).toBe(200);
});

test('tokens that may not call models are refused', async ({ world }) => {
  const { set } = world;
  const [replica] = set.running;
  if (replica === undefined) throw new Error('no replica runs');
  const made = await set.call(replica, `/api/v1/token/${set.workspaceId}`, {
    body: { name: 'reader', scopes: ['read'] },
  });
  const token = String(jsonOf<Json>(made)['key'] ?? jsonOf<Json>(made)['token']);
  expect((await world.get('/models', token)).status).toBe(200);
  const refused = await world.post('/chat/completions', CHAT, { token });
  expect([refused.status, (await errorIn(refused))['code']]).toEqual([403, 'permission_denied']);
});

test('each request that reached a backend is an event of its workspace', async ({ world }) => {
  const { set, server } = world;
  const [replica] = set.running;
  if (replica === undefined) throw new Error('no replica runs');
  server.script('/chat/completions', chatStream('good', ' day'));
  const answer = await world.post('/chat/completions', { ...CHAT, stream: true });
  await answer.text();
  const path = `/api/v1/events/${set.workspaceId}/history?event_types=llm.route`;
  const told = await waitFor(
    async () => {
      const { events } = jsonOf<{ events: { data: Json }[] }>(await set.call(replica, path));
      return events.find(({ data }) => data['request_id'] === answer.headers.get('x-request-id'));
    },
    'the request is told',
    60_000,
  );
  expect(told).toMatchObject({
    type: 'llm.route',
    workspace_id: set.workspaceId,
    data: {
      model: 'acme/chat',
      path: '/v1/chat/completions',
      stream: true,
      status_code: 200,
      prompt_tokens: 7,
      output_tokens: 3,
      queue_wait_ms: null,
      first_response_ms: expect.any(Number) as number,
      route_reason: 'only',
    },
  });
});
