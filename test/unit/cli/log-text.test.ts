import { expect, test } from 'vitest';
import { LogText } from '#cli/commands/log-text.ts';

const NOW_MS = Date.parse('2030-01-31T12:00:00Z');
const at = (timestamp: string, message = 'said') => ({ timestamp, container_id: 'endpoint-1-c69a6597', message });

test('lines of today have their time of day alone', () => {
  const text = new LogText(NOW_MS);
  const lines = [at('2030-01-31T00:00:00.000Z'), at('2030-01-31T11:59:59.123456Z')];
  text.expect(lines);
  expect(lines.map((line) => text.of(line))).toEqual(['00:00:00.000 c69a6597 said', '11:59:59.123 c69a6597 said']);
});

test('lines that are shown together all have their date when one of them is of another day', () => {
  const text = new LogText(NOW_MS);
  const lines = [at('2030-01-31T09:00:00.000Z'), at('2030-01-24T09:00:00.000Z', 'late')];
  text.expect(lines);
  expect(lines.map((line) => text.of(line))).toEqual([
    '2030-01-31 09:00:00.000 c69a6597 said',
    '2030-01-24 09:00:00.000 c69a6597 late',
  ]);
});

test('lines of several deployments have the name of theirs', () => {
  const text = new LogText(NOW_MS, (id) => (id === 'd1' ? 'shop' : '-'));
  expect(text.of({ ...at('2030-01-31T09:00:00.000Z'), deployment_id: 'd1' })).toBe('09:00:00.000 c69a6597 shop said');
  expect(text.of(at('2030-01-31T09:00:00.000Z'))).toBe('09:00:00.000 c69a6597 - said');
});

test('a log that is followed over midnight has dates from then on', () => {
  const text = new LogText(NOW_MS);
  text.expect([]);
  expect(text.of(at('2030-01-31T23:59:59.999Z'))).toBe('23:59:59.999 c69a6597 said');
  expect(text.of(at('2030-02-01T00:00:00.000Z'))).toBe('2030-02-01 00:00:00.000 c69a6597 said');
  expect(text.of(at('2030-01-31T23:59:59.999Z'))).toBe('2030-01-31 23:59:59.999 c69a6597 said');
});
