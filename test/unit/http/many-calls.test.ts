import { describe, expect, test } from 'vitest';
import { MOST_CALLS, inputsOf, isManyCalls, submitMany } from '#scheduler/api/http/invoke/many-calls.ts';
import type { Submission } from '#scheduler/tasks/admission/calls.ts';
import type { TaskId } from '#shared/domain/ids.ts';

const accepted = (id: string): Submission => ({
  kind: 'accepted',
  taskId: id as TaskId,
  finished: new Promise(() => undefined),
  callerLeft: () => undefined,
  isAsync: true,
});
const FULL: Submission = { kind: 'queue_full', maxPendingTasks: 3 };

test.each([
  ['application/x-ndjson', true],
  ['Application/X-NDJSON; charset=utf-8', true],
  ['application/json', false],
  ['application/x-ndjsonx', false],
  [undefined, false],
])('a body of type %j has many calls: %j', (type, expected) => {
  expect(isManyCalls(type)).toBe(expected);
});

describe('the lines of a body', () => {
  const texts = async (body: string): Promise<unknown> => {
    const inputs = await inputsOf(Buffer.from(body));
    return typeof inputs === 'string' ? inputs : inputs.map(({ text }) => text);
  };

  test('are passed on as they came', async () => {
    expect(await texts('{"a": 1}\n{ "b":2 }\r\n\n{}\n')).toEqual(['{"a": 1}', '{ "b":2 }\r', '{}']);
    expect(await texts('{"a": "line\\nend"}')).toEqual(['{"a": "line\\nend"}']);
  });

  test('are objects, each of them, and no more than a request may have', async () => {
    expect(await texts('')).toMatch(/no calls/);
    expect(await texts('\n \n')).toMatch(/no calls/);
    expect(await texts('{}\n[1]')).toBe(
      'line 2 is not a JSON object: the body is an array, and has to be a JSON object',
    );
    expect(await texts('{}\n{')).toBe(
      'line 2 is not a JSON object: the body ends at byte 1, where a name in double quotes, or } has to come',
    );
    expect(await texts('{}\n{"callback_url": "https://a"}')).toMatch(/^line 2 has a callback_url/);
    expect(await texts('{}\n'.repeat(MOST_CALLS))).toHaveLength(MOST_CALLS);
    expect(await texts('{}\n'.repeat(MOST_CALLS + 5))).toMatch(/1000 are the most/);
    expect(await inputsOf(Buffer.from([0x7b, 0xff, 0x7d]))).toBe(
      'line 1 is not a JSON object: byte 1 begins no character of UTF-8',
    );
    expect(await inputsOf(undefined)).toMatch(/no calls/);
  });
});

describe('many calls', () => {
  test('get their ids in the order of the lines', async () => {
    const done = await submitMany(150, async (at) => accepted(`t-${at}`));
    expect(done).toEqual({ kind: 'taken', taskIds: Array.from({ length: 150 }, (_, at) => `t-${at}`) });
  });

  test('are not tried behind a group in which one was refused', async () => {
    const tried: number[] = [];
    const done = await submitMany(200, async (at) => {
      tried.push(at);
      return at === 70 ? FULL : accepted(`t-${at}`);
    });
    expect(tried).toHaveLength(128);
    expect(done).toMatchObject({ kind: 'taken', refused: FULL });
    const ids = done.kind === 'taken' ? done.taskIds : [];
    expect([ids[69], ids[70], ids[71], ids[128], ids.length]).toEqual(['t-69', null, 't-71', null, 200]);
  });

  test('are refused as one where none was taken', async () => {
    expect(await submitMany(3, async () => FULL)).toEqual({ kind: 'refused', refused: FULL });
  });
});
