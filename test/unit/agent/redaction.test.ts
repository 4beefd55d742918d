import { expect, test } from 'vitest';
import { LogDemultiplexer } from '../../../agent/containers/lines.ts';
import { redactor } from '../../../agent/containers/redaction.ts';

test('values are hidden wherever they stand, the longest first', () => {
  const hide = redactor(['secret-1', 'secret-12', '']);
  expect(hide?.('a secret-12 and secret-1secret-1')).toBe('a [redacted] and [redacted][redacted]');
});

test('values too short to be secrets hide nothing', () => {
  expect(redactor(['1', 'true', ''])).toBeUndefined();
});

test('each line of a value of several lines is hidden', () => {
  expect(redactor(['-----BEGIN\nabcdefgh\n-----END KEY'])?.('x abcdefgh y')).toBe('x [redacted] y');
});

test('a value of very many lines costs no more than so much at every line', () => {
  const lines = Array.from({ length: 5000 }, (_, at) => `part-${10_000 + at}`);
  const hide = redactor([lines.join('\n'), 'the longest of them all']);
  const shown = lines.map((line) => hide?.(line)).filter((line) => line !== '[redacted]');
  expect(shown.length).toBeGreaterThan(3000);
  expect(hide?.('x the longest of them all y')).toBe('x [redacted] y');
});

const frame = (time: string, text: string, stream = 1): Buffer => {
  const payload = Buffer.from(time === '' ? text : `${time} ${text}`);
  const head = Buffer.alloc(8);
  head[0] = stream;
  head.writeUInt32BE(payload.length, 4);
  return Buffer.concat([head, payload]);
};
const at = (nanos: number): string => `2026-01-02T03:04:05.${String(nanos).padStart(9, '0')}Z`;

test('lines of the engine come without their times, and only those after the position', () => {
  const got: string[] = [];
  const log = new LogDemultiplexer((stream, line, position) => got.push(`${stream} ${line} ${position}`), at(2));
  log.push(Buffer.concat([frame(at(1), 'old\n'), frame(at(2), 'last one told\n'), frame(at(3), 'new\n', 2)]));
  // A long line in two messages.
  log.push(Buffer.concat([frame(at(4), 'first half, '), frame(at(5), 'second half\n')]));
  log.end();
  expect(got).toEqual([`stderr new ${at(3)}`, `stdout first half, second half ${at(5)}`]);
});
