import { describe, expect, test } from 'vitest';
import { REFUSALS_PER_MINUTE, Refusals, sourceOf } from '../../../scheduler/workspaces/identity/refusals.ts';

function aBound() {
  const clock = { ms: 0, monotonicMs: () => clock.ms };
  return { clock, refusals: new Refusals(clock) };
}
const spend = (refusals: Refusals, address: string): void => {
  for (let count = 0; count < REFUSALS_PER_MINUTE; count++) refusals.refused(address);
};

describe('refused tokens of one address', () => {
  test('are told to wait beyond the bound, and for how long', () => {
    const { clock, refusals } = aBound();
    spend(refusals, '192.0.2.1');
    expect(() => refusals.refused('192.0.2.1')).toThrow(
      expect.objectContaining({ code: 'rate_limited', details: { retryAfterSeconds: 1 } }) as Error,
    );
    clock.ms = 1_000;
    refusals.refused('192.0.2.1');
    expect(() => refusals.refused('192.0.2.1')).toThrow();
  });

  test('are forgiven with time, up to the bound', () => {
    const { clock, refusals } = aBound();
    spend(refusals, '192.0.2.1');
    clock.ms = 3_600_000;
    spend(refusals, '192.0.2.1');
    expect(() => refusals.refused('192.0.2.1')).toThrow();
  });

  test('are nobody else’s', () => {
    const { refusals } = aBound();
    spend(refusals, '192.0.2.1');
    refusals.refused('192.0.2.2');
    spend(refusals, '2001:db8:0:1::1');
    expect(() => refusals.refused('2001:db8:0:1:ffff::2')).toThrow();
    refusals.refused('2001:db8:0:2::1');
  });

  test('are no guesses at a secret of the operator’s, and guesses at one are none at another', () => {
    const { clock, refusals } = aBound();
    spend(refusals, '192.0.2.1');
    for (let count = 0; count < REFUSALS_PER_MINUTE; count++) {
      refusals.mayGuess('metrics', '192.0.2.1');
      refusals.guessed('metrics', '192.0.2.1');
    }
    expect(() => refusals.mayGuess('metrics', '192.0.2.1')).toThrow(/wait 1 s/);
    expect(() => refusals.guessed('metrics', '192.0.2.1')).toThrow(/wait 1 s/);
    refusals.mayGuess('bootstrap', '192.0.2.1');
    refusals.mayGuess('metrics', '192.0.2.2');
    clock.ms = 1_000;
    refusals.mayGuess('metrics', '192.0.2.1');
  });

  test('are counted for a bounded number of addresses', () => {
    const { refusals } = aBound();
    for (let n = 0; n < 20_000; n++) refusals.refused(`10.${n >> 16}.${(n >> 8) & 255}.${n & 255}`);
    expect(refusals.size).toBe(10_000);
    for (let n = 0; n < 20_000; n++) refusals.guessed('metrics', `10.${n >> 16}.${(n >> 8) & 255}.${n & 255}`);
    expect(refusals.size).toBe(20_000);
  });
});

test.each([
  ['192.0.2.1', '192.0.2.1'],
  ['::ffff:192.0.2.1', '192.0.2.1'],
  ['::1', '0:0:0:0::/64'],
  ['::', '0:0:0:0::/64'],
  ['2001:db8::1', '2001:db8:0:0::/64'],
  ['2001:DB8:0:0:1:2:3:4', '2001:db8:0:0::/64'],
  ['2001:db8:1:2:3::', '2001:db8:1:2::/64'],
  ['64:ff9b::192.0.2.1', '64:ff9b:0:0::/64'],
  ['fe80::1%eth0', 'fe80:0:0:0::/64'],
  ['unknown', 'unknown'],
])('%s is counted for %s', (address, source) => {
  expect(sourceOf(address)).toBe(source);
});
