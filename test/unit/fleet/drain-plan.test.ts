import { describe, expect, test } from 'vitest';
import type { ContainerId } from '#shared/domain/ids.ts';
import { REPLACEMENT_WITHIN_MS, drainSteps } from '../../../scheduler/fleet/drain-plan.ts';
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

  test('goes without one when it is not needed any more, when there is no capacity, or after 120 s', () => {
    const picked = container('a', { pickedAtMs: NOW });
    expect(stepsOf(queue([picked], { wanted: 0 }))).toEqual(['drain a']);
    expect(stepsOf(queue(busy(2), { wanted: 1 }))).toEqual(['drain b0', 'pick b1']);
    expect(stepsOf(queue([picked], { wanted: 1, hasNoCapacity: true }))).toEqual(['drain a']);
    expect(stepsOf(queue([picked], { wanted: 1 }), NOW + REPLACEMENT_WITHIN_MS - 1)).toEqual([]);
    expect(stepsOf(queue([picked], { wanted: 1 }), NOW + REPLACEMENT_WITHIN_MS)).toEqual(['drain a']);
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
