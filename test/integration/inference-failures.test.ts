// Failures of models below /v1: in the middle of an answer, before it, and callers who leave.
import { brotliCompressSync, deflateSync, gzipSync } from 'node:zlib';
import { expect } from 'vitest';
import { ScriptedModelServer, chatAnswer, chatFrame } from '../helpers/scripted-model-server.ts';
import { waitFor } from '../helpers/services.ts';
import { CHAT, errorIn, eventsIn, test } from './inference-fixture.ts';
import type { Frame, Json } from './inference-fixture.ts';

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

const JSON_TYPE = 'application/json';
const EVENTS = 'text/event-stream';
const QUOTA = '{"error":{"message":"quota exceeded","type":"insufficient_quota"}}';
const ENDED = '{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}';
const ENDED_BY_ERROR = '{"choices":[{"index":0,"delta":{},"finish_reason":"error"}]}';
/** An answer with the status of success that is none, and the server's own words in it. */
const NO_SUCCESS: readonly (readonly [what: string, type: string | undefined, text: string, says: string])[] = [
  ['an error as JSON', JSON_TYPE, QUOTA, 'quota exceeded'],
  ['an error as a text', JSON_TYPE, '{"error":"quota exceeded"}', 'quota exceeded'],
  ['an error beside choices', JSON_TYPE, '{"choices":[],"error":{"message":"quota exceeded"}}', 'quota exceeded'],
  [
    'an error in a choice',
    JSON_TYPE,
    '{"choices":[{"index":0,"error":{"message":"quota exceeded"}}]}',
    'quota exceeded',
  ],
  ['an error object', JSON_TYPE, '{"object":"error","message":"quota exceeded","code":40301}', 'quota exceeded'],
  ['a detail', JSON_TYPE, '{"detail":"quota exceeded"}', 'quota exceeded'],
  ['an error of another type', 'text/plain', QUOTA, 'quota exceeded'],
  ['an error without a type', undefined, QUOTA, 'quota exceeded'],
  [
    'a list of errors',
    JSON_TYPE,
    '{"success":false,"errors":[{"code":7,"message":"quota exceeded"}]}',
    'quota exceeded',
  ],
  ['an error in a list', JSON_TYPE, `[${QUOTA}]`, 'quota exceeded'],
  ['a list of details', JSON_TYPE, '{"detail":[{"loc":["body"],"msg":"quota exceeded"}]}', 'quota exceeded'],
  ['a message in short', JSON_TYPE, '{"code":40301,"msg":"quota exceeded"}', 'quota exceeded'],
  [
    'an error by its description',
    JSON_TYPE,
    '{"error":"quota","error_description":"quota exceeded"}',
    'quota exceeded',
  ],
  [
    'a choice that ended by an error',
    JSON_TYPE,
    '{"choices":[{"index":0,"message":{"content":""},"text":"","finish_reason":"error"}]}',
    'the model failed',
  ],
  ['a mark of the byte order', JSON_TYPE, `\ufeff${QUOTA}`, 'quota exceeded'],
  ['no choice', JSON_TYPE, '{"choices":[]}', 'without a choice'],
  ['no choices', JSON_TYPE, '{"id":"x","object":"chat.completion"}', 'without a choice'],
  ['choices that are none', JSON_TYPE, '{"choices":[null]}', 'without a choice'],
  ['a choice without a message', JSON_TYPE, '{"choices":[{"index":0,"finish_reason":"stop"}]}', 'without a choice'],
  ['a page', 'text/html', '<html>sign in</html>', 'no JSON'],
  ['a list', JSON_TYPE, '[]', 'no JSON object'],
  ['nothing', JSON_TYPE, '', 'no JSON'],
  ['nothing of no type', undefined, '', 'no JSON'],
  ['an error frame', EVENTS, `data: ${QUOTA}\n\n`, 'quota exceeded'],
  ['an error frame before the last', EVENTS, `data: ${QUOTA}\n\ndata: [DONE]\n\n`, 'quota exceeded'],
  ['an error event', EVENTS, 'event: error\ndata: {"message":"quota exceeded"}\n\ndata: [DONE]\n\n', 'quota exceeded'],
  ['an error event of text', EVENTS, 'event: error\ndata: quota exceeded\n\n', 'quota exceeded'],
  ['a frame with a detail', EVENTS, 'data: {"detail":"quota exceeded"}\n\ndata: [DONE]\n\n', 'quota exceeded'],
  ['JSON that calls itself a stream', EVENTS, QUOTA, 'quota exceeded'],
  ['a frame with an error in a list', EVENTS, `data: [${QUOTA}]\n\n`, 'quota exceeded'],
  ['an error event without data', EVENTS, 'event: error\n\ndata: [DONE]\n\n', 'the model failed'],
  ['an error frame behind a mark', EVENTS, `\ufeffdata: ${QUOTA}\n\n`, 'quota exceeded'],
];

test.for([
  ...NO_SUCCESS,
  ['a stream of nothing', EVENTS, 'data: [DONE]\n\n', 'without an answer'],
  ['an empty stream', EVENTS, '', 'broke off'],
  [
    'a stream of usage alone',
    EVENTS,
    'data: {"choices":[],"usage":{"prompt_tokens":1}}\n\ndata: [DONE]\n\n',
    'without an',
  ],
  ['a stream of empty choices', EVENTS, 'data: {"choices":[]}\n\ndata: [DONE]\n\n', 'without an answer'],
  [
    'a stream of a role',
    EVENTS,
    'data: {"choices":[{"index":0,"delta":{"role":"assistant"}}]}\n\ndata: [DONE]\n\n',
    'without an',
  ],
] as const)(
  'a stream that is answered 200 with %s is a frame with an error',
  async ([, type, text, says], { world }) => {
    const script = { text, ...(type === undefined ? {} : { type }) };
    world.server.script('/chat/completions', script);
    world.server.script('/completions', script);
    for (const [path, request] of [
      ['/chat/completions', CHAT],
      ['/completions', { model: 'acme/chat', prompt: 'hello' }],
    ] as const) {
      const answer = await world.post(path, { ...request, stream: true });
      const told = await answer.text();
      expect(told).not.toContain('[DONE]');
      const { error } = JSON.parse(eventsIn(told).at(-1) ?? '{}') as { error?: Json };
      expect(error).toMatchObject({ code: 'backend_error', type: 'server_error' });
      expect(error?.['message']).toContain(says);
    }
  },
);

test.for([
  ...NO_SUCCESS,
  ['a stream', EVENTS, 'data: {"choices":[{"index":0,"delta":{"content":"x"}}]}\n\ndata: [DONE]\n\n', 'no JSON'],
] as const)('a call that is answered 200 with %s is an error', async ([, type, text, says], { world }) => {
  const script = { text, ...(type === undefined ? {} : { type }) };
  world.server.script('/chat/completions', script);
  world.server.script('/completions', script);
  for (const [path, request] of [
    ['/chat/completions', CHAT],
    ['/completions', { model: 'acme/chat', prompt: 'hello' }],
  ] as const) {
    const answer = await world.post(path, request);
    const error = await errorIn(answer);
    expect([answer.status, error['code']]).toEqual([502, 'backend_error']);
    expect(error['message']).toContain(says);
  }
});

test.for([
  ['an error', JSON_TYPE, QUOTA, 'quota exceeded'],
  ['an error frame', EVENTS, `data: ${QUOTA}\n\n`, 'quota exceeded'],
  ['a detail', JSON_TYPE, '{"detail":"quota exceeded"}', 'quota exceeded'],
  ['a message', JSON_TYPE, '{"code":40301,"msg":"quota exceeded"}', 'quota exceeded'],
  ['an error in a list', JSON_TYPE, `[${QUOTA}]`, 'quota exceeded'],
  ['no vector', JSON_TYPE, '{"data":[]}', 'no list of embeddings'],
  ['an empty vector', JSON_TYPE, '{"data":[{"index":0,"embedding":[]}]}', 'no list of embeddings'],
  ['a vector that is too large', JSON_TYPE, '{"data":[{"index":0,"embedding":[1e400]}]}', 'no list of embeddings'],
  ['a page', 'text/html', '<html>', 'no JSON'],
  ['nothing', undefined, '', 'no JSON'],
] as const)('embeddings that are answered 200 with %s are an error', async ([, type, text, says], { world }) => {
  world.server.script('/embeddings', { text, ...(type === undefined ? {} : { type }) });
  const answer = await world.post('/embeddings', { model: 'acme/embed', input: 'a' });
  const error = await errorIn(answer);
  expect([answer.status, error['code']]).toEqual([502, 'backend_error']);
  expect(error['message']).toContain(says);
});

test.for([
  ['an event of no data', 'event: error\n\n', 'the model failed'],
  ['a frame whose choice ended by an error', `data: ${ENDED_BY_ERROR}\n\n`, 'the model failed'],
  ['an error frame behind the end of the choice', `data: ${ENDED}\n\ndata: ${QUOTA}\n\n`, 'quota exceeded'],
] as const)('a stream that tells of a failure by %s is no success', async ([, raw, says], { world }) => {
  const frames = [chatFrame({ role: 'assistant', content: 'go' }), { raw }, { raw: 'data: [DONE]\n\n' }];
  world.server.script('/chat/completions', { frames });
  const events = eventsIn(await (await world.post('/chat/completions', { ...CHAT, stream: true })).text());
  expect(events).not.toContain('[DONE]');
  expect(events.at(-1)).toContain(says);
});

test.for([
  ['gzip', gzipSync],
  ['br', brotliCompressSync],
  ['deflate', deflateSync],
] as const)(
  'an answer that was compressed without being asked for is read: %s',
  async ([encoding, packed], { world }) => {
    const script = (text: string, type = JSON_TYPE, status = 200): void =>
      world.server.script('/chat/completions', { text: packed(text), type, encoding, status });
    const post = async (stream: boolean): Promise<string> =>
      (await world.post('/chat/completions', { ...CHAT, stream })).text();
    for (const [text, type] of [
      [QUOTA, JSON_TYPE],
      [`data: ${QUOTA}\n\n`, EVENTS],
    ] as const)
      for (const stream of [false, true]) {
        script(text, type);
        expect(await post(stream)).toContain('quota exceeded');
      }
    script('{"message":"bad tool"}', JSON_TYPE, 400);
    expect(await post(false)).toContain('bad tool');
    script('{"choices":[{"index":0,"message":{"role":"assistant","content":"hello"}}]}');
    expect(await post(false)).toContain('"content":"hello"');
    script(
      `data: ${JSON.stringify({ choices: [{ index: 0, delta: { content: 'hello' }, finish_reason: 'stop' }] })}\n\n`,
      EVENTS,
    );
    expect(eventsIn(await post(true)).at(-1)).toBe('[DONE]');
    // Bytes that cannot be unpacked are a failure of the model, too.
    world.server.script('/chat/completions', { text: 'no such bytes', type: JSON_TYPE, encoding });
    for (const stream of [false, true]) expect(await post(stream)).toContain('backend_error');
  },
);

test('numbers and empty fields of the name error are no failure', async ({ world }) => {
  for (const error of ['0', '[]', '{}', 'null', '""', 'false']) {
    world.server.script('/chat/completions', {
      type: JSON_TYPE,
      text: `{"error":${error},"choices":[{"message":{}}]}`,
    });
    expect((await world.post('/chat/completions', CHAT)).status).toBe(200);
    world.server.script('/invoke', { type: JSON_TYPE, text: `{"error":${error},"answer":1}` });
    expect((await world.post('/models/shape/invoke', { prompt: 'a' })).status).toBe(200);
  }
  // A custom model may measure one.
  world.server.script('/invoke', { type: JSON_TYPE, text: '{"error":0.25}' });
  expect(await (await world.post('/models/shape/invoke', { prompt: 'a' })).text()).toBe('{"error":0.25}');
});

test('a call that is answered later has failed, where its model answers 200 with an error', async ({ world }) => {
  world.server.script('/chat/completions', { type: JSON_TYPE, text: QUOTA });
  const later = await world.post('/chat/completions', CHAT, { headers: { prefer: 'respond-async' } });
  const { url } = (await later.json()) as { readonly url: string };
  const record = await waitFor(async () => {
    const text = await (await fetch(url, { headers: { authorization: `Bearer ${world.set.token}` } })).text();
    return text.includes('"PENDING"') || text.includes('"RUNNING"') ? undefined : text;
  }, 'the call ends');
  expect(record).toContain('"status":"ERROR"');
  expect(record).toContain('quota exceeded');
});

test('a custom model that answers 200 with an error or nothing has failed, whole and as a stream', async ({
  world,
}) => {
  await world.model({ id: 'custom-stream', type: 'custom', capabilities: { streaming: true } });
  for (const [type, text, says] of [
    [JSON_TYPE, QUOTA, 'quota exceeded'],
    [EVENTS, `data: ${QUOTA}\n\n`, 'quota exceeded'],
    [EVENTS, 'data: [DONE]\n\n', ''],
    [EVENTS, '', ''],
    ['text/html', '<html>', 'no JSON'],
    [undefined, '', 'no JSON'],
  ] as const) {
    world.server.script('/invoke', { text, ...(type === undefined ? {} : { type }) });
    const whole = await world.post('/models/custom-stream/invoke', {});
    const error = await errorIn(whole);
    expect([text, whole.status, error['code']]).toEqual([text, 502, 'backend_error']);
    expect(error['message']).toContain(says);
    const streamed = eventsIn(await (await world.post('/models/custom-stream/invoke', { stream: true })).text());
    expect(streamed.length).toBe(1);
    expect(JSON.parse(streamed[0] ?? '')).toMatchObject({
      error: { code: 'backend_error', message: expect.stringContaining(says) as string },
    });
  }
});

test('a refusal inside a 200 keeps the code that callers act on', async ({ world }) => {
  const text = '{"error":{"message":"9000 tokens","code":"context_length_exceeded","param":"messages"}}';
  world.server.script('/chat/completions', { type: JSON_TYPE, text });
  const answer = await world.post('/chat/completions', CHAT);
  expect([answer.status, (await errorIn(answer))['code']]).toEqual([400, 'context_length_exceeded']);
  const streamed = await (await world.post('/chat/completions', { ...CHAT, stream: true })).text();
  expect(JSON.parse(eventsIn(streamed).at(-1) ?? '')).toMatchObject({
    error: { code: 'context_length_exceeded', message: '9000 tokens' },
  });
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
