// Starts as people write them behind `--since`.
import { describe, expect, test } from 'vitest';
import { CliError } from '#cli/errors.ts';
import { sinceMsOf } from '#cli/since.ts';

const NOW = Date.parse('2026-11-27T12:00:00Z');

describe('a start', () => {
  test.for([
    ['90s', '2026-11-27T11:58:30.000Z'],
    ['10m', '2026-11-27T11:50:00.000Z'],
    ['1h30m', '2026-11-27T10:30:00.000Z'],
    ['7d', '2026-11-20T12:00:00.000Z'],
    ['2w', '2026-11-13T12:00:00.000Z'],
    ['2026-11-27T10:00:00Z', '2026-11-27T10:00:00.000Z'],
    ['2026-11-27T10:00:00.25+02:00', '2026-11-27T08:00:00.250Z'],
    ['2026-11-27T10:00', '2026-11-27T10:00:00.000Z'],
    ['2026-11-27', '2026-11-27T00:00:00.000Z'],
  ] as const)('of %s is %s', ([text, at]) => {
    expect(new Date(sinceMsOf(text, NOW)).toISOString()).toBe(at);
  });

  test.for(['', '5', '-1h', '1d2h', 'yesterday', '2026-13-01', '27.11.2026', '2026-11-27 10:00', '999999w'])(
    'of %j is none, and the option is named',
    (text) => {
      expect(() => sinceMsOf(text, NOW)).toThrow(CliError);
      expect(() => sinceMsOf(text, NOW)).toThrow(`--since ${text} is no time`);
    },
  );
});
