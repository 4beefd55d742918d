// Pure parts of the /v1 surface: paths, prices, events, the order of backends, schemas, preferences.
import { describe, expect, test } from 'vitest';
import type { TaskId } from '#shared/domain/ids.ts';
import { backendOrder } from '#scheduler/api/http/inference/choose-backend.ts';
import { outcomeOf } from '#scheduler/api/http/inference/deferred-call.ts';
import { backendFailed, failureOf, refusalOf, timedOut, unavailable } from '#scheduler/api/http/inference/failures.ts';
import { schemaProblem } from '#scheduler/api/http/inference/input-schema.ts';
import { decimalPrice } from '#scheduler/api/http/inference/model-page.ts';
import { matchPath } from '#scheduler/api/http/inference/paths.ts';
import { prefersLater } from '#scheduler/api/http/inference/respond-later.ts';
import { SseReader, TooLargeEvent } from '#scheduler/api/http/inference/sse.ts';
import type { SseEvent } from '#scheduler/api/http/inference/sse.ts';
import { StreamFrames } from '#scheduler/api/http/inference/stream-frames.ts';

describe('a refusal of a backend', () => {
  const said = (error: unknown): string => JSON.stringify({ error });

  test('keeps the field at fault, and the codes that callers act on', () => {
    expect(refusalOf(400, said({ message: 'no n', code: 'unsupported_parameter', param: 'n' }))).toMatchObject({
      status: 400,
      code: 'unsupported_parameter',
      message: 'no n',
      param: 'n',
    });
    expect(refusalOf(400, said({ message: '6000 words', code: 'context_length_exceeded' }))).toMatchObject({
      code: 'context_length_exceeded',
      param: 'messages',
    });
    expect(
      refusalOf(400, said({ message: 'too many', code: 'context_length_exceeded', param: 'input' })),
    ).toMatchObject({
      param: 'input',
    });
    expect(refusalOf(400, said({ message: 'odd', code: 'of_their_own', param: 7 }))).toMatchObject({
      code: 'invalid_request',
      param: null,
    });
  });

  test('names the served model to its owner alone', () => {
    expect(refusalOf(404, '', 'acme/pod').message).toContain('no model "acme/pod": `served_model_name`');
    expect(refusalOf(404, '').message).toBe('the server of this model does not have this route or model');
  });
});

test('a model that broke off names its task to its owner alone', () => {
  const taskId = '0f5c0000-0000-4000-8000-000000000000' as TaskId;
  const told = failureOf({ kind: 'broken' }, true, taskId);
  expect(told).toMatchObject({ status: 502, code: 'backend_error', headers: { 'x-task-id': taskId } });
  expect(told.message).toContain(`longshore logs --task ${taskId}`);
  expect(failureOf({ kind: 'broken' }, false, taskId)).toMatchObject({
    message: 'the model broke off before it answered',
    headers: {},
  });
});

test.for([
  ['GET', '/v1/models?q=a', { kind: 'list' }],
  ['GET', '/v1/models/a%2Fb', { kind: 'model', id: 'a/b' }],
  ['GET', '/v1/models/a/b/', { kind: 'model', id: 'a/b' }],
  ['POST', '/v1/models/a/b/invoke', { kind: 'invoke', id: 'a/b' }],
  ['GET', '/v1/models/a/invoke', { kind: 'wrong_method', allowed: 'POST' }],
  ['POST', '/v1/models', { kind: 'wrong_method', allowed: 'GET' }],
  ['POST', '/v1/chat/completions/', { kind: 'chat' }],
  ['GET', '/v1/embeddings', { kind: 'wrong_method', allowed: 'POST' }],
  ['GET', '/v1/models/%E0%A4%A', { kind: 'unknown' }],
  ['GET', '/v1', { kind: 'unknown' }],
] as const)('%s %s', ([method, path, matched]) => {
  expect(matchPath(method, path)).toEqual(matched);
});

test.for([
  [0, 1_000_000, '0'],
  [150_000, 1_000_000, '0.00000015'],
  [1, 1_000_000, '0.000000000001'],
  [2_500_000_000_000, 1_000_000, '2.5'],
  [1_500_000, 1, '1.5'],
] as const)('%d for %d is %s', ([micros, of, text]) => {
  expect(decimalPrice(micros, of)).toBe(text);
});

describe('events of a backend', () => {
  test('come whole wherever their bytes are split', () => {
    const bytes = Buffer.from(
      'data: {"a":"é"}\r\n\r\n: ping\n\ndata: 1\ndata: 2\n\nevent: x\ndata:3\r\revent:error\ndata: 4\n\ndata: rest',
    );
    for (let size = 1; size <= bytes.length; size++) {
      const reader = new SseReader();
      const events: (SseEvent | undefined)[] = [];
      for (let at = 0; at < bytes.length; at += size) events.push(...reader.push(bytes.subarray(at, at + size)));
      events.push(reader.end());
      expect([size, events.map((event) => event?.data)]).toEqual([size, ['{"a":"é"}', '1\n2', '3', '4', 'rest']]);
      expect(events.map((event) => event?.isError)).toEqual([false, false, false, true, false]);
    }
  });

  test('are bounded, also without an end', () => {
    const reader = new SseReader(100);
    expect(() => {
      for (let at = 0; at < 20; at++) reader.push(Buffer.from('data: 12345678'));
    }).toThrow(TooLargeEvent);
  });
});

test('backends are drawn by weight within their level, the lowest level first', () => {
  const backend = (deployment: string, weight: number, level: number) =>
    ({ kind: 'deployment', deployment, weight, level }) as const;
  const backends = [backend('late', 1, 1), backend('rare', 1, 0), backend('often', 3, 0)];
  const firsts = { late: 0, rare: 0, often: 0 };
  for (let at = 0; at < 1000; at++) {
    const order = backendOrder(backends, () => (at + 0.5) / 1000).map(({ deployment }) => deployment ?? '');
    expect(order.length).toBe(3);
    expect(order[2]).toBe('late');
    firsts[order[0] as keyof typeof firsts] += 1;
  }
  expect(firsts).toEqual({ late: 0, rare: 250, often: 750 });
});

test('frames tell the usage as reported, else as estimated from what passed', () => {
  const frames = new StreamFrames({ model: 'm', includeUsage: false, promptTokens: 4 });
  const chunk = (content: string, finish: string | null = null): string =>
    JSON.stringify({ model: 'x', choices: [{ index: 0, delta: { content }, finish_reason: finish }] });
  frames.take(chunk('12345678'));
  frames.take(chunk('1'));
  expect(frames.isComplete).toBe(false);
  expect(frames.usage).toMatchObject({ promptTokens: 4, completionTokens: 3, estimated: true });
  frames.take(chunk('', 'stop'));
  expect(frames.isComplete).toBe(true);
  frames.take(JSON.stringify({ choices: [], usage: { prompt_tokens: 9, completion_tokens: 8 } }));
  expect(frames.usage).toMatchObject({ promptTokens: 9, completionTokens: 8, estimated: false });
});

test.for([
  [{ type: 'object', required: ['a/b'] }, {}, '/a~1b'],
  [{ properties: { a: { type: 'integer' } } }, { a: 1.5 }, '/a'],
  [{ properties: { a: { items: { type: 'string', maxLength: 2 } } } }, { a: ['x', 'xyz'] }, '/a/1'],
  [{ properties: {}, additionalProperties: false }, { b: 1 }, '/b'],
  [{ properties: { a: { minimum: 3 } } }, { a: 2 }, '/a'],
  [{ properties: { a: { type: ['null', 'string'] } } }, { a: null }, undefined],
  [{ properties: { a: { pattern: '(x+x+)+y' } } }, { a: 'x'.repeat(60) }, undefined],
] as const)('%o with %o names %s', ([schema, value, pointer]) => {
  expect(schemaProblem(schema, value)?.pointer).toBe(pointer);
});

test.for([
  [undefined, false],
  ['respond-async', true],
  ['Respond-Async; wait=3', true],
  ['handling=lenient, wait=10 , respond-async', true],
  [['return=minimal', 'respond-async'], true],
  ['respond-asynchronously', false],
  ['x-respond-async', false],
  ['note="a, respond-async"', false],
  ['note="a \\" b", respond-async', true],
] as const)('Prefer: %o prefers to be answered later: %o', ([header, isLater]) => {
  expect(prefersLater(header)).toBe(isLater);
});

test.for([
  ['a model without room', unavailable('no'), { kind: 'later', reason: 'model_unavailable' }],
  [
    'a model of which no container was free',
    failureOf({ kind: 'finished', finished: { status: 'TIMEOUT', reason: 'wait_limit', body: '' } }, true),
    { kind: 'later', reason: 'timeout' },
  ],
  ['a model that took too long', timedOut('late'), { kind: 'failed', status: 'TIMEOUT', reason: 'timeout' }],
  ['a model that broke off', backendFailed('gone'), { kind: 'failed', status: 'ERROR', reason: 'backend_error' }],
] as const)('a try at %s', ([, error, outcome]) => {
  expect(outcomeOf(error, 'req_1')).toMatchObject(outcome);
});
