// How often the agent lists all of its containers, and what its sweeps ask for in between. The engine is a stand-in
// that needs as long as it is told.
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { createLog } from '#shared/log.ts';
import type { LoopParts } from '../../../agent/reconcile/loop.ts';
import { ReconcileLoop, restAfterListingMs } from '../../../agent/reconcile/loop.ts';

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval', 'setTimeout', 'clearTimeout', 'performance', 'Date'] });
});
afterEach(() => {
  vi.useRealTimers();
});

const ENDED = { dockerId: 'd1' };

async function sweepsOf(listingMs: number, forMs: number): Promise<{ asked: string[]; learnt: unknown[] }> {
  const asked: string[] = [];
  const learnt: unknown[] = [];
  const parts = {
    runtime: {
      ping: () => Promise.resolve(),
      watch: (_fromMs: number, _onEvent: unknown, signal: AbortSignal) =>
        new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve())),
      list: async (_labels: unknown, only?: string) => {
        asked.push(only ?? 'all');
        await new Promise((resolve) => setTimeout(resolve, only === undefined ? listingMs : 2));
        return only === undefined ? [] : [ENDED];
      },
    },
    agentState: {
      learnAll: () => undefined,
      learnSome: (containers: readonly unknown[]) => learnt.push(...containers),
      planInput: () => ({ wanted: undefined, known: new Map(), ending: new Map(), seen: [], attended: new Set() }),
      busy: new Map(),
      journal: { all: () => [] },
    },
    executor: { openAhead: () => Promise.resolve() },
    metrics: {
      dockerUp: { set: () => undefined },
      setContainers: () => undefined,
      reconcileDuration: { observe: () => undefined },
    },
    conditions: { set: () => undefined },
    log: createLog({ name: 'test', level: 'silent' }),
    machineIds: () => ['m1'],
  };
  const loop = new ReconcileLoop(parts as unknown as LoopParts);
  const started = loop.start();
  await vi.advanceTimersByTimeAsync(listingMs);
  await started;
  await vi.advanceTimersByTimeAsync(forMs);
  await loop.stop();
  return { asked, learnt };
}

test('an engine that lists in milliseconds is asked for what does not run every 15 s, and for everything each minute', async () => {
  const { asked, learnt } = await sweepsOf(5, 61_000);
  expect(asked).toEqual(['all', 'not_running', 'not_running', 'not_running', 'all']);
  expect(learnt).toEqual([ENDED, ENDED, ENDED]);
});

test('an engine that needs longer is asked for everything once that is a thousandth of its time', async () => {
  const { asked } = await sweepsOf(90, 91_000);
  expect(asked).toEqual(['all', ...Array.from({ length: 5 }, () => 'not_running'), 'all']);
});

test('everything is listed at least every three minutes', () => {
  expect(restAfterListingMs(20_000)).toBeLessThanOrEqual(180_000);
  expect(restAfterListingMs(160)).toBeGreaterThan(140_000);
});
