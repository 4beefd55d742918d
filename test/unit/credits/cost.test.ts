import fc from 'fast-check';
import { expect, test } from 'vitest';
import { MOST_MICROS, centsOf, costOf, monthOf, settledCost } from '#scheduler/workspaces/credits/cost.ts';

const prices = { promptMicrosPerMillion: 150_000, completionMicrosPerMillion: 600_000, requestMicros: 0 };

test('a request is rounded up once, not once for its prompt and once for its completion', () => {
  expect(costOf(prices, { promptTokens: 1, completionTokens: 0 })).toBe(1);
  // 0.15 and 0.6 of a micro-unit together are one.
  expect(costOf(prices, { promptTokens: 1, completionTokens: 1 })).toBe(1);
  expect(costOf(prices, { promptTokens: 1_000_000, completionTokens: 1_000_000 })).toBe(750_000);
  expect(costOf({ ...prices, requestMicros: 7 }, { promptTokens: 0, completionTokens: 0 })).toBe(7);
});

test('cents are whole and rounded down, also below 0', () => {
  expect([0, 9_999, 10_000, 19_999, -1, -10_000, -10_001].map(centsOf)).toEqual([0, 0, 1, 1, -1, -1, -2]);
});

test('costs are exact safe integers for any prices and usage, and never fall when usage grows', () => {
  const price = fc.integer({ min: 0, max: 1_000_000_000_000 });
  const tokens = fc.integer({ min: 0, max: 1_000_000_000 });
  fc.assert(
    fc.property(price, price, price, tokens, tokens, (prompt, completion, request, promptTokens, completionTokens) => {
      const all = { promptMicrosPerMillion: prompt, completionMicrosPerMillion: completion, requestMicros: request };
      const cost = costOf(all, { promptTokens, completionTokens });
      expect(Number.isSafeInteger(cost)).toBe(true);
      const exact = BigInt(promptTokens) * BigInt(prompt) + BigInt(completionTokens) * BigInt(completion);
      const rounded = (exact + 999_999n) / 1_000_000n + BigInt(request);
      expect(BigInt(cost)).toBe(rounded > BigInt(MOST_MICROS) ? BigInt(MOST_MICROS) : rounded);
      expect(costOf(all, { promptTokens: promptTokens + 1, completionTokens })).toBeGreaterThanOrEqual(cost);
    }),
  );
});

test.for([Number.NaN, -1, Infinity, 1.5])('an odd count of tokens (%s) gives a safe cost', (promptTokens) => {
  expect(Number.isSafeInteger(costOf(prices, { promptTokens, completionTokens: 0 }))).toBe(true);
});

test('a request that failed or was lost before any output is free, an aborted one is not', () => {
  const request = { prices, isCharged: true };
  const silent = { promptTokens: 1_000_000, completionTokens: 0, estimated: false };
  const spoken = { ...silent, completionTokens: 1 };
  expect(settledCost(request, silent, 'failed')).toBe(0);
  expect(settledCost(request, silent, 'lost')).toBe(0);
  expect(settledCost(request, silent, 'aborted')).toBe(150_000);
  expect(settledCost(request, silent, 'complete')).toBe(150_000);
  expect(settledCost(request, spoken, 'failed')).toBe(150_001);
  expect(settledCost({ prices, isCharged: false }, spoken, 'complete')).toBe(0);
});

test('a month is that of UTC', () => {
  expect(monthOf(Date.UTC(2026, 10, 30, 23, 59, 59))).toBe('2026-11');
  expect(monthOf(Date.UTC(2026, 11, 1))).toBe('2026-12');
});
