// Flow control as settings and calls give it.
import { describe, expect, test } from 'vitest';
import type { QueueName, WorkspaceId } from '#shared/domain/ids.ts';
import {
  controlsOf,
  flowOf,
  keyOfControl,
  keysOfQueue,
  kindOfControl,
  priorityProblem,
} from '#scheduler/domain/flow.ts';
import { paceText, readFlow, readPace } from '#scheduler/domain/flow-settings.ts';
import { flowHeadersOf } from '#scheduler/api/http/invoke/flow-headers.ts';

const WORKSPACE = 'w-1' as WorkspaceId;
const QUEUE = 'tq-1' as QueueName;

describe('settings', () => {
  test('are read with their key', () => {
    expect(readFlow(undefined)).toBeUndefined();
    expect(readFlow({ concurrency: 5 })).toEqual({ concurrency: 5 });
    expect(readFlow({ concurrency: 5, key: 'customer', position: 0 })).toEqual({
      concurrency: 5,
      key: 'customer',
      position: 0,
    });
  });

  test.for([
    [5, 'extra.flow must be an object'],
    [{}, 'extra.flow must have one of concurrency'],
    [{ limits: {} }, 'extra.flow must have one of concurrency'],
    [{ limits: { a: 0 } }, 'extra.flow.limits.a must be'],
    [{ limits: { '': 1 } }, 'extra.flow.limits: a name'],
    [{ limits: [1] }, 'extra.flow.limits'],
    [{ limits: { a: 1 }, key: 'k' }, 'extra.flow.key needs one of'],
    [{ limits: Object.fromEntries('abcdefghi'.split('').map((name) => [name, 1])) }, 'at most 8 names'],
    [{ concurrency: 0 }, 'extra.flow.concurrency must be'],
    [{ concurrency: 1.5 }, 'extra.flow.concurrency must be'],
    [{ concurrency: '5' }, 'extra.flow.concurrency must be'],
    [{ concurrency: 5, key: '' }, 'extra.flow.key must have 1 to 128 characters'],
    [{ concurrency: 5, key: 7 }, 'extra.flow.key must have'],
    [{ concurrency: 5, key: 'k', position: -1 }, 'extra.flow.position must be'],
    [{ concurrency: 5, rote: 1 }, 'extra.flow.rote is not known'],
    [{ throttle: 100 }, 'extra.flow.throttle must be a number and a time'],
    [{ throttle: '0/m' }, 'extra.flow.throttle must be'],
    [{ throttle: '1001/s' }, 'extra.flow.throttle must be'],
    [{ throttle: '1/2d' }, 'extra.flow.throttle must be'],
    [{ rate: '100/w' }, 'extra.flow.rate must be'],
    [{ rate: '1/s', onExcess: 'drop' }, 'extra.flow.onExcess must be refuse or skip'],
    [{ throttle: '1/s', onExcess: 'skip' }, 'extra.flow.onExcess needs extra.flow.rate'],
    [{ priority: 3601 }, 'extra.flow.priority must be whole seconds'],
    [{ priority: 0, key: 'k' }, 'extra.flow.key needs one of'],
    [{ debounce: 0 }, 'extra.flow.debounce must be a whole number from 1 to 86400'],
    [{ debounce: 10, debounceMax: 5 }, 'extra.flow.debounceMax needs'],
    [{ singleton: 'drop' }, 'extra.flow.singleton must be skip or replace'],
    [{ singleton: 'skip', debounce: 1 }, 'exclude each other'],
    [{ singleton: 'skip', cancelRunning: true }, 'extra.flow.cancelRunning needs'],
    [{ concurrency: 1, weights: { a: 2 } }, 'extra.flow.weights needs'],
    [{ fairKey: 'a', weights: { a: 101 } }, 'extra.flow.weights.a must be'],
    [{ fairKey: 'a', priority: 0 }, 'exclude each other'],
  ] as const)('%j are refused by the name of the field', ([asked, why]) => {
    expect(readFlow(asked)).toContain(why);
  });
});

describe('the key of a call', () => {
  const of = { concurrency: 5, key: 'customer', position: 1 };

  test('is a field of the input, of the inputs by name, or at its position', () => {
    for (const input of [
      '{"customer":"c-17"}',
      '{"args":[],"kwargs":{"customer":"c-17"}}',
      '{"args":["x","c-17"],"kwargs":{}}',
    ])
      expect(flowOf(of, {}, input)).toEqual({ key: 'c-17', most: 5 });
    expect(flowOf(of, {}, '{"customer":17}')).toEqual({ key: '17', most: 5 });
    expect(flowOf(of, { key: 'other' }, '{"customer":"c-17"}')).toEqual({ key: 'other', most: 5 });
    expect(flowOf({ concurrency: 2 }, {}, '')).toEqual({ key: '', most: 2 });
    expect(flowOf(undefined, {}, '{}')).toBeUndefined();
  });

  test.for([
    '{}',
    '',
    '{"customer":null}',
    '{"customer":{}}',
    '{"args":["x"],"kwargs":{}}',
    '{"customer":""}',
    '{"customer":"a\\u0000"}',
  ])('is missing in %s, which the refusal says', (input) => {
    expect(flowOf(of, {}, input)).toContain('"customer"');
  });

  test('of a deployment without flow control is refused, and so is one that is too long', () => {
    expect(flowOf(undefined, { key: 'k' }, '{}')).toContain('X-Longshore-Key');
    expect(flowOf(of, { key: 'x'.repeat(129) }, '{}')).toContain('X-Longshore-Key must have 1 to 128');
  });

  test('is read from a header, percent-encoded', () => {
    expect(flowHeadersOf({})).toEqual({});
    expect(flowHeadersOf({ 'x-longshore-key': 'c-17' })).toEqual({ key: 'c-17' });
    expect(flowHeadersOf({ 'x-longshore-key': 'M%C3%BCller' })).toEqual({ key: 'Müller' });
    for (const header of ['%', ['a', 'b']])
      expect(flowHeadersOf({ 'x-longshore-key': header })).toMatchObject({ code: 'invalid_flow_key' });
    // Keys are judged in one place.
    for (const key of ['', '\u0000', 'x'.repeat(129)]) expect(flowOf(of, { key }, '{}')).toContain('X-Longshore-Key');
  });
});

test('a control names its queue and its key, whatever the key is', () => {
  for (const key of ['', 'c:17', 'ü']) {
    const [control] = controlsOf(QUEUE, WORKSPACE, { key, most: 3 });
    const [name, most] = control ?? ['', 0];
    expect(name.startsWith(keysOfQueue(QUEUE))).toBe(true);
    expect([keyOfControl(name), kindOfControl(name), most]).toEqual([key, 'concurrency', 3]);
  }
});

test('limits come before the key, and name the workspace', () => {
  const flow = readFlow({ concurrency: 2, limits: { openai: 10 } });
  if (typeof flow !== 'object') throw new Error('refused');
  const found = flowOf(flow, {}, '{}');
  if (typeof found !== 'object') throw new Error('refused');
  expect(controlsOf(QUEUE, WORKSPACE, found)).toEqual([
    ['limit:w-1:openai', 10],
    ['key:tq-1:', 2],
  ]);
  expect([keyOfControl('limit:w-1:openai'), kindOfControl('limit:w-1:openai')]).toEqual(['openai', 'limit']);
});

describe('the priority of a call', () => {
  test('is read from a header, and is the head start of the task', () => {
    expect(flowHeadersOf({ 'x-longshore-priority': ' -600 ' })).toEqual({ priority: -600 });
    for (const header of ['', '1.5', 'high', '9999999', ['1', '2']])
      expect(flowHeadersOf({ 'x-longshore-priority': header })).toMatchObject({ code: 'invalid_flow_priority' });
    expect(flowOf({ priority: 30 }, {}, '')).toEqual({ key: '', headStart: 30 });
    expect(flowOf({ priority: 30 }, { priority: -5 }, '')).toEqual({ key: '', headStart: -5 });
  });

  test('is refused beyond an hour, and where the queue has none', () => {
    expect(priorityProblem({ priority: 0 }, 3600)).toBeUndefined();
    expect(priorityProblem({ priority: 0 }, -3601)).toContain('X-Longshore-Priority');
    expect(priorityProblem({ concurrency: 1 }, 1)).toContain('X-Longshore-Priority');
    expect(priorityProblem(undefined, 1)).toContain('X-Longshore-Priority');
    expect(priorityProblem(undefined, undefined)).toBeUndefined();
  });
});

test('paces are read and written', () => {
  for (const text of ['100/m', '5/10s', '1/d', '1000/s', '90/90s', '1/2h'])
    expect(paceText(readPace(text) ?? { count: 0, perMs: 1 })).toBe(text);
  expect(readPace('5/60s')).toEqual({ count: 5, perMs: 60_000 });
  expect(flowOf({ throttle: { count: 100, perMs: 60_000 } }, {}, '')).toEqual({ key: '', everyMs: 600 });
});

describe('turns and single tasks', () => {
  test('a field takes turns by its value, with the weight of that value', () => {
    const of = { fairKey: 'customer', fairPosition: 0, weights: { gold: 3 } };
    expect(flowOf(of, {}, '{"customer":"gold"}')).toEqual({ key: '', fair: { key: 'gold', weight: 3 } });
    expect(flowOf(of, {}, '{"args":["other"],"kwargs":{}}')).toEqual({ key: '', fair: { key: 'other', weight: 1 } });
    expect(flowOf(of, {}, '{"customer":"constructor"}')).toMatchObject({ fair: { weight: 1 } });
    expect(flowOf(of, {}, '{}')).toContain('"customer"');
  });

  test('a task that may not cancel the one that runs waits for it', () => {
    expect(flowOf({ singleton: 'replace' }, {}, '')).toEqual({ key: '', most: 1 });
    expect(flowOf({ singleton: 'replace', concurrency: 2 }, {}, '')).toEqual({ key: '', most: 2 });
    expect(flowOf({ singleton: 'replace', cancelsRunning: true }, {}, '')).toEqual({ key: '' });
    expect(flowOf({ singleton: 'skip' }, {}, '')).toEqual({ key: '' });
  });
});
