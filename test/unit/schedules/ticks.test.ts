import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { tickTaskId } from '#shared/domain/ids.ts';
import type { DeploymentId } from '#shared/domain/ids.ts';
import { decideTicks } from '#scheduler/tasks/schedules/decide.ts';
import { MOST_COUNTED, readWhen, Ticks } from '#scheduler/domain/ticks.ts';

const BERLIN = 'Europe/Berlin';
const at = (text: string): number => Date.parse(text);
const iso = (ms: number): string => new Date(ms).toISOString().replace('.000Z', 'Z');

/** All ticks of a stretch, found from its end backwards. */
const backwards = (when: string, from: string, to: string, timezone = BERLIN): string[] =>
  new Ticks({ when, timezone }).between(at(from), at(to), 5_000).ticks.map(iso);

/** The same ticks, one after the other, with nothing remembered in between. */
function forwards(when: string, from: string, to: string, timezone = BERLIN): string[] {
  const found: string[] = [];
  let ms: number | undefined = at(from);
  while ((ms = new Ticks({ when, timezone }).next(ms)) !== undefined && ms <= at(to)) found.push(iso(ms));
  return found;
}

const hours = (all: readonly string[]): string => all.map((text) => text.slice(11, 16)).join(' ');

describe('ticks of a schedule', () => {
  test.each([
    ['0 3 * * *', '2026-01-10T00:00:00Z', '2026-01-12T00:00:00Z', ['2026-01-10T02:00:00Z', '2026-01-11T02:00:00Z']],
    ['0 3 * * *', '2026-07-10T00:00:00Z', '2026-07-11T00:00:00Z', ['2026-07-10T01:00:00Z']],
    [
      '*/20 30 12 * * *',
      '2026-01-10T00:00:00Z',
      '2026-01-11T00:00:00Z',
      [0, 20, 40].map((s) => iso(at('2026-01-10T11:30:00Z') + s * 1000)),
    ],
    ['@daily', '2026-01-10T00:00:00Z', '2026-01-11T00:00:00Z', ['2026-01-10T23:00:00Z']],
    ['0 0 29 2 *', '2024-03-01T00:00:00Z', '2032-12-31T00:00:00Z', ['2028-02-28T23:00:00Z', '2032-02-28T23:00:00Z']],
    ['0 12 * * 1', '2026-01-01T00:00:00Z', '2026-01-13T00:00:00Z', ['2026-01-05T11:00:00Z', '2026-01-12T11:00:00Z']],
  ])('%s after %s', (when, from, to, expected) => {
    expect(backwards(when, from, to)).toEqual(expected);
    expect(forwards(when, from, to)).toEqual(expected);
  });

  test('come after the first moment, up to and with the last', () => {
    const every = new Ticks({ when: '* * * * * *', timezone: 'UTC' });
    expect(every.between(1_000, 3_000, 10).ticks).toEqual([2_000, 3_000]);
    expect(every.between(999, 2_999, 10).ticks).toEqual([1_000, 2_000]);
    expect(every.next(1_000)).toBe(2_000);
    expect(every.next(1_001)).toBe(2_000);
  });

  test('are the newest that are asked for; those before are counted, up to a bound', () => {
    const every = new Ticks({ when: '* * * * * *', timezone: 'UTC' });
    const { ticks, older } = every.between(0, 160_000, 100);
    expect([ticks[0], ticks.at(-1), ticks.length, older]).toEqual([61_000, 160_000, 100, 60]);
    expect(every.between(0, at('2026-01-01T00:00:00Z'), 100).older).toBe(MOST_COUNTED);
  });
});

describe('when clocks go forward (2026-03-29 in Berlin, 02:00 is 03:00)', () => {
  const night = ['2026-03-28T23:30:00Z', '2026-03-29T03:30:00Z'] as const;
  test.each([
    // 02:30 does not exist in this night: the tick comes as much later, at 03:30.
    ['30 2 * * *', '01:30'],
    ['*/20 2 * * *', '01:00 01:20 01:40'],
    // 02:15 comes at 03:15, where there is one already.
    ['15 1-3 * * *', '00:15 01:15'],
    ['0 3 * * *', '01:00'],
    // An hourly schedule runs in every hour that exists.
    ['30 * * * *', '00:30 01:30 02:30 03:30'],
    ['*/30 * * * *', '00:00 00:30 01:00 01:30 02:00 02:30 03:00 03:30'],
  ])('%s ticks at %s (UTC)', (when, expected) => {
    expect(hours(backwards(when, ...night))).toBe(expected);
    expect(hours(forwards(when, ...night))).toBe(expected);
  });
});

describe('when clocks go back (2026-10-25 in Berlin, 03:00 is 02:00 again)', () => {
  const night = ['2026-10-24T23:30:00Z', '2026-10-25T03:30:00Z'] as const;
  test.each([
    // 02:30 comes twice: the first one counts.
    ['30 2 * * *', '00:30'],
    ['*/20 2 * * *', '00:00 00:20 00:40'],
    ['15 1-3 * * *', '00:15 02:15'],
    ['0 3 * * *', '02:00'],
    ['30 * * * *', '00:30 01:30 02:30 03:30'],
    ['*/30 * * * *', '00:00 00:30 01:00 01:30 02:00 02:30 03:00 03:30'],
  ])('%s ticks at %s (UTC)', (when, expected) => {
    expect(hours(backwards(when, ...night))).toBe(expected);
    expect(hours(forwards(when, ...night))).toBe(expected);
  });
});

test('however a stretch is cut, and from whichever end, its ticks are the same', () => {
  const whens = ['30 2 * * *', '*/7 1-3 * * *', '5 * * * *', '0 0 1 * *', '59 23 * * 0', '0 */5 * * *', '30 0 * * *'];
  const zones = [
    BERLIN,
    'America/New_York',
    'Australia/Lord_Howe',
    'America/Asuncion',
    'Africa/Casablanca',
    'Pacific/Apia',
  ];
  const year = at('2026-01-01T00:00:00Z');
  const changes = [at('2026-03-29T01:00:00Z'), at('2026-10-25T01:00:00Z'), at('2011-12-30T10:00:00Z')];
  const moment = fc.oneof(
    fc.integer({ min: year, max: year + 365 * 86_400_000 }),
    fc
      .tuple(fc.constantFrom(...changes), fc.integer({ min: -30 * 3_600_000, max: 30 * 3_600_000 }))
      .map(([a, b]) => a + b),
  );
  fc.assert(
    fc.property(
      fc.constantFrom(...whens),
      fc.constantFrom(...zones),
      moment,
      fc.array(fc.integer({ min: 1, max: 20 * 3_600_000 }), { minLength: 1, maxLength: 5 }),
      (when, timezone, from, steps) => {
        const ticks = new Ticks({ when, timezone });
        const cut: number[] = [];
        let fromMs = from;
        for (const step of steps) {
          cut.push(...ticks.between(fromMs, fromMs + step, 5_000).ticks);
          fromMs += step;
        }
        const whole = ticks.between(from, fromMs, 5_000).ticks;
        expect(cut).toEqual(whole);
        const stepped: number[] = [];
        for (let next = ticks.next(from); next !== undefined && next <= fromMs; next = ticks.next(next))
          stepped.push(next);
        expect(stepped).toEqual(whole);
      },
    ),
    { numRuns: 300 },
  );
});

describe('what a schedule says of its times', () => {
  test('is kept as it is written', () => {
    expect(readWhen({ when: ' 0 3 * * * ', timezone: BERLIN })).toEqual({ when: '0 3 * * *', timezone: BERLIN });
    expect(readWhen({ when: '@hourly' })).toEqual({ when: '@hourly', timezone: 'UTC' });
    expect(readWhen({ when: '* * * * * *', timezone: '' })).toEqual({ when: '* * * * * *', timezone: 'UTC' });
    expect(readWhen({ when: '0 9 * MAR THU' })).toEqual({ when: '0 9 * MAR THU', timezone: 'UTC' });
  });

  test.each([
    '@yearly',
    '@annually',
    '@monthly',
    '@weekly',
    '@daily',
    '@hourly',
    '@minutely',
    '@secondly',
    '@weekdays',
    '@weekends',
  ])('%s is a name of one', (when) => expect(readWhen({ when })).toMatchObject({ when }));

  test.each<[Record<string, unknown>, RegExp]>([
    [{}, /^extra\.when must say when/],
    [{ when: '  ' }, /^extra\.when must say when/],
    [{ when: 5 }, /^extra\.when must say when/],
    [{ when: '@every 5m' }, /^extra\.when "@every 5m" is not known; names are @yearly/],
    [{ when: '* * * *' }, /^extra\.when "\* \* \* \*" has 4 fields; 5 are needed/],
    [{ when: '* * * * * * *' }, /has 7 fields/],
    [{ when: '61 * * * *' }, /^extra\.when "61 \* \* \* \*" cannot be read \(.*0-59/],
    [{ when: 'a b c d e' }, /cannot be read/],
    [{ when: '0 0 30 2 *' }, /cannot be read|never comes/],
    [{ when: 'H * * * *' }, /has an H, which names no time/],
    [{ when: `${'1,'.repeat(200)}1 * * * *` }, /is longer than 256 characters/],
    [{ when: '@daily', timezone: 'Nowhere/City' }, /^extra\.timezone "Nowhere\/City" is not a time zone/],
    [{ when: '@daily', timezone: 'local' }, /^extra\.timezone "local" is not a time zone/],
    [{ when: '@daily', timezone: 'GMT+2' }, /is not a time zone/],
    [{ when: '@daily', timezone: 2 }, /^extra\.timezone must be the name/],
  ])('%j is refused by name', (extra, text) => {
    expect(readWhen(extra)).toMatch(text);
  });
});

describe('deciding which ticks become tasks', () => {
  test('none are due', () => expect(decideTicks({ ticks: [], older: 0 }, 10)).toEqual({ kind: 'nothing_due' }));
  test('all of them, and no tick is looked at again', () =>
    expect(decideTicks({ ticks: [1, 2, 3], older: 7 }, 10)).toEqual({
      kind: 'tick',
      ticks: [1, 2, 3],
      tickedToMs: 3,
      tooOld: 7,
      queueFull: 0,
    }));
  test.each([
    [2, [2, 3], 1],
    [0, [], 3],
    [-5, [], 3],
  ])('the newest that a queue with room for %i takes', (room, ticks, queueFull) =>
    expect(decideTicks({ ticks: [1, 2, 3], older: 0 }, room)).toMatchObject({ ticks, tickedToMs: 3, queueFull }),
  );
});

test('the task of a tick has one id, which is a UUID v5 of its own', () => {
  const one = '6ba7b810-9dad-11d1-80b4-00c04fd430c8' as DeploymentId;
  // The value is the same in every implementation: the namespace is the deployment, the name the milliseconds.
  expect(tickTaskId(one, 1_767_225_600_000)).toBe('f495bf90-362b-5b41-b313-fac100099f6b');
  expect(tickTaskId(one, 1_767_225_601_000)).not.toBe(tickTaskId(one, 1_767_225_600_000));
  const two = '6ba7b811-9dad-11d1-80b4-00c04fd430c8' as DeploymentId;
  expect(tickTaskId(two, 1_767_225_600_000)).not.toBe(tickTaskId(one, 1_767_225_600_000));
});
