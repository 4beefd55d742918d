import { expect, test } from 'vitest';
import { lookOf, lookOfMark, movedTo, useOf } from '../../../console/screens/fleet/gpu-words.ts';

test('arrow keys move within rows of different lengths, and never out of the grid', () => {
  const lengths = [8, 2, 4];
  expect(movedTo('ArrowRight', { row: 1, column: 1 }, lengths)).toEqual({ row: 1, column: 1 });
  expect(movedTo('ArrowDown', { row: 0, column: 5 }, lengths)).toEqual({ row: 1, column: 1 });
  expect(movedTo('ArrowDown', { row: 2, column: 3 }, lengths)).toEqual({ row: 2, column: 3 });
  expect(movedTo('ArrowUp', { row: 0, column: 3 }, lengths)).toEqual({ row: 0, column: 3 });
  expect(movedTo('End', { row: 0, column: 3 }, lengths)).toEqual({ row: 0, column: 7 });
  expect(movedTo('Home', { row: 2, column: 3 }, lengths)).toEqual({ row: 2, column: 0 });
  expect(movedTo('x', { row: 0, column: 0 }, lengths)).toBeUndefined();
});

test('a GPU that is leased and idle looks different from one that works', () => {
  expect(lookOf({ standing: 'leased', idle_since: null })).toBe('busy');
  expect(lookOf({ standing: 'leased', idle_since: '2030-01-01T00:00:00Z' })).toBe('idle');
  expect(lookOf({ standing: 'out', idle_since: null })).toBe('out');
});

test('each letter of the map has its look', () => {
  expect('LIFBX'.split('').map(lookOfMark)).toEqual(['busy', 'idle', 'free', 'blocked', 'out']);
});

test('what is not known of the use is left out', () => {
  const gpu = { sampled_at: '2030-01-01T00:00:00Z', utilization_pct: 12.4, memory_used_bytes: null, power_watts: 90 };
  expect(useOf({ ...gpu, temperature_celsius: null } as never)).toBe('12 % busy · 90 W');
  expect(useOf({ ...gpu, sampled_at: null } as never)).toBe('its use is not known');
});
