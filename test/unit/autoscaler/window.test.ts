import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { ContainerId } from '#shared/domain/ids.ts';
import { CLOSED_BREAKER } from '#scheduler/control/autoscaler/breaker.ts';
import { scaleInHold } from '#scheduler/control/autoscaler/scale-in-hold.ts';
import type { ScaleInHoldFacts } from '#scheduler/control/autoscaler/scale-in-hold.ts';
import type { ScaleContainer } from '#scheduler/control/autoscaler/decide.ts';
import { decideScale, wantedContainers } from '#scheduler/control/autoscaler/decide.ts';
import { largestWanted, nextLeaves, rememberWanted } from '#scheduler/control/autoscaler/window.ts';
import type { WantedWindow } from '#scheduler/control/autoscaler/window.ts';
import { stories } from '../../helpers/stories.ts';

const answers = fc.array(fc.record({ afterMs: fc.nat({ max: 5000 }), wanted: fc.nat({ max: 8 }) }), {
  minLength: 1,
  maxLength: 60,
});
const windows = fc.constantFrom(0, 1, 1000, 10_000);

describe('the window', () => {
  test('holds the largest answer that was the newest at some time within it', () => {
    fc.assert(
      fc.property(answers, windows, (given, windowMs) => {
        let nowMs = 0;
        let window: WantedWindow = [];
        const all: { wanted: number; fromMs: number; untilMs: number }[] = [];
        for (const { afterMs, wanted } of given) {
          nowMs += afterMs;
          const last = all.at(-1);
          if (last !== undefined) last.untilMs = nowMs;
          all.push({ wanted, fromMs: nowMs, untilMs: Number.POSITIVE_INFINITY });
          window = rememberWanted(window, wanted, windowMs, nowMs);
          const within = all.filter((one) => one.untilMs + windowMs > nowMs);
          expect(largestWanted(window)).toBe(Math.max(...within.map((one) => one.wanted)));
          expect(window.length).toBeLessThanOrEqual(9);
          const leavesMs = nextLeaves(window, windowMs);
          if (leavesMs !== undefined) expect(leavesMs).toBeGreaterThan(nowMs);
        }
      }),
      { numRuns: stories(2_000) },
    );
  });
});

test('with a window the number of containers never turns twice within it, whatever the queue does', () => {
  fc.assert(
    fc.property(
      fc.array(fc.record({ afterMs: fc.nat({ max: 3000 }), inFlight: fc.nat({ max: 12 }) }), { maxLength: 80 }),
      fc.constantFrom(500, 2000, 10_000),
      fc.constantFrom(0, 700),
      (given, windowMs, keepWarmMs) => {
        let nowMs = 0;
        let made = 0;
        let window: WantedWindow = [];
        let containers: readonly ScaleContainer[] = [];
        const turns: number[] = [];
        let direction = '';
        for (const { afterMs, inFlight } of given) {
          nowMs += afterMs;
          const bounds = { active: true, tasksPerContainer: 2, minContainers: 0, maxContainers: 5 };
          window = rememberWanted(window, wantedContainers(bounds, inFlight), windowMs, nowMs);
          const decision = decideScale(
            {
              ...bounds,
              inFlight,
              waiting: 0,
              keepWarmMs,
              containers,
              breaker: CLOSED_BREAKER,
              wantedInWindow: largestWanted(window),
            },
            nowMs,
          );
          if (decision.kind === 'hold') continue;
          if (direction !== '' && direction !== decision.kind) turns.push(nowMs);
          direction = decision.kind;
          if (decision.kind === 'stop') {
            containers = containers.filter((one) => !decision.containers.includes(one.id));
            continue;
          }
          const added = Array.from({ length: decision.count }, (): ScaleContainer => {
            made += 1;
            const id = `c-${made}` as ContainerId;
            const times = { idleSinceMs: nowMs, createdAtMs: nowMs };
            return {
              id,
              state: 'RUNNING',
              attempts: 0,
              ...times,
              keepWarmMs: 0,
              warmUp: false,
              returned: false,
              found: false,
            };
          });
          containers = [...containers, ...added];
        }
        // A turn up may follow a turn down at once; the next turn down is a window away from it.
        for (const [index, atMs] of turns.entries()) {
          const afterNext = turns[index + 2];
          if (afterNext !== undefined) expect(afterNext - atMs).toBeGreaterThanOrEqual(windowMs);
        }
      },
    ),
    { numRuns: stories(1_000) },
  );
});

describe('after a start', () => {
  const facts = (changes: Partial<ScaleInHoldFacts> = {}): ScaleInHoldFacts => ({
    upMs: 1000,
    leadingMs: 1000,
    graceMs: 120_000,
    adopted: true,
    windowMs: 0,
    samples: 5,
    guarded: false,
    ...changes,
  });

  test.each([
    ['of all schedulers what they found stays for the grace', {}, { why: 'after_restart', leftMs: 119_000 }],
    ['what is new since then may go', { adopted: false }, undefined],
    ['the grace ends', { upMs: 120_000 }, undefined],
    ['a new leader waits one window', { upMs: 1e9, windowMs: 30_000 }, { why: 'new_leader', leftMs: 29_000 }],
    ['and for a second sample', { upMs: 1e9, samples: 1 }, { why: 'new_leader', leftMs: 1000 }],
    ['a leader that has seen both decides', { upMs: 1e9, leadingMs: 30_000, windowMs: 30_000 }, undefined],
    ['machines that went silent together hold everything', { upMs: 1e9, guarded: true }, { why: 'mass_disconnect' }],
  ] as const)('%s', (_name, changes, hold) => {
    expect(scaleInHold(facts(changes))).toEqual(hold);
  });
});
