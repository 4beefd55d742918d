// The growth that the soak allows, and the answers and final states that it accepts.
import { describe, expect, test } from 'vitest';
import { growthRows } from '../../../bench/soak/growth.ts';
import type { Sample } from '../../../bench/soak/growth.ts';
import { Ledger } from '../../../bench/soak/ledger.ts';
import { parseSoakOptions } from '../../../bench/soak/options.ts';

const MIB = 1024 ** 2;

function aSample(fields: Partial<Sample> = {}): Sample {
  return {
    atMs: 0,
    memory: { scheduler: 600 * MIB, redis: 10 * MIB },
    descriptors: { scheduler: 100 },
    databaseFiles: 50,
    keys: { 'ls:leader': 1, 'ls:tq meta': 10, 'ls:lease': 100 },
    tasksWithoutEnd: 0,
    redisUsedBytes: MIB,
    containers: 0,
    holders: 8,
    volumes: 1,
    diskBytes: MIB,
    ...fields,
  };
}

const beyond = (after: Partial<Sample>): readonly string[] =>
  growthRows(aSample(), aSample(after))
    .filter((row) => row.isWithin === false)
    .map((row) => row.what);

describe('growth over a soak', () => {
  test('is within bounds where nothing grew, or little enough', () => {
    expect(beyond({})).toEqual([]);
    expect(beyond({ memory: { scheduler: 690 * MIB, redis: 50 * MIB }, descriptors: { scheduler: 110 } })).toEqual([]);
    expect(beyond({ keys: { 'ls:leader': 1, 'ls:tq meta': 15, 'ls:lease': 90_000, 'ls:last': 900 } })).toEqual([]);
  });

  test('is beyond its bound for each thing by itself', () => {
    expect(beyond({ memory: { scheduler: 691 * MIB, redis: 10 * MIB } })).toEqual(['scheduler: memory']);
    expect(beyond({ memory: { scheduler: 600 * MIB, redis: 51 * MIB } })).toEqual(['redis: memory']);
    expect(beyond({ descriptors: { scheduler: 111 } })).toEqual(['scheduler: descriptors']);
    expect(beyond({ keys: { 'ls:leader': 1, 'ls:tq meta': 16, 'ls:lease': 1 } })).toEqual(['redis: keys']);
    expect(beyond({ tasksWithoutEnd: 1 })).toEqual(['  without an end']);
    expect(beyond({ containers: 1 })).toEqual(['containers']);
    expect(beyond({ holders: 9 })).toEqual(['holders']);
    expect(beyond({ volumes: 2 })).toEqual(['volumes']);
  });
});

describe('the books of a soak', () => {
  const meant = [{ status: 200, text: '{"n":1}', states: ['COMPLETE'] }];

  test('write out an answer that was not meant', () => {
    const ledger = new Ledger();
    ledger.judge('warm call', { status: 200, text: '{"n":2}', taskId: 'a', asked: 'POST /x {"n":1}' }, meant);
    expect(ledger.failures).toEqual([expect.stringContaining('POST /x {"n":1} was answered 200 {"n":2}')]);
  });

  test('take one final state of a task, and no other after it', () => {
    const ledger = new Ledger();
    ledger.judge('warm call', { status: 200, text: '{"n":1}', taskId: 'a', asked: '' }, meant);
    expect([...ledger.open.keys()]).toEqual(['a']);
    ledger.saw('a', 'COMPLETE', 0);
    ledger.saw('a', 'COMPLETE', 0);
    expect([ledger.open.size, ledger.failed]).toEqual([0, 0]);
    ledger.saw('a', 'ERROR', 0);
    expect(ledger.failures).toEqual([expect.stringContaining('was COMPLETE and became ERROR')]);
  });

  test('tell an answer that was overtaken from a task that goes on after its end', () => {
    const ledger = new Ledger();
    ledger.accepted('put', 'a', ['COMPLETE']);
    const askedMs = performance.now();
    ledger.saw('a', 'RUNNING', askedMs);
    ledger.saw('a', 'COMPLETE', askedMs);
    ledger.saw('a', 'RUNNING', askedMs);
    expect(ledger.failures).toEqual([]);
    ledger.saw('a', 'RUNNING', performance.now() + 1);
    expect(ledger.failures).toEqual([expect.stringContaining('was COMPLETE and became RUNNING')]);
  });

  test('allow a late COMPLETE where that was meant, and nothing after it', () => {
    const ledger = new Ledger();
    ledger.accepted('call', 'a', ['CANCELLED', 'COMPLETE']);
    ledger.accepted('call', 'b', ['CANCELLED']);
    for (const id of ['a', 'b']) ledger.saw(id, 'CANCELLED', performance.now());
    const askedMs = performance.now();
    ledger.saw('a', 'COMPLETE', performance.now() + 1);
    ledger.saw('a', 'CANCELLED', askedMs);
    expect([ledger.settled.get('a'), ledger.failures]).toEqual(['COMPLETE', []]);
    ledger.saw('a', 'CANCELLED', performance.now() + 1);
    ledger.saw('b', 'COMPLETE', performance.now() + 1);
    expect(ledger.failures).toEqual([
      expect.stringContaining('was COMPLETE and became CANCELLED'),
      expect.stringContaining('was CANCELLED and became COMPLETE'),
    ]);
  });

  test('complain of a final state that was not meant', () => {
    const ledger = new Ledger();
    ledger.accepted('put', 'a', ['COMPLETE', 'CANCELLED']);
    ledger.saw('a', 'TIMEOUT', 0);
    expect(ledger.failures).toEqual([expect.stringContaining('ended TIMEOUT, not COMPLETE or CANCELLED')]);
  });
});

test('minutes are a number above zero', () => {
  expect(parseSoakOptions(['--minutes', '0.5'])).toMatchObject({ minutes: 0.5, warmUpMinutes: 1 });
  for (const bad of ['0', '-1', 'ten', '']) expect(() => parseSoakOptions([`--minutes=${bad}`])).toThrow('--minutes');
});
