import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { cpuMillicores, memoryMib } from '#shared/domain/quantities.ts';

interface Cases {
  readonly accepted: readonly (readonly [unknown, number])[];
  readonly refused: readonly unknown[];
}
// The Python parser is held to the same file.
const cases = JSON.parse(readFileSync(join(import.meta.dirname, '../../fixtures/quantities.json'), 'utf8')) as Record<
  'cpu' | 'memory',
  Cases
>;

describe.each([
  ['cpu', cpuMillicores],
  ['memory', memoryMib],
] as const)('%s', (name, parse) => {
  test.each(cases[name].accepted)('%j is %i', (value, expected) => {
    expect(parse(value)).toBe(expected);
  });

  test.each([...cases[name].refused, Number.NaN, Infinity, undefined, 1e300].map((value) => [value]))(
    '%j is refused by name',
    (value) => {
      expect(() => parse(value)).toThrow(new RegExp(`^${name}: `));
    },
  );
});
