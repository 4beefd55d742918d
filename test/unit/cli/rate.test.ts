import { expect, test } from 'vitest';
import { rateText } from '#cli/transfer/rate.ts';

const MIB = 1024 * 1024;

test.each([
  ['the first moment has a rate, and says nothing of the rest', 1 * MIB, 0.1, '1.0 MiB of 100.0 MiB, 5.0 MiB/s'],
  ['seconds', 25 * MIB, 5, '25.0 MiB of 100.0 MiB, 5.0 MiB/s, 15 s left'],
  ['minutes', 1 * MIB, 4, '1.0 MiB of 100.0 MiB, 256.0 KiB/s, 7 min left'],
  ['hours', 1 * MIB, 100, '1.0 MiB of 100.0 MiB, 10.2 KiB/s, 2.8 h left'],
  ['nothing moved', 0, 30, '0 B of 100.0 MiB, 0 B/s'],
  ['all of it', 100 * MIB, 20, '100.0 MiB of 100.0 MiB, 5.0 MiB/s'],
])('a transfer says how far it is: %s', (_name, bytes, seconds, text) => {
  expect(rateText(bytes, 100 * MIB, seconds)).toBe(text);
});
