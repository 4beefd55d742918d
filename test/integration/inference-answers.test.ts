// Answers of models below /v1, with a scripted server behind them: whole ones, streams, embeddings, custom calls,
// repeated calls, many at a time, and the events that tell of them.
import { expect } from 'vitest';
import { jsonOf } from '../helpers/platform.ts';
import { DONE, chatAnswer, chatFrame, chatStream } from '../helpers/scripted-model-server.ts';
import { waitFor } from '../helpers/services.ts';
import { CHAT, HELLO, errorIn, eventsIn, framesIn, test } from './inference-fixture.ts';
import type { Json } from './inference-fixture.ts';

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
  expect(floats.data.map(({ embedding }) => embedding)).toEqual(input.map(vectorOf));
  expect(floats.usage).toEqual({ prompt_tokens: 6, total_tokens: 6 });
  const coded = (await (
    await world.post('/embeddings', { model: 'acme/embed', input, encoding_format: 'base64' })
  ).json()) as { data: { embedding: string }[] };
  for (const [at, { embedding }] of coded.data.entries()) {
    const bytes = Buffer.from(embedding, 'base64');
    expect([0, 4, 8].map((place) => bytes.readFloatLE(place))).toEqual(floats.data[at]?.embedding.map(Math.fround));
  }
});

test('a custom model gets its own form, and its answer is passed as it is', async ({ world }) => {
  world.server.script('/invoke', { json: { urls: ['https://example.com/a.png'] } });
  const answer = await world.post('/models/shape/invoke', { prompt: 'a boat', size: 2 });
  expect([answer.status, await answer.json()]).toEqual([200, { urls: ['https://example.com/a.png'] }]);
  expect(world.server.last.body).toEqual({ prompt: 'a boat', size: 2 });
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
