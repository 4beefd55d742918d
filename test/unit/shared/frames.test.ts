import fc from 'fast-check';
import { expect, test } from 'vitest';
import { FRAME_KINDS, FrameReader, encodeFrame, encodeHead } from '../../../shared/protocol/frames.ts';
import type { FrameKind } from '../../../shared/protocol/frames.ts';

const frames = [
  encodeFrame('hello', { version: 1, containerId: 'c', holding: [{ taskId: 't', token: 'x' }] }),
  encodeFrame('run', { taskId: 't', token: 'x', last: true }, Buffer.from('{"ä":1}')),
  encodeFrame('log', {}, Buffer.from('line')),
  encodeFrame('acked', {}),
];
const whole = Buffer.concat(frames);

test('frames come out the same wherever the stream is cut', () => {
  const expected = new FrameReader().push(whole).map((frame) => [frame.kind, frame.header, frame.body.toString()]);
  expect(expected.map(([kind]) => kind)).toEqual(['hello', 'run', 'log', 'acked']);
  for (let first = 0; first <= whole.length; first += 1) {
    for (const second of [first, Math.min(first + 1, whole.length), Math.min(first + 5, whole.length)]) {
      const reader = new FrameReader();
      const found = [whole.subarray(0, first), whole.subarray(first, second), whole.subarray(second)].flatMap((part) =>
        reader.push(part),
      );
      expect(found.map((frame) => [frame.kind, frame.header, frame.body.toString()])).toEqual(expected);
    }
  }
});

test('a stream fed byte by byte gives the same frames', () => {
  const reader = new FrameReader();
  const found = [...whole].flatMap((byte) => reader.push(Buffer.from([byte])));
  expect(found.map((frame) => frame.kind)).toEqual(['hello', 'run', 'log', 'acked']);
});

test('a header without fields has no bytes: the runner hands on parts of such data frames only', () => {
  expect(encodeHead('data', {}, 5).toString('hex')).toBe('00000008' + '13' + '0000');
  expect(new FrameReader().push(encodeFrame('data', {}, Buffer.from('12345')))).toMatchObject([
    { kind: 'data', header: {}, body: Buffer.from('12345') },
  ]);
});

test('a data frame can be handed on in parts, wherever the stream is cut', () => {
  const body = Buffer.from('0123456789'.repeat(20));
  const bytes = Buffer.concat([
    encodeFrame('response', {}, Buffer.from('{}')),
    encodeFrame('data', {}, body),
    encodeFrame('message', { text: true }, body),
    encodeFrame('data', {}, Buffer.from('more')),
    encodeFrame('end', {}),
  ]);
  fc.assert(
    fc.property(fc.array(fc.nat({ max: bytes.length })), (cuts) => {
      const reader = new FrameReader({ splitsData: true });
      const found: [string | undefined, string][] = [];
      let data = '';
      const edges = [0, ...cuts.toSorted((a, b) => a - b), bytes.length];
      for (const [number, edge] of edges.slice(1).entries()) {
        for (const frame of reader.push(bytes.subarray(edges[number], edge))) {
          if (frame.kind === 'data') data += frame.body.toString();
          else found.push([frame.kind, frame.body.toString()]);
        }
      }
      expect(data).toBe(`${body.toString()}more`);
      expect(found).toEqual([
        ['response', '{}'],
        ['message', body.toString()],
        ['end', ''],
      ]);
    }),
  );
});

test('any header and body survive the way there', () => {
  fc.assert(
    fc.property(
      fc.constantFrom(...(Object.keys(FRAME_KINDS) as FrameKind[])),
      fc.dictionary(fc.string(), fc.oneof(fc.string(), fc.integer(), fc.boolean(), fc.constant(null)), { maxKeys: 5 }),
      fc.uint8Array({ maxLength: 300 }),
      (kind, header, body) => {
        const [frame] = new FrameReader().push(encodeFrame(kind, header, body));
        expect(frame?.kind).toBe(kind);
        expect(JSON.stringify(frame?.header)).toBe(JSON.stringify(JSON.parse(JSON.stringify(header))));
        expect(frame?.body.equals(body)).toBe(true);
      },
    ),
  );
});

test('a kind that is not known is passed on as unknown', () => {
  const frame = encodeFrame('hello', { a: 1 });
  frame[4] = 200;
  expect(new FrameReader().push(frame)[0]?.kind).toBeUndefined();
});

test('a frame that cannot be read is refused', () => {
  const tooLong = Buffer.alloc(8);
  tooLong.writeUInt32BE(2 ** 20 + 1);
  const tooShort = Buffer.from([0, 0, 0, 2, 1, 0, 0]);
  const headerTooLong = Buffer.from([0, 0, 0, 3, 1, 0, 9]);
  const notJson = Buffer.concat([Buffer.from([0, 0, 0, 4, 1, 0, 1]), Buffer.from('{')]);
  const notObject = Buffer.concat([Buffer.from([0, 0, 0, 5, 1, 0, 2]), Buffer.from('[]')]);
  for (const bad of [tooLong, tooShort, headerTooLong, notJson, notObject])
    expect(() => new FrameReader().push(bad)).toThrow();
});

test('a frame above 1 MiB is never made', () => {
  expect(() => encodeFrame('result', {}, Buffer.alloc(2 ** 20))).toThrow(/too long/);
});

test('each line has the header of its own frame', () => {
  const headers = [{ taskId: 'a' }, { taskId: 'a' }, { taskId: 'b' }, {}, { taskId: 'b' }, { taskId: 'ab' }];
  const bytes = Buffer.concat(headers.map((header, at) => encodeFrame('log', header, Buffer.from(`${at}`))));
  for (const step of [7, bytes.length]) {
    const reader = new FrameReader();
    const found = [];
    for (let at = 0; at < bytes.length; at += step) found.push(...reader.push(bytes.subarray(at, at + step)));
    expect(found.map(({ header }) => header)).toEqual(headers);
    expect(found.map(({ body }) => body.toString())).toEqual(['0', '1', '2', '3', '4', '5']);
  }
});
