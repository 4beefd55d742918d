import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { ContainerId, MachineId, QueueName } from '#shared/domain/ids.ts';
import type { Candidate } from '#scheduler/tasks/dispatch/choose.ts';
import { chooseContainer } from '#scheduler/tasks/dispatch/choose.ts';
import type { TaskLink } from '#scheduler/tasks/dispatch/slots.ts';
import { SlotTable } from '#scheduler/tasks/dispatch/slots.ts';
import { stories } from '../../helpers/stories.ts';

const candidates: fc.Arbitrary<readonly Candidate[]> = fc
  .array(fc.record({ slots: fc.integer({ min: 1, max: 4 }), inFlight: fc.nat({ max: 5 }), accepting: fc.boolean() }), {
    maxLength: 10,
  })
  .map((list) => list.map((one, index) => ({ ...one, containerId: `c-${index}` as ContainerId })));
const hasRoom = (one: Candidate): boolean => one.accepting && one.inFlight < one.slots;

describe('choosing a container', () => {
  test('takes one that accepts, has a free slot, and has the fewest in flight; none only when there is none', () => {
    fc.assert(
      fc.property(candidates, fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }), (list, random) => {
        const chosen = chooseContainer(list, () => random);
        const free = list.filter(hasRoom);
        expect(chosen === undefined).toBe(free.length === 0);
        if (chosen === undefined) return;
        expect(hasRoom(chosen)).toBe(true);
        expect(chosen.inFlight).toBe(Math.min(...free.map((one) => one.inFlight)));
      }),
      { numRuns: stories(2_000) },
    );
  });

  test('spreads ties evenly', () => {
    const list = [0, 1, 2, 3].map((index) => ({
      containerId: `c-${index}` as ContainerId,
      slots: 1,
      inFlight: 0,
      accepting: true,
    }));
    const counts = new Map<string, number>();
    for (let index = 0; index < 4000; index += 1) {
      const id = chooseContainer(list, Math.random)?.containerId ?? '';
      counts.set(id, (counts.get(id) ?? 0) + 1);
    }
    for (const one of list) expect(counts.get(one.containerId)).toBeGreaterThan(800);
  });
});

describe('the table of slots', () => {
  const queue = 'tq-a' as QueueName;
  const facts = { containerId: 'c' as ContainerId, queue, machineId: 'm' as MachineId, slots: 2 };
  const link: TaskLink = {
    machineId: facts.machineId,
    agentInstance: 'i',
    sessionEpoch: 1,
    run: () => true,
    cancel: () => undefined,
    acked: () => undefined,
  };

  test('a container takes tasks only while its machine’s stream lives', () => {
    const table = new SlotTable();
    const container = table.ready(facts, undefined, 0);
    expect(container.accepting).toBe(false);
    expect(table.setLink(facts.machineId, link)).toEqual([queue]);
    expect(container.accepting).toBe(true);
    table.setLink(facts.machineId, undefined);
    expect(container.accepting).toBe(false);
  });

  test('one that leaves accepts nothing, also when its machine’s stream comes back', () => {
    const table = new SlotTable();
    const container = table.ready(facts, link, 0);
    table.leave(facts.containerId);
    table.setLink(facts.machineId, undefined);
    table.setLink(facts.machineId, link);
    expect(table.ready(facts, link, 1)).toBe(container);
    expect(container.accepting).toBe(false);
    expect(table.hasReady(queue)).toBe(false);
    table.stay(facts.containerId);
    expect(container.accepting).toBe(true);
  });

  test('one that is reported ready again keeps what it works on', () => {
    const table = new SlotTable();
    table.ready(facts, link, 0).inFlight = 2;
    expect(table.ready(facts, link, 5).inFlight).toBe(2);
  });

  test('one whose processes start again has fewer slots meanwhile, none if it must be, and all afterwards', () => {
    const table = new SlotTable();
    const container = table.ready(facts, link, 0);
    container.inFlight = 1;
    const chosen = (slots: number) => {
      expect(table.ready({ ...facts, slots }, link, 1)).toBe(container);
      return chooseContainer(table.of(queue), () => 0);
    };
    expect(chosen(1)).toBeUndefined();
    expect(chosen(0)).toBeUndefined();
    expect(chosen(2)).toBe(container);
    expect(container.inFlight).toBe(1);
  });

  test('one that went is in no list any more', () => {
    const table = new SlotTable();
    const container = table.ready(facts, link, 0);
    table.remove(facts.containerId);
    expect([...table.of(queue)]).toEqual([]);
    expect([...table.queues()]).toEqual([]);
    expect(container.accepting).toBe(false);
    expect(table.setLink(facts.machineId, link)).toEqual([]);
  });
});
