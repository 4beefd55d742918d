import { describe, expect, test } from 'vitest';
import { separateLines } from '#shared/domain/log-lines.ts';
import { LOG_LIMITS, LogBuffer } from '../../../agent/containers/log-buffer.ts';
import { LineCutter, LogDemultiplexer } from '../../../agent/containers/lines.ts';
import { memoryReader, mib } from '../../helpers/memory.ts';

const limits = { ...LOG_LIMITS, containerBytes: 2000, totalBytes: 3000, linesPerSecond: 1_000_000 };
const line = (text: string): { taskId: string; stream: string; line: string; atMs: number } => ({
  taskId: 't',
  stream: 'stdout',
  line: text,
  atMs: 5,
});
/** The lines of the next batch, one by one. */
const lines = (buffer: LogBuffer): (string | undefined)[] => {
  const records = buffer.take(9)?.records ?? [];
  return records.flatMap(({ line = '', timestampMs, afterMs }) =>
    separateLines({ line, atMs: Number(timestampMs), afterMs }).map((one) => one.line),
  );
};

test('lines go out in order and stay until they are acknowledged', () => {
  const buffer = new LogBuffer(limits, () => 0);
  buffer.add('a', line('one'));
  buffer.add('a', line('two'));
  const batch = buffer.take(9);
  expect(batch?.records).toMatchObject([{ line: 'one\ntwo', timestampMs: 5, afterMs: [0, 0] }]);
  expect(buffer.take(9)).toBeUndefined();
  expect(buffer.unacknowledged()).toHaveLength(1);
  buffer.acknowledge(Number(batch?.seq));
  expect(buffer.unacknowledged()).toHaveLength(0);
});

test('above its bound a container loses its oldest lines, and a marker says how many', () => {
  const buffer = new LogBuffer(limits, () => 0);
  for (let at = 0; at < 20; at += 1) buffer.add('a', line(`${at}`.padEnd(136, '.')));
  const got = lines(buffer);
  expect(got[0]).toBe('[longshore: 10 lines dropped]');
  expect(got).toHaveLength(11);
  expect(got.at(-1)).toMatch(/^19/);
});

test('above the bound in all it is the noisiest container that loses', () => {
  const buffer = new LogBuffer(limits, () => 0);
  for (let at = 0; at < 9; at += 1) buffer.add('noisy', line('x'.repeat(136)));
  for (let at = 0; at < 8; at += 1) buffer.add('quiet', line('y'.repeat(136)));
  const got = lines(buffer);
  expect(got.filter((text) => text?.startsWith('y'))).toHaveLength(8);
  expect(got[0]).toBe('[longshore: 2 lines dropped]');
});

test('a flood is cut to the rate, and told', () => {
  let nowMs = 0;
  const buffer = new LogBuffer({ ...LOG_LIMITS, linesPerSecond: 10 }, () => nowMs);
  for (let at = 0; at < 60; at += 1) buffer.add('a', line(`${at}`));
  const got = lines(buffer);
  expect(got).toHaveLength(51);
  expect(got.at(-1)).toBe('[longshore: 10 lines dropped]');
  buffer.add('a', line('late'));
  expect(lines(buffer)).toEqual(['[longshore: 1 lines dropped]']);
  nowMs = 1000;
  buffer.add('a', line('later'));
  expect(lines(buffer)).toEqual(['later']);
});

test('whoever sends is told of each line, also of a dropped one behind which nothing is printed', () => {
  const buffer = new LogBuffer({ ...LOG_LIMITS, linesPerSecond: 1 }, () => 0);
  const waits: boolean[] = [];
  buffer.onWaiting(() => waits.push(buffer.mayTake));
  for (let at = 0; at < 5; at += 1) buffer.add('a', line(`${at}`));
  expect(lines(buffer)).toEqual(['0', '1', '2', '3', '4']);
  expect(waits).toEqual(Array(5).fill(true));
  buffer.add('a', line('dropped'));
  expect(waits).toHaveLength(6);
  expect(waits.at(-1)).toBe(true);
  expect(lines(buffer)).toEqual(['[longshore: 1 lines dropped]']);
});

test('a line that was dropped on its way here is counted, and takes nothing of the rate', () => {
  const buffer = new LogBuffer({ ...LOG_LIMITS, linesPerSecond: 1 }, () => 0);
  for (let at = 0; at < 9; at += 1) buffer.add('a', { ...line(''), line: undefined });
  buffer.add('a', line('kept'));
  expect(lines(buffer)).toEqual(['kept', '[longshore: 9 lines dropped]']);
});

test('a marker stands where the dropped lines would have stood', () => {
  let nowMs = 0;
  const buffer = new LogBuffer({ ...LOG_LIMITS, containerBytes: 2000, linesPerSecond: 4, inFlight: 9 }, () => nowMs);
  for (let at = 0; at < 22; at += 1) buffer.add('a', line(`${at}`.padEnd(136, '.')));
  const got = lines(buffer).map((text) => text?.replaceAll('.', ''));
  // 20 lines are a burst, ten of them are kept.
  const kept = ['10', '11', '12', '13', '14', '15', '16', '17', '18', '19'];
  expect(got).toEqual(['[longshore: 10 lines dropped]', ...kept, '[longshore: 2 lines dropped]']);
  nowMs = 1000;
  buffer.add('a', line('later'));
  expect(lines(buffer)).toEqual(['later']);
});

test('batches are bounded in lines, in bytes and in number under way', () => {
  const buffer = new LogBuffer({ ...LOG_LIMITS, batchLines: 3, inFlight: 2 }, () => 0);
  for (let at = 0; at < 9; at += 1) buffer.add('a', line(`${at}`));
  expect(lines(buffer)).toEqual(['0', '1', '2']);
  expect(lines(buffer)).toEqual(['3', '4', '5']);
  expect(buffer.take(9)).toBeUndefined();
  buffer.acknowledge(1);
  expect(lines(buffer)).toEqual(['6', '7', '8']);
});

test('markers of many containers are bounded with the lines', () => {
  const buffer = new LogBuffer({ ...LOG_LIMITS, batchLines: 3 }, () => 0);
  for (let at = 0; at < 5; at += 1) buffer.add(`c${at}`, { ...line(''), line: undefined });
  const markers = Array(3).fill('[longshore: 1 lines dropped]');
  expect(lines(buffer)).toEqual(markers);
  expect(lines(buffer)).toEqual(markers.slice(0, 2));
  expect(buffer.take(9)).toBeUndefined();
});

test('the bytes that wait never go above the bound', () => {
  const buffer = new LogBuffer(limits, () => 0);
  for (let at = 0; at < 5000; at += 1) {
    buffer.add(`c${at % 7}`, line('z'.repeat(at % 300)));
    expect(buffer.bytes).toBeLessThanOrEqual(3000);
    if (at % 11 === 0) buffer.acknowledge(Number(buffer.take(9)?.seq ?? 0));
  }
});

test('a backlog that never empties keeps no line that was taken', () => {
  const buffer = new LogBuffer({ ...LOG_LIMITS, linesPerSecond: 1_000_000, batchLines: 200 }, () => 0);
  let written = 0;
  const write = (count: number): void => {
    for (let at = 0; at < count; at += 1) buffer.add('a', line(`${(written += 1)}`.padEnd(1024, '.')));
  };
  const read = memoryReader();
  write(3000);
  const before = read(0);
  for (let round = 0; round < 200; round += 1) {
    write(200);
    const batch = buffer.take(9);
    expect(batch?.records?.[0]?.line).toMatch(new RegExp(`^${round * 200 + 1}\\.`));
    buffer.acknowledge(Number(batch?.seq));
  }
  const grown = read(written).heapBytes - before.heapBytes;
  expect(buffer.bytes).toBe(3000 * (1024 + 64));
  // 40,000 lines of 1 KiB have passed.
  expect(grown, mib(grown)).toBeLessThan(8 * 2 ** 20);
});

test('lines are cut the same wherever the bytes are, with characters whole', () => {
  const text = Buffer.from('ä1\r\nzwei\n\nlast');
  for (let cut = 0; cut <= text.length; cut += 1) {
    const got: string[] = [];
    const cutter = new LineCutter((one) => got.push(one));
    cutter.push(text.subarray(0, cut));
    cutter.push(text.subarray(cut));
    cutter.end();
    expect(got).toEqual(['ä1', 'zwei', '', 'last']);
  }
});

test("the engine's log stream comes apart into its two streams", () => {
  const frame = (stream: number, text: string): Buffer => {
    const head = Buffer.alloc(8);
    head[0] = stream;
    head.writeUInt32BE(text.length, 4);
    return Buffer.concat([head, Buffer.from(text)]);
  };
  const all = Buffer.concat([frame(1, 'a\nb'), frame(2, 'err\n'), frame(1, 'c\n')]);
  for (let cut = 0; cut <= all.length; cut += 1) {
    const got: string[] = [];
    const demultiplexer = new LogDemultiplexer((stream, one) => got.push(`${stream} ${one}`));
    demultiplexer.push(all.subarray(0, cut));
    demultiplexer.push(all.subarray(cut));
    demultiplexer.end();
    expect(got).toEqual(['stdout a', 'stderr err', 'stdout bc']);
  }
});

describe('lines of a container whose secrets are not known yet', () => {
  test('stay here, others go; then they go as they may be read', () => {
    const told: [string, number][] = [];
    const buffer = new LogBuffer(limits, () => 0);
    buffer.onResult((result, count) => told.push([result, count]));
    buffer.holdBack('a');
    buffer.add('a', line('my password is opensesame'));
    buffer.add('b', line('free'));
    expect(buffer.shown('a', 'opensesame')).not.toContain('opensesame');
    expect(lines(buffer)).toEqual(['free']);
    expect(buffer.mayTake).toBe(false);
    expect(told).toEqual([['accepted', 1]]);
    buffer.hide('a', ['opensesame']);
    expect(told).toEqual([
      ['accepted', 1],
      ['accepted', 1],
    ]);
    buffer.add('a', line('opensesame again'));
    expect(lines(buffer)).toEqual(['my password is [redacted]', '[redacted] again']);
    expect(buffer.bytes).toBe(0);
  });

  test('stay within the bounds', () => {
    const buffer = new LogBuffer(limits, () => 0);
    buffer.holdBack('a');
    for (let at = 0; at < 20; at += 1) buffer.add('a', line(`${at}`.padEnd(136, '.')));
    expect(buffer.bytes).toBeLessThanOrEqual(2000);
    for (let at = 0; at < 7; at += 1) buffer.add('b', line('y'.repeat(136)));
    expect(buffer.bytes).toBeLessThanOrEqual(3000);
    buffer.hide('a', []);
    const got = lines(buffer);
    expect(got.filter((text) => text?.startsWith('y'))).toHaveLength(7);
    expect(got).toContain('[longshore: 12 lines dropped]');
  });

  test('are dropped with the marker and counted when it is gone first; what is said of it after that is told', () => {
    const told: [string, number][] = [];
    const buffer = new LogBuffer(limits, () => 0);
    buffer.onResult((result, count) => told.push([result, count]));
    buffer.holdBack('a');
    buffer.add('a', line('opensesame'));
    buffer.giveUp('a');
    buffer.add('a', line('longshore: it is gone'));
    buffer.forget('a');
    expect(told).toEqual([
      ['dropped', 1],
      ['accepted', 0],
      ['accepted', 1],
    ]);
    expect(lines(buffer)).toEqual(['[longshore: 1 lines dropped]', 'longshore: it is gone']);
    expect(buffer.bytes).toBe(0);
  });

  test('stay within the bounds when hiding makes them longer', () => {
    const buffer = new LogBuffer(limits, () => 0);
    buffer.holdBack('a');
    for (let at = 0; at < 10; at += 1) buffer.add('a', line('secret'.repeat(22)));
    buffer.hide('a', ['secret']);
    expect(buffer.bytes).toBeLessThanOrEqual(2000);
    expect(lines(buffer)[0]).toMatch(/^\[longshore: \d lines dropped\]$/);
  });

  test('that are none leave nothing behind', () => {
    const buffer = new LogBuffer(limits, () => 0);
    buffer.holdBack('a');
    buffer.hide('a', ['opensesame']);
    expect(buffer.waiting).toBe(false);
    buffer.add('a', line('opensesame'));
    expect(lines(buffer)).toEqual(['[redacted]']);
  });
});

test('many lines go at once, one batch at a time; few wait', () => {
  const buffer = new LogBuffer({ ...LOG_LIMITS, linesPerSecond: 1_000_000, soonLines: 3, batchLines: 10 }, () => 0);
  const print = (count: number): void => {
    for (let line = 0; line < count; line += 1)
      buffer.add('c', { taskId: '', stream: 'stdout', line: `${line}`, atMs: 0 });
  };
  print(2);
  expect(buffer.isEnough).toBe(false);
  print(1);
  expect(buffer.isEnough).toBe(true);
  expect(lines(buffer)).toHaveLength(3);
  print(5);
  // The scheduler has yet to write the first batch.
  expect(buffer.isEnough).toBe(false);
  buffer.acknowledge(1);
  expect(buffer.isEnough).toBe(true);
  expect(lines(buffer)).toHaveLength(5);
  buffer.acknowledge(2);
  expect(buffer.isEnough).toBe(false);
});

test('held-back lines are not enough until they may be shown', () => {
  const buffer = new LogBuffer({ ...LOG_LIMITS, linesPerSecond: 1_000_000, soonLines: 3 }, () => 0);
  buffer.holdBack('c');
  for (let line = 0; line < 3; line += 1) buffer.add('c', { taskId: '', stream: 'stdout', line: `${line}`, atMs: 0 });
  expect(buffer.isEnough).toBe(false);
  buffer.hide('c', []);
  expect(buffer.isEnough).toBe(true);
});

test('lines that follow each other are a record; another task or stream begins one', () => {
  const buffer = new LogBuffer(LOG_LIMITS, () => 0);
  buffer.add('a', { ...line('one'), position: '1' });
  buffer.add('a', { ...line('two'), atMs: 8, position: '2' });
  buffer.add('a', { ...line('three'), stream: 'stderr' });
  buffer.add('a', { ...line('four'), taskId: 'u' });
  buffer.add('a', { ...line('five\nsix'), taskId: 'u' });
  buffer.add('b', line('seven'));
  const batch = buffer.take(9);
  const record = { containerId: 'a', taskId: 't', stream: 'stdout', timestampMs: 5 };
  expect(batch?.records).toEqual([
    { ...record, line: 'one\ntwo', afterMs: [0, 3] },
    { ...record, stream: 'stderr', line: 'three' },
    { ...record, taskId: 'u', line: 'four' },
    { ...record, taskId: 'u', line: 'five\nsix' },
    { ...record, containerId: 'b', line: 'seven' },
  ]);
  const reached: string[][] = [];
  buffer.onReached((...at) => reached.push(at));
  buffer.acknowledge(1);
  expect(reached).toEqual([['a', '2']]);
});

test('a line of the agent itself is marked as such, and secrets are hidden in it', () => {
  const buffer = new LogBuffer(limits, () => 0);
  buffer.hide('a', ['hush-hush']);
  buffer.say('a', 'cannot pull as hush-hush');
  const [record] = buffer.take(9)?.records ?? [];
  expect(record).toMatchObject({ containerId: 'a', taskId: '', stream: 'stderr' });
  expect(record?.line).toMatch(/^longshore: cannot pull as /);
  expect(record?.line).not.toContain('hush-hush');
});
