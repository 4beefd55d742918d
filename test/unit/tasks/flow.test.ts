// Flow control as settings and calls give it.
import { describe, expect, test } from 'vitest';
import type { QueueName, WorkspaceId } from '#shared/domain/ids.ts';
import { controlsOf, flowOf, keyOfControl, keysOfQueue, kindOfControl, readFlow } from '#scheduler/domain/flow.ts';
import { flowKeyOf } from '#scheduler/api/http/invoke/flow-key.ts';

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
    [{}, 'extra.flow must have concurrency or limits'],
    [{ limits: {} }, 'extra.flow must have concurrency or limits'],
    [{ limits: { a: 0 } }, 'extra.flow.limits.a must be'],
    [{ limits: { '': 1 } }, 'extra.flow.limits: a name'],
    [{ limits: [1] }, 'extra.flow.limits'],
    [{ limits: { a: 1 }, key: 'k' }, 'extra.flow.key needs'],
    [{ limits: Object.fromEntries('abcdefghi'.split('').map((name) => [name, 1])) }, 'at most 8 names'],
    [{ concurrency: 0 }, 'extra.flow.concurrency must be'],
    [{ concurrency: 1.5 }, 'extra.flow.concurrency must be'],
    [{ concurrency: '5' }, 'extra.flow.concurrency must be'],
    [{ concurrency: 5, key: '' }, 'extra.flow.key must have 1 to 128 characters'],
    [{ concurrency: 5, key: 7 }, 'extra.flow.key must have'],
    [{ concurrency: 5, key: 'k', position: -1 }, 'extra.flow.position must be'],
    [{ concurrency: 5, rote: 1 }, 'extra.flow.rote is not known'],
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
      expect(flowOf(of, undefined, input)).toEqual({ key: 'c-17', most: 5 });
    expect(flowOf(of, undefined, '{"customer":17}')).toEqual({ key: '17', most: 5 });
    expect(flowOf(of, 'other', '{"customer":"c-17"}')).toEqual({ key: 'other', most: 5 });
    expect(flowOf({ concurrency: 2 }, undefined, '')).toEqual({ key: '', most: 2 });
    expect(flowOf(undefined, undefined, '{}')).toBeUndefined();
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
    expect(flowOf(of, undefined, input)).toContain('"customer"');
  });

  test('of a deployment without flow control is refused, and so is one that is too long', () => {
    expect(flowOf(undefined, 'k', '{}')).toContain('X-Longshore-Key');
    expect(flowOf(of, 'x'.repeat(129), '{}')).toContain('X-Longshore-Key must have 1 to 128');
  });

  test('is read from a header, percent-encoded', () => {
    expect(flowKeyOf({})).toBeUndefined();
    expect(flowKeyOf({ 'x-longshore-key': 'c-17' })).toBe('c-17');
    expect(flowKeyOf({ 'x-longshore-key': 'M%C3%BCller' })).toBe('Müller');
    for (const header of ['', '%', '%00', 'x'.repeat(129), ['a', 'b']])
      expect(flowKeyOf({ 'x-longshore-key': header })).toBeNull();
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
  const found = flowOf(flow, undefined, '{}');
  if (typeof found !== 'object') throw new Error('refused');
  expect(controlsOf(QUEUE, WORKSPACE, found)).toEqual([
    ['limit:w-1:openai', 10],
    ['key:tq-1:', 2],
  ]);
  expect([keyOfControl('limit:w-1:openai'), kindOfControl('limit:w-1:openai')]).toEqual(['openai', 'limit']);
});
