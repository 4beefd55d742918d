import { expect, test } from 'vitest';
import type { MachineId } from '#shared/domain/ids.ts';
import type { ContainerState } from '#shared/domain/status.ts';
import type { ContainerEntry } from '#scheduler/fleet/containers/container-entry.ts';
import { CONTAINER_TRANSITIONS } from '#scheduler/fleet/containers/state.ts';
import { assignmentOf, isNewOrder, ordersFor } from '#scheduler/fleet/orders.ts';
import type { ContainerRow } from '#scheduler/stores/store/queries/containers.ts';

const TIMES = { stopGraceMs: 0, noticeMs: () => 20_000 };
const STATES = Object.keys(CONTAINER_TRANSITIONS) as ContainerState[];
const rowIn = (state: ContainerState, changes: Partial<ContainerRow> = {}): ContainerRow => {
  const machineId = 'm' as MachineId;
  const row = { id: 'c', state, machineId, assignmentId: 'a', epoch: 1, gpuUuids: [], reason: null, ...changes };
  return row as unknown as ContainerRow;
};
const orderOf = (row: ContainerRow): unknown =>
  assignmentOf({ row, spec: { wire: {} } } as unknown as ContainerEntry, TIMES);

test('an agent is told again exactly when a move changes what it is asked for', () => {
  for (const from of STATES) {
    for (const to of STATES) {
      const [before, after] = [rowIn(from), rowIn(to)];
      const differs = JSON.stringify(orderOf(before)) !== JSON.stringify(orderOf(after));
      expect(isNewOrder(before, after), `${from} to ${to}`).toBe(differs);
    }
  }
});

test('another machine, assignment or epoch is another order; so is a container that was not known', () => {
  const row = rowIn('ASSIGNED');
  expect(isNewOrder(row, rowIn('STARTING'))).toBe(false);
  for (const changes of [{ machineId: 'n' as MachineId }, { assignmentId: 'b' }, { epoch: 2 }])
    expect(isNewOrder(row, rowIn('ASSIGNED', changes)), JSON.stringify(changes)).toBe(true);
  expect(isNewOrder(null, row)).toBe(true);
});

test('a container that leaves for another one is another order, with the notice of its tasks, and so is one that stays after all', () => {
  const [running, leaving] = [rowIn('RUNNING'), rowIn('DRAINING', { reason: 'preempted' })];
  expect(isNewOrder(running, leaving)).toBe(true);
  expect(isNewOrder(leaving, running)).toBe(true);
  expect(isNewOrder(running, rowIn('DRAINING', { reason: 'drained' }))).toBe(false);
  expect(orderOf(leaving)).toMatchObject({ stop: false, interruptMs: 20_000 });
  expect(orderOf(running)).not.toHaveProperty('interruptMs');
  // A notice of no time is a notice all the same.
  const entry = { row: leaving, spec: { wire: {} } } as unknown as ContainerEntry;
  expect(assignmentOf(entry, { ...TIMES, noticeMs: () => -5 })).toMatchObject({ interruptMs: 1 });
});

test('other network rules are another order', () => {
  const rulesOf = (networkVersion: number): ContainerRow => rowIn('RUNNING', { spec: { wire: { networkVersion } } });
  const first = rulesOf(1);
  expect(isNewOrder(first, rulesOf(2))).toBe(true);
  expect(isNewOrder(first, rulesOf(1))).toBe(false);
  expect(isNewOrder(first, { ...first, slots: 2 })).toBe(false);
});

test('a snapshot has room for what its agent takes in one message: what runs is always in it, what was only assigned may be too much', () => {
  const entryOf = (id: string, state: ContainerState, bytes: number): ContainerEntry => {
    const row = { ...rowIn(state), id };
    return { row, spec: { wire: { env: { BIG: 'x'.repeat(bytes) } } } } as unknown as ContainerEntry;
  };
  const entries = [
    entryOf('a', 'ASSIGNED', 300_000),
    entryOf('b', 'RUNNING', 500_000),
    entryOf('c', 'ASSIGNED', 300_000),
    entryOf('d', 'STOPPING', 10),
    entryOf('e', 'ASSIGNED', 10),
  ];
  const { assignments, tooMany } = ordersFor(entries, TIMES, 1_000_000);
  expect(assignments.map(({ containerId }) => containerId)).toEqual(['a', 'b', 'd', 'e']);
  expect(tooMany.map(({ row }) => row.id)).toEqual(['c']);
  expect(JSON.stringify(assignments).length).toBeLessThan(1_000_000);
  // An existing container is never left out, at any total size.
  expect(ordersFor([entryOf('a', 'RUNNING', 2_000_000)], TIMES, 1_000_000).assignments).toHaveLength(1);
});
