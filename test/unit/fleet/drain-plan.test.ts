import * as fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { ContainerId } from '#shared/domain/ids.ts';
import { CAPACITY_WITHIN_MS, PROGRESS_WITHIN_MS, drainSteps } from '../../../scheduler/fleet/drain-plan.ts';
import type { DrainContainer, DrainQueue } from '../../../scheduler/fleet/drain-plan.ts';

const NOW = 1_000_000;

const container = (id: string, facts: Partial<DrainContainer> = {}): DrainContainer => ({
  id: id as ContainerId,
  state: 'RUNNING',
  attempts: 1,
  pickedAtMs: undefined,
  isLate: false,
  createdAtMs: 0,
  byHand: false,
  ...facts,
});
const busy = (count: number, from = 0): DrainContainer[] =>
  Array.from({ length: count }, (_, index) => container(`b${from + index}`, { createdAtMs: from + index }));
const queue = (containers: readonly DrainContainer[], facts: Partial<DrainQueue> = {}): DrainQueue => ({
  wanted: containers.length,
  minContainers: 0,
  readyElsewhere: 0,
  hasNoCapacity: false,
  progressedAtMs: undefined,
  containers,
  ...facts,
});
const stepsOf = (one: DrainQueue, nowMs = NOW): string[] =>
  drainSteps(one, nowMs).map(({ kind, id }) => `${kind} ${id}`);

describe('a container on a machine that drains', () => {
  test('without a task goes at once, unless minContainers needs it', () => {
    const idle = [container('a', { attempts: 0 }), container('b', { attempts: 0, createdAtMs: 1 })];
    expect(stepsOf(queue(idle, { wanted: 0 }))).toEqual(['stop a', 'stop b']);
    expect(stepsOf(queue(idle, { wanted: 1, minContainers: 1 }))).toEqual(['stop a', 'pick b']);
    expect(stepsOf(queue(idle, { wanted: 1, minContainers: 1, readyElsewhere: 1 }))).toEqual(['stop a', 'stop b']);
    expect(stepsOf(queue([...idle, ...busy(1)], { wanted: 1, minContainers: 1 }))).toEqual([
      'stop a',
      'stop b',
      'pick b0',
    ]);
  });

  test('that only starts is ended: its queue asks for another one elsewhere', () => {
    expect(stepsOf(queue([container('a', { state: 'STARTING', attempts: 0 })]))).toEqual(['end a']);
  });

  test('with a task serves on until its replacement is ready', () => {
    const picked = container('a', { pickedAtMs: NOW - 1000 });
    expect(stepsOf(queue([picked], { wanted: 1 }))).toEqual([]);
    expect(stepsOf(queue([picked], { wanted: 1, readyElsewhere: 1 }))).toEqual(['drain a']);
  });

  test('goes without one when it is not needed any more, when there is no capacity, or without progress', () => {
    const picked = container('a', { pickedAtMs: NOW });
    expect(stepsOf(queue([picked], { wanted: 0 }))).toEqual(['drain a']);
    expect(stepsOf(queue(busy(2), { wanted: 1 }))).toEqual(['drain b0', 'pick b1']);
    const full = queue([picked], { wanted: 1, hasNoCapacity: true });
    expect(stepsOf(full, NOW + CAPACITY_WITHIN_MS - 1)).toEqual([]);
    expect(stepsOf(full, NOW + CAPACITY_WITHIN_MS)).toEqual(['drain a']);
    // Capacity that is missing after a replacement had got on counts from then.
    expect(stepsOf({ ...full, progressedAtMs: NOW + 30_000 }, NOW + CAPACITY_WITHIN_MS)).toEqual([]);
    expect(stepsOf(queue([picked], { wanted: 1 }), NOW + PROGRESS_WITHIN_MS - 1)).toEqual([]);
    expect(stepsOf(queue([picked], { wanted: 1 }), NOW + PROGRESS_WITHIN_MS)).toEqual(['drain a']);
  });

  test.each([1, 0])('with %s tasks waits for a replacement that gets on, for as long as it does', (attempts) => {
    const left = attempts === 0 ? ['stop a'] : ['drain a'];
    const waits = (progressedAtMs: number | undefined, facts: Partial<DrainContainer> = {}) =>
      queue([container('a', { pickedAtMs: NOW, attempts, ...facts })], { wanted: 1, minContainers: 1, progressedAtMs });
    const later = NOW + 25 * 60_000;
    expect(stepsOf(waits(later - PROGRESS_WITHIN_MS + 1), later)).toEqual([]);
    expect(stepsOf(waits(later - PROGRESS_WITHIN_MS), later)).toEqual(left);
    expect(stepsOf(waits(undefined), later)).toEqual(left);
    // Progress from before it was picked is none of its replacement.
    expect(stepsOf(waits(NOW - 60_000), NOW + PROGRESS_WITHIN_MS - 1)).toEqual([]);
    expect(stepsOf(waits(later, { isLate: true }), later)).toEqual(['end a']);
  });

  test('that alone serves is never stopped before its replacement is ready, while that makes progress', () => {
    const gaps = fc.array(fc.integer({ min: 1, max: PROGRESS_WITHIN_MS - 1 }), { minLength: 1, maxLength: 20 });
    const looks = fc.array(fc.integer({ min: 1, max: 60_000 }), { minLength: 1, maxLength: 50 });
    fc.assert(
      fc.property(
        gaps,
        looks,
        fc.nat({ max: 2 }),
        fc.integer({ min: 1, max: 90 * 60_000 }),
        (steps, waits, tasks, deadline) => {
          const changes = steps.reduce<number[]>((all, gap) => [...all, (all.at(-1) ?? 0) + gap], []);
          const readyMs = changes.at(-1) ?? 0;
          let pickedAtMs: number | undefined;
          for (let nowMs = 0, at = 0; ; nowMs += waits[at++ % waits.length] ?? 1) {
            const isReady = nowMs >= readyMs;
            const progressed = changes.filter((ms) => ms <= nowMs).at(-1);
            const [step] = drainSteps(
              queue([container('a', { attempts: tasks, pickedAtMs, isLate: nowMs >= deadline })], {
                wanted: 1,
                minContainers: 1,
                readyElsewhere: isReady ? 1 : 0,
                progressedAtMs: progressed,
              }),
              nowMs,
            );
            if (step?.kind === 'pick') pickedAtMs = nowMs;
            else if (step !== undefined) return isReady || nowMs >= deadline;
            else if (isReady) return false;
          }
        },
      ),
      { numRuns: 2_000 },
    );
  });

  test('whose task ended while it waited for its replacement is stopped, not drained', () => {
    const picked = container('a', { pickedAtMs: NOW, attempts: 0 });
    expect(stepsOf(queue([picked], { wanted: 1, minContainers: 1, readyElsewhere: 0 }))).toEqual([]);
    expect(stepsOf(queue([picked], { wanted: 1, minContainers: 1, readyElsewhere: 1 }))).toEqual(['stop a']);
  });

  test('of which nothing is known counts as busy', () => {
    expect(stepsOf(queue([container('a', { attempts: undefined })], { wanted: 1 }))).toEqual(['pick a']);
  });

  test('is ended at the deadline, whatever it does', () => {
    const late = { isLate: true };
    expect(stepsOf(queue([container('a', late), container('b', { ...late, state: 'DRAINING' })]))).toEqual([
      'end a',
      'end b',
    ]);
    expect(stepsOf(queue([container('c', { ...late, state: 'STOPPING' })]))).toEqual([]);
  });
});

describe('of one deployment', () => {
  test('at most a quarter wait for a replacement at a time, at least one', () => {
    expect(stepsOf(queue(busy(2)))).toEqual(['pick b0']);
    expect(stepsOf(queue(busy(12)))).toEqual(['pick b0', 'pick b1', 'pick b2']);
    const some = [container('p', { pickedAtMs: NOW }), ...busy(11)];
    expect(stepsOf(queue(some))).toEqual(['pick b0', 'pick b1']);
  });

  test('as many go as replacements came, and the next ones are asked for', () => {
    const picked = ['p', 'q', 'r'].map((id, index) => container(id, { pickedAtMs: NOW - 10 + index }));
    const all = [...picked, ...busy(9)];
    expect(stepsOf(queue(all, { wanted: 12, readyElsewhere: 1 }))).toEqual(['drain p', 'pick b0']);
    expect(stepsOf(queue(all, { wanted: 12, readyElsewhere: 3 }))).toEqual([
      'drain p',
      'drain q',
      'drain r',
      'pick b0',
      'pick b1',
      'pick b2',
    ]);
  });

  test('a container made by hand stays until the deadline, whatever it does, and then ends', () => {
    const handMade = [
      container('h1', { byHand: true, attempts: 0 }),
      container('h2', { byHand: true, state: 'STARTING' }),
      container('h3', { byHand: true, attempts: undefined }),
    ];
    expect(stepsOf(queue(handMade, { wanted: 0 }))).toEqual([]);
    const late = handMade.map((one) => ({ ...one, isLate: true }));
    expect(stepsOf(queue(late, { wanted: 0 }))).toEqual(['end h1', 'end h2', 'end h3']);
  });

  test('never fewer serve than are wanted, as long as there is capacity', () => {
    for (let elsewhere = 0; elsewhere <= 8; elsewhere += 1) {
      const picked = Array.from({ length: 2 }, (_, index) => container(`p${index}`, { pickedAtMs: NOW }));
      const all = [...picked, ...busy(6)];
      const left = drainSteps(queue(all, { wanted: 8, readyElsewhere: elsewhere }), NOW).filter(
        ({ kind }) => kind === 'drain',
      );
      expect(elsewhere + all.length - left.length).toBeGreaterThanOrEqual(8);
    }
  });
});
