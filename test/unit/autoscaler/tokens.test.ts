import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { ScaleBounds } from '#scheduler/control/autoscaler/decide.ts';
import { demandReason, demandsOf, wantedContainers } from '#scheduler/control/autoscaler/decide.ts';
import { tokensPerContainer, tokensPerStream } from '#scheduler/domain/serving.ts';
import { stories } from '../../helpers/stories.ts';

function theBounds(
  reserved: number,
  said: Partial<ScaleBounds> & { readonly perContainer?: number } = {},
): ScaleBounds {
  const { perContainer = 60_000, ...rest } = said;
  return {
    active: true,
    tasksPerContainer: 16,
    minContainers: 0,
    maxContainers: 8,
    tokens: { reserved, perContainer },
    ...rest,
  };
}

const someBounds = fc.record({
  tasksPerContainer: fc.integer({ min: 1, max: 50 }),
  minContainers: fc.nat({ max: 6 }),
  maxContainers: fc.integer({ min: 1, max: 12 }),
  perContainer: fc.integer({ min: 1, max: 200_000 }),
});
const runs = { numRuns: stories(2_000) };

describe('containers by reserved tokens', () => {
  test('few long prompts want several containers, where their number wants one', () => {
    const four = theBounds(4 * 30_000);
    const { tokens: _tokens, ...byTasks } = four;
    expect(wantedContainers(byTasks, 4)).toBe(1);
    expect(wantedContainers(four, 4)).toBe(2);
    expect(demandsOf(four, 4)).toEqual({ tasks: 1, tokens: 2, engines: 0 });
    expect(demandReason(four, 4)).toBe('token_pressure');
    expect(demandReason(theBounds(100), 40)).toBe('queue_depth');
    // A single long prompt cannot be divided, and yet asks for what it may need.
    expect(wantedContainers(theBounds(130_000), 1)).toBe(3);
  });

  test('more tokens never want fewer containers, and no number of them leaves the bounds', () => {
    fc.assert(
      fc.property(
        someBounds,
        fc.nat({ max: 200 }),
        fc.nat(),
        fc.nat({ max: 1_000_000 }),
        (said, tasks, tokens, more) => {
          const wanted = wantedContainers(theBounds(tokens, said), tasks);
          expect(wantedContainers(theBounds(tokens + more, said), tasks)).toBeGreaterThanOrEqual(wanted);
          expect(wanted).toBeGreaterThanOrEqual(wantedContainers(theBounds(0, said), tasks));
          expect(wanted).toBeGreaterThanOrEqual(said.minContainers);
          expect(wanted).toBeLessThanOrEqual(Math.max(said.minContainers, said.maxContainers));
          expect(Number.isSafeInteger(wanted)).toBe(true);
        },
      ),
      runs,
    );
  });

  test('the containers wanted hold the tokens, and one fewer would not: the same demand asks for the same number', () => {
    fc.assert(
      fc.property(someBounds, fc.nat({ max: 10_000_000 }), (said, tokens) => {
        const bounds = theBounds(tokens, { ...said, minContainers: 0, maxContainers: Number.MAX_SAFE_INTEGER });
        const wanted = wantedContainers(bounds, 0);
        expect(wanted * said.perContainer).toBeGreaterThanOrEqual(tokens);
        if (wanted > 0) expect((wanted - 1) * said.perContainer).toBeLessThan(tokens);
        expect(wantedContainers(bounds, 0)).toBe(wanted);
      }),
      runs,
    );
  });

  test('requests that wait inside engines want the containers that would run them, and nothing once none waits', () => {
    const engines = (running: number, waiting: number) => {
      const tokens = { reserved: 0, perContainer: 60_000, engines: { containers: 2, running, waiting } };
      return wantedContainers({ ...theBounds(0), tokens }, 1);
    };
    expect(engines(8, 4)).toBe(3);
    expect(engines(8, 9)).toBe(5);
    expect(engines(8, 0)).toBe(1);
    expect(engines(0, 1)).toBe(3);
    expect(engines(1, 1000)).toBe(8);
    const tokens = { reserved: 0, perContainer: 60_000, engines: { containers: 2, running: 8, waiting: 4 } };
    expect(demandReason({ ...theBounds(0), tokens }, 1)).toBe('token_pressure');
  });

  test('a stopped deployment wants none', () => {
    expect(wantedContainers(theBounds(1_000_000, { active: false }), 3)).toBe(0);
  });
});

describe('tokens that a container holds', () => {
  test('the context for each of its tasks, or its cache where that is named', () => {
    expect(tokensPerContainer({ contextLength: 4096 }, 16)).toBe(65_536);
    expect(tokensPerContainer({ contextLength: 4096, cacheTokens: 60_000 }, 16)).toBe(60_000);
    expect(tokensPerStream({ contextLength: 4096 }, 16)).toBe(4096);
    expect(tokensPerStream({ contextLength: 4096, cacheTokens: 60_000 }, 16)).toBe(3750);
    expect(tokensPerStream({ contextLength: 4096, cacheTokens: 1 }, 16)).toBe(1);
  });
});
