import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { ContainerId, QueueName } from '#shared/domain/ids.ts';
import { AFFINITY_MS, Affinities } from '#scheduler/tasks/dispatch/affinities.ts';
import type { ServingCandidate } from '#scheduler/tasks/dispatch/choose.ts';
import { AFFINITY_SLACK, chooseServing, servingLoad } from '#scheduler/tasks/dispatch/choose.ts';
import { stories } from '../../helpers/stories.ts';

const PER_STREAM = 1000;
const CALL = { tokens: 500, tokensPerStream: PER_STREAM };
/** Load of one such call. */
const ONE = 1.5;
const idOf = (index: number): ContainerId => `c-${index}` as ContainerId;
const load = (one: ServingCandidate): number => servingLoad(one, PER_STREAM);
const hasRoom = (one: ServingCandidate): boolean => one.accepting && one.inFlight < one.slots;

function aServer(index: number, said: Partial<ServingCandidate> = {}): ServingCandidate {
  return {
    containerId: idOf(index),
    slots: 8,
    inFlight: 0,
    accepting: true,
    tokens: 0,
    engineWaiting: 0,
    ...said,
  };
}

const servers: fc.Arbitrary<readonly ServingCandidate[]> = fc
  .array(
    fc.record({
      slots: fc.integer({ min: 1, max: 4 }),
      inFlight: fc.nat({ max: 5 }),
      accepting: fc.boolean(),
      tokens: fc.nat({ max: 9000 }),
      engineWaiting: fc.nat({ max: 3 }),
    }),
    { maxLength: 8 },
  )
  .map((list) => list.map((one, index) => aServer(index, one)));
const random01 = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });

describe('choosing a container for a call to a model', () => {
  test('takes one with a free slot; the least loaded, or the preferred one within the slack and not the busiest', () => {
    fc.assert(
      fc.property(servers, fc.nat({ max: 8 }), random01, (list, index, random) => {
        const preferred = idOf(index);
        const chosen = chooseServing(list, CALL, preferred, () => random);
        const free = list.filter(hasRoom);
        expect(chosen === undefined).toBe(free.length === 0);
        if (chosen === undefined) return;
        expect(hasRoom(chosen)).toBe(true);
        const least = Math.min(...free.map(load));
        const others = list.filter((one) => one.accepting && one.containerId !== preferred);
        const held = free.find((one) => one.containerId === preferred);
        const mayHold =
          held !== undefined &&
          load(held) <= least + AFFINITY_SLACK &&
          (others.length === 0 || others.some((one) => load(one) >= load(held) - ONE));
        if (mayHold) expect(chosen).toBe(held);
        else expect(load(chosen)).toBe(least);
      }),
      { numRuns: stories(2_000) },
    );
  });

  test('reserved tokens and requests waiting in the engine count beside streams', () => {
    const few = aServer(0, { inFlight: 1, tokens: 5 * PER_STREAM });
    const many = aServer(1, { inFlight: 3 });
    expect(chooseServing([few, many], CALL, undefined, Math.random)).toBe(many);
    const stuck = aServer(2, { inFlight: 1, engineWaiting: 4 });
    expect(chooseServing([stuck, many], CALL, undefined, Math.random)).toBe(many);
  });

  test('a conversation returns to its container, leaves the busiest one, and never waits for a full one', () => {
    const all = [aServer(0, { inFlight: 1 }), aServer(1, { inFlight: 0 }), aServer(2, { inFlight: 1 })];
    expect(chooseServing(all, CALL, idOf(0), Math.random)).toBe(all[0]);
    // The last call of the conversation may not have ended yet.
    const ending = [aServer(0, { inFlight: 1, tokens: 500 }), aServer(1)];
    expect(chooseServing(ending, CALL, idOf(0), Math.random)).toBe(ending[0]);
    const busiest = [aServer(0, { inFlight: 3 }), aServer(1, { inFlight: 1 }), aServer(2, { inFlight: 1 })];
    expect(chooseServing(busiest, CALL, idOf(0), Math.random)).not.toBe(busiest[0]);
    const full = [aServer(0, { inFlight: 1, slots: 1 }), aServer(1, { inFlight: 3 })];
    expect(chooseServing(full, CALL, idOf(0), Math.random)).toBe(full[1]);
    const alone = aServer(0, { inFlight: 3 });
    expect(chooseServing([alone], CALL, idOf(0), Math.random)).toBe(alone);
  });
});

describe('memory of conversations', () => {
  const queue = 'tq-a' as QueueName;

  test('a container counts for ten minutes after its last call', () => {
    const affinities = new Affinities();
    affinities.served(queue, 'h', idOf(1), 0);
    expect(affinities.of(queue, 'h', AFFINITY_MS - 1)).toBe(idOf(1));
    affinities.served(queue, 'h', idOf(2), AFFINITY_MS - 1);
    expect(affinities.of(queue, 'h', AFFINITY_MS + 1)).toBe(idOf(2));
    expect(affinities.of(queue, 'h', 2 * AFFINITY_MS)).toBeUndefined();
    expect(affinities.countOf(queue)).toBe(0);
  });

  test('hashes and queues are bounded; the least recently used leave first', () => {
    const affinities = new Affinities(2, 3);
    for (const hash of ['a', 'b', 'c']) affinities.served(queue, hash, idOf(0), 0);
    affinities.of(queue, 'a', 1);
    affinities.served(queue, 'd', idOf(0), 1);
    expect(affinities.countOf(queue)).toBe(3);
    expect(affinities.of(queue, 'b', 1)).toBeUndefined();
    expect(affinities.of(queue, 'a', 1)).toBe(idOf(0));
    for (const name of ['tq-b', 'tq-c']) affinities.served(name as QueueName, 'a', idOf(0), 1);
    expect(affinities.countOf(queue)).toBe(0);
  });
});
