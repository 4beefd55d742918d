import { describe, expect, test } from 'vitest';
import { PAUSES_MS, afterEventTry, errorOf, retryAfterMs } from '#scheduler/tasks/event-webhooks/decide.ts';
import type { Outcome } from '#scheduler/tasks/webhooks/decide.ts';

const NOW = Date.parse('2030-01-01T00:00:00Z');
const answered = (status: number, retryAfter?: string): Outcome => ({
  kind: 'answered',
  status,
  ...(retryAfter === undefined ? {} : { retryAfter }),
});
const FAILURES: readonly Outcome[] = [
  answered(302),
  answered(400),
  answered(429),
  answered(503),
  { kind: 'connection_failed' },
  { kind: 'timed_out' },
  { kind: 'blocked' },
];

describe('after a try of an event', () => {
  test('2xx is a delivery, 410 the end of the webhook, with and without `retry`', () => {
    for (const retry of [true, false]) {
      for (const status of [200, 204, 299])
        expect(afterEventTry(answered(status), 1, retry, NOW)).toEqual({ kind: 'delivered' });
      expect(afterEventTry(answered(410), 1, retry, NOW)).toEqual({ kind: 'gone' });
      expect(afterEventTry({ kind: 'no_place' }, 1, retry, NOW)).toMatchObject({ kind: 'postpone' });
    }
  });

  test('a failure is final without `retry`; with it, seven tries are made, with growing pauses', () => {
    for (const failure of FAILURES) {
      expect(afterEventTry(failure, 1, false, NOW)).toEqual({ kind: 'failed' });
      for (const [before, afterMs] of PAUSES_MS.entries())
        expect(afterEventTry(failure, before + 1, true, NOW)).toEqual({ kind: 'again', afterMs });
      expect(afterEventTry(failure, 7, true, NOW)).toEqual({ kind: 'failed' });
    }
    expect(PAUSES_MS.map((ms) => ms / 1000)).toEqual([5, 300, 1800, 7200, 18_000, 36_000]);
  });

  test('a receiver may ask for a longer pause, up to a day, and for no shorter one', () => {
    const after = (text: string) => afterEventTry(answered(503, text), 1, true, NOW);
    expect(after('120')).toEqual({ kind: 'again', afterMs: 120_000 });
    expect(after('1')).toEqual({ kind: 'again', afterMs: 5_000 });
    expect(after('9999999')).toEqual({ kind: 'again', afterMs: 86_400_000 });
    expect(after('Tue, 01 Jan 2030 00:10:00 GMT')).toEqual({ kind: 'again', afterMs: 600_000 });
  });

  test.for([
    [undefined, 0],
    ['', 0],
    ['soon', 0],
    ['-5', 0],
    ['Mon, 31 Dec 2029 00:00:00 GMT', 0],
    ['30', 30_000],
  ] as const)('Retry-After %j asks for %d ms', ([text, ms]) => {
    expect(retryAfterMs(text, NOW)).toBe(ms);
  });

  test('an outcome has a text, and a delivery has none', () => {
    expect(errorOf(answered(204))).toBe('');
    for (const failure of FAILURES) expect(errorOf(failure)).not.toBe('');
    expect(errorOf({ kind: 'connection_failed', why: 'ECONNRESET' })).toBe('the connection failed (ECONNRESET)');
  });
});
