// Encodings that a browser takes, by its `accept-encoding`.
import { expect, test } from 'vitest';
import { takesEncoding } from '#scheduler/api/http/console/encodings.ts';

const takes = (text: string): boolean => takesEncoding({ headers: { 'accept-encoding': text } }, 'gzip');

test('an encoding is taken that is named with a weight above 0', () => {
  for (const text of ['gzip', 'br, GZIP', 'deflate;q=0, gzip ; q=0.5', 'gzip;q=1.0'])
    expect(takes(text), text).toBe(true);
  for (const text of ['', 'br', 'gzip;q=0', 'gzip;q=0.000', 'x-gzip', 'gzip;q=none'])
    expect(takes(text), text).toBe(false);
});

test('a header as long as one may be is read in a few steps', () => {
  // A pattern that goes back for each digit would take minutes for these.
  const long = `gzip;q=0.${'1'.repeat(15_000)}x`;
  for (let n = 0; n < 500; n += 1) expect(takes(long)).toBe(false);
});
