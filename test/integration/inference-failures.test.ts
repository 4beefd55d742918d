// Failures of models below /v1: in the middle of an answer, before it, and callers who leave.
import { expect } from 'vitest';
import { ScriptedModelServer, chatAnswer, chatFrame } from '../helpers/scripted-model-server.ts';
import { waitFor } from '../helpers/services.ts';
import { CHAT, errorIn, eventsIn, test } from './inference-fixture.ts';
import type { Frame } from './inference-fixture.ts';

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
