import { expect, test } from 'vitest';
import { warningsOf } from '#scheduler/control/placement/market-capacity.ts';

test('guarantees beyond what machines have are named, by market', () => {
  const guaranteed = new Map([
    ['H100', 24],
    ['L4', 4],
    ['cpu', 65],
    ['B200', 1],
  ]);
  const capacity = new Map([
    ['H100', 16],
    ['L4', 4],
    ['cpu', 64.5],
  ]);
  expect(warningsOf(guaranteed, capacity)).toEqual([
    expect.stringMatching(/^24 H100 are guaranteed to workspaces, and shared machines have 16: /),
    expect.stringMatching(/^65 cores are guaranteed to workspaces, and shared machines have 64: /),
    expect.stringMatching(/^1 B200 are guaranteed to workspaces, and shared machines have 0: /),
  ]);
});
