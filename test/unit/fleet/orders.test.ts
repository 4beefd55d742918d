import { expect, test } from 'vitest';
import type { MachineId } from '#shared/domain/ids.ts';
import type { ContainerState } from '#shared/domain/status.ts';
import type { BookEntry } from '#scheduler/containers/book.ts';
import { CONTAINER_TRANSITIONS } from '#scheduler/containers/state.ts';
import { assignmentOf, isNewOrder } from '#scheduler/fleet/orders.ts';
import type { ContainerRow } from '#scheduler/store/queries/containers.ts';

const STATES = Object.keys(CONTAINER_TRANSITIONS) as ContainerState[];
const rowIn = (state: ContainerState, changes: Partial<ContainerRow> = {}): ContainerRow => {
  const machineId = 'm' as MachineId;
  const row = { id: 'c', state, machineId, assignmentId: 'a', epoch: 1, gpuUuids: [], reason: null, ...changes };
  return row as unknown as ContainerRow;
};
const orderOf = (row: ContainerRow): unknown => assignmentOf({ row, spec: { wire: {} } } as unknown as BookEntry, 0);

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
