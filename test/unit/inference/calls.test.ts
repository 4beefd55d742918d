// Calls of a model from their head to their end, with a played server behind it: waits and keep-alives, memory of
// requests, batches of embeddings, and callers who leave.
import { afterEach, describe, expect, test, vi } from 'vitest';
import { playModels } from '../../helpers/played-models.ts';
import type { PlayedModels, PlayedRequest } from '../../helpers/played-models.ts';

const WAIT = { timeout: 20_000, interval: 10 };
const LONG_MS = 30_000;
const playing: PlayedModels[] = [];
const played = async (...args: Parameters<typeof playModels>): Promise<PlayedModels> => {
  const models = await playModels(...args);
  playing.push(models);
  return models;
};
afterEach(async () => {
  for (const models of playing.splice(0)) await models.stop();
});

const CHAT = { model: 'played', messages: [{ role: 'user', content: 'hello' }] };
const STREAM = { ...CHAT, stream: true };
const frame = (content: string, reason: string | null = null): string =>
  JSON.stringify({ choices: [{ index: 0, delta: { content }, finish_reason: reason }] });
const later = (): void => undefined;

/** Reads until the text has come. */
async function until(reader: ReadableStreamDefaultReader<Uint8Array>, has: RegExp, before = ''): Promise<string> {
  let text = before;
  while (!has.test(text)) {
    const { value, done } = await reader.read();
    if (done) throw new Error(`the stream ended: ${text}`);
    text += Buffer.from(value).toString();
  }
  return text;
}

function readerOf(answer: Response): ReadableStreamDefaultReader<Uint8Array> {
  if (answer.body === null) throw new Error('no body');
  return answer.body.getReader();
}

describe('a stream of a model that starts slowly', () => {
  const times = { holdMs: 40, pingMs: 20 };

  test('begins after the hold with comments, which go on until the first frame', { timeout: LONG_MS }, async () => {
    const models = await played(later, { times });
    const answer = await models.post('/chat/completions', STREAM);
    expect([answer.status, answer.headers.get('content-type')]).toEqual([200, 'text/event-stream; charset=utf-8']);
    const reader = readerOf(answer);
    // The first one opens the stream, the others keep it.
    let text = await until(reader, /^(: ping\n\n){3}/);
    expect(text.replaceAll(': ping\n\n', '')).toBe('');
    const send = models.requests[0]?.events();
    // The model has answered its head, and thinks on.
    text = await until(reader, /^(: ping\n\n){6}/, text);
    send?.(frame('so', 'stop'));
    send?.('[DONE]');
    text = await until(reader, /\[DONE\]/, text);
    expect(text.slice(text.indexOf('data:'))).not.toContain(': ping');
  });

  test('tells a failure after the hold as a frame, and one before it by its status', { timeout: LONG_MS }, async () => {
    const slow = await played(later, { times });
    const answer = await slow.post('/chat/completions', STREAM);
    slow.requests[0]?.json({ error: { message: 'no' } }, 400);
    const text = await answer.text();
    expect([answer.status, text.includes('[DONE]')]).toEqual([200, false]);
    expect(text).toMatch(/: ping\n\ndata: \{"error":\{"message":"no"/);
    const quick = await played((request) => request.json({ error: { message: 'no' } }, 400));
    expect((await quick.post('/chat/completions', STREAM)).status).toBe(400);
  });

  test('ends at the longest wait, also when its head is out', { timeout: LONG_MS }, async () => {
    const models = await played(later, { times: { ...times, waitMs: 150 } });
    const text = await (await models.post('/chat/completions', STREAM)).text();
    expect(text).toMatch(/"code":"timeout"/);
    expect(models.requests[0]?.signal.aborted).toBe(true);
  });

  test('is not ended by that wait once the model has answered', { timeout: LONG_MS }, async () => {
    const begun: ((data: string | null) => void)[] = [];
    const models = await played((request) => void begun.push(request.events()), { times: { waitMs: 100, pingMs: 60 } });
    const answer = await models.post('/chat/completions', STREAM);
    const reader = readerOf(answer);
    // Comments for longer than the wait.
    const text = await until(reader, /(: ping\n\n){4}/);
    begun[0]?.(frame('so', 'stop'));
    begun[0]?.('[DONE]');
    expect(await until(reader, /\[DONE\]/, text)).not.toContain('error');
  });
});

test('the body of a request counts until a backend has it', { timeout: LONG_MS }, async () => {
  const models = await played(later);
  const content = 'x'.repeat(1024 * 1024);
  const answer = models.post('/chat/completions', { model: 'played', messages: [{ role: 'user', content }] });
  await vi.waitFor(() => expect(models.requests).toHaveLength(1), WAIT);
  expect(models.heldBytes()).toBeGreaterThan(content.length);
  models.requests[0]?.json({ choices: [{ message: {} }], usage: { prompt_tokens: 1, completion_tokens: 1 } });
  expect((await answer).status).toBe(200);
  await vi.waitFor(() => expect(models.heldBytes()).toBe(0), WAIT);
});

test('bodies of requests that wait for a model are bounded', { timeout: LONG_MS }, async () => {
  const models = await played(later);
  const messages = [{ role: 'user', content: 'x'.repeat(15 * 1024 * 1024) }];
  const leaving = new AbortController();
  const waiting = Array.from({ length: 4 }, () =>
    models.post('/chat/completions', { model: 'played', messages }, leaving.signal).catch(() => undefined),
  );
  await vi.waitFor(() => expect(models.requests).toHaveLength(4), WAIT);
  const refused = await models.post('/chat/completions', { model: 'played', messages });
  expect([refused.status, await refused.json()]).toMatchObject([503, { error: { code: 'bodies_full' } }]);
  leaving.abort();
  await Promise.all(waiting);
  await vi.waitFor(() => expect(models.heldBytes()).toBe(0), WAIT);
});

test('a whole answer counts until its caller has read it, or is gone', { timeout: LONG_MS }, async () => {
  const content = 'x'.repeat(15 * 1024 * 1024);
  const models = await played((request) => request.json({ choices: [{ index: 0, message: { content } }] }));
  const [read, left] = [await models.post('/chat/completions', CHAT), await models.post('/chat/completions', CHAT)];
  expect(models.answerBytes()).toBeGreaterThan(2 * content.length);
  await read.text();
  await vi.waitFor(() => expect(models.answerBytes()).toBeLessThan(2 * content.length), WAIT);
  expect(models.answerBytes()).toBeGreaterThan(content.length);
  await left.body?.cancel();
  await vi.waitFor(() => expect(models.answerBytes()).toBe(0), WAIT);
});

describe('embeddings in batches', () => {
  const input = ['a', 'bb', 'ccc', 'dddd', 'eeeee', 'ffffff', 'ggggggg'];
  const inputOf = ({ body }: PlayedRequest): readonly string[] => body['input'] as readonly string[];
  const embed = (request: PlayedRequest): void =>
    request.json({
      data: inputOf(request).map((text, index) => ({ index, embedding: [text.length] })),
      usage: { prompt_tokens: inputOf(request).length },
    });
  const ask = (models: PlayedModels, signal?: AbortSignal): Promise<Response> =>
    models.post('/embeddings', { model: 'played', input, encoding_format: 'float' }, signal);
  interface Embedded {
    readonly data: readonly { readonly index: number; readonly embedding: readonly number[] }[];
    readonly usage: object;
  }
  const whole = {
    data: input.map((text, index) => ({ index, embedding: [text.length] })),
    usage: { prompt_tokens: 7, total_tokens: 7 },
  };

  test('are sent some at a time, and keep their order and their sum', { timeout: LONG_MS }, async () => {
    const models = await played(later, { embeddingBatch: 1 });
    const answer = ask(models);
    await vi.waitFor(() => expect(models.requests).toHaveLength(4), WAIT);
    // The later ones answer first, and each answer makes room for another batch.
    for (let at = 3; at >= 0; at--) embed(models.requests[at] as PlayedRequest);
    await vi.waitFor(() => expect(models.requests).toHaveLength(7), WAIT);
    for (const request of models.requests.slice(4).toReversed()) embed(request);
    expect((await (await answer).json()) as Embedded).toMatchObject(whole);
    expect(models.settled).toEqual([
      { usage: { promptTokens: 7, completionTokens: 0, estimated: false }, status: 'complete' },
    ]);
  });

  test('are sent again when a busy model refuses them beside others', { timeout: LONG_MS }, async () => {
    let underWay = 0;
    const models = await played(
      (request) => {
        if (underWay > 0) return request.json({}, 429);
        underWay += 1;
        setImmediate(() => {
          underWay -= 1;
          embed(request);
        });
      },
      { embeddingBatch: 1 },
    );
    expect((await (await ask(models)).json()) as Embedded).toMatchObject(whole);
    const busy = await played((request) => request.json({}, 429), { embeddingBatch: 1 });
    const refused = await ask(busy);
    expect([refused.status, await refused.json()]).toMatchObject([429, { error: { code: 'model_overloaded' } }]);
    expect(busy.settled).toEqual([]);
  });

  test('fail as a whole, and end the others under way', { timeout: LONG_MS }, async () => {
    const models = await played((request, nth) => void (nth === 2 && request.json({ data: [] })), {
      embeddingBatch: 1,
    });
    const answer = await ask(models);
    expect([answer.status, await answer.json()]).toMatchObject([502, { error: { code: 'backend_error' } }]);
    expect(models.requests.filter(({ signal }) => !signal.aborted)).toEqual([]);
    expect([models.requests.length, models.settled]).toEqual([4, []]);
  });

  test('are refused when their vectors are too large together', { timeout: LONG_MS }, async () => {
    const embedding = Buffer.alloc(5 * 1024 * 1024).toString('base64');
    const models = await played((request) => request.json({ data: [{ index: 0, embedding }] }), { embeddingBatch: 1 });
    const answer = await ask(models);
    expect([answer.status, await answer.json()]).toMatchObject([502, { error: { code: 'backend_error' } }]);
    await vi.waitFor(() => expect(models.answerBytes()).toBe(0), WAIT);
  });

  test('are paid for by a caller who leaves, as far as they are done', { timeout: LONG_MS }, async () => {
    const leaving = new AbortController();
    const models = await played((request, nth) => nth <= 3 && embed(request), { embeddingBatch: 2 });
    const answer = ask(models, leaving.signal);
    await vi.waitFor(() => expect(models.requests).toHaveLength(4), WAIT);
    leaving.abort();
    await expect(answer).rejects.toThrow();
    await vi.waitFor(() => expect(models.settled).toHaveLength(1), WAIT);
    expect(models.settled).toEqual([
      { usage: { promptTokens: 6, completionTokens: 0, estimated: false }, status: 'aborted' },
    ]);
    expect(models.requests[3]?.signal.aborted).toBe(true);
  });
});

test('each call that a backend was asked for is told, with its end', { timeout: LONG_MS }, async () => {
  const models = await played((request, nth) => {
    if (nth === 1) request.json({ choices: [{ message: {} }], usage: { prompt_tokens: 3, completion_tokens: 2 } });
    if (nth === 2) request.json({}, 500);
    if (nth === 3) {
      const send = request.events();
      send(frame('one'));
      send(null);
    }
  });
  await models.post('/chat/completions', CHAT);
  await models.post('/chat/completions', CHAT);
  await (await models.post('/chat/completions', STREAM)).text();
  await models.post('/chat/completions', { ...CHAT, temperature: 3 });
  await vi.waitFor(() => expect(models.routed).toHaveLength(3), WAIT);
  const path = '/chat/completions';
  const common = { model: 'played', path, durationMs: expect.any(Number) as number };
  const first = { firstResponseMs: expect.any(Number) as number };
  expect(models.routed).toMatchObject([
    { ...common, ...first, stream: false, status: 200, usage: { promptTokens: 3, completionTokens: 2 }, route: 'only' },
    { ...common, stream: false, status: 502, usage: undefined, route: undefined, firstResponseMs: undefined },
    { ...common, ...first, stream: true, status: 502, usage: { completionTokens: 1 }, route: 'only' },
  ]);
});
