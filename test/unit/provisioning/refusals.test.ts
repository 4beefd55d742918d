import { expect, test } from 'vitest';
import type { MachineId, QueueName } from '#shared/domain/ids.ts';
import { HOLDS_MS, LONGEST_MS, Refusals } from '#scheduler/control/provisioning/refusals.ts';

const NOW = 1_000_000;
const [queue, other] = ['tq-1', 'tq-2'] as QueueName[] as [QueueName, QueueName];
const [first, second] = ['m-1', 'm-2'] as MachineId[] as [MachineId, MachineId];
const isThere = (): boolean => true;
const isGone = (): boolean => false;

test('a refusal by one machine ends after ten minutes, and with that machine', () => {
  const refusals = new Refusals();
  expect(refusals.note(1, queue, first, NOW)).toBe(true);
  expect([...refusals.of(1, isThere, NOW + HOLDS_MS - 1)]).toEqual([queue]);
  expect([...refusals.of(1, isThere, NOW + HOLDS_MS)]).toEqual([]);
  expect([...refusals.of(1, isGone, NOW)]).toEqual([]);
  expect([...refusals.of(2, isThere, NOW)]).toEqual([]);
});

test('each further machine doubles the time up to four hours, and the same one does not', () => {
  const refusals = new Refusals();
  refusals.note(1, queue, first, NOW);
  expect(refusals.note(1, queue, first, NOW + HOLDS_MS)).toBe(false);
  expect([...refusals.of(1, isThere, NOW + 2 * HOLDS_MS)]).toEqual([]);
  const machines = Array.from({ length: 8 }, (_none, index) => `n-${index}` as MachineId);
  const held = machines.map((machine) => {
    refusals.note(1, queue, machine, NOW);
    let ms = HOLDS_MS;
    while (refusals.of(1, isGone, NOW + ms).has(queue)) ms += HOLDS_MS;
    return ms / HOLDS_MS;
  });
  expect(held).toEqual([2, 4, 8, 16, ...machines.slice(4).map(() => LONGEST_MS / HOLDS_MS)]);
});

test('a container that is taken, and a change of the pool, end it; time has it forgotten', () => {
  const refusals = new Refusals();
  for (const one of [queue, other]) for (const machine of [first, second]) refusals.note(1, one, machine, NOW);
  refusals.taken(1, queue);
  expect([[...refusals.of(1, isThere, NOW)], refusals.has(1, queue), refusals.has(1, other)]).toEqual([
    [other],
    false,
    true,
  ]);
  refusals.of(1, isThere, NOW + 2 * HOLDS_MS + LONGEST_MS);
  expect(refusals.has(1, other)).toBe(false);
  refusals.note(1, other, first, NOW);
  refusals.delete(1);
  expect([...refusals.of(1, isThere, NOW)]).toEqual([]);
});
