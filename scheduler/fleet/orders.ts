import type { ContainerState } from '#shared/domain/status.ts';
import type { Assignment } from '#shared/protocol/generated/messages.ts';
import type { BookEntry } from '../containers/book.ts';
import type { ContainerRow } from '../store/queries/containers.ts';

/** Whether that move asks something else of the agent than before: most only say how far it has come. */
export function isNewOrder(before: ContainerRow | null, row: ContainerRow): boolean {
  return (
    before === null ||
    orderOf(before.state) !== orderOf(row.state) ||
    before.machineId !== row.machineId ||
    before.assignmentId !== row.assignmentId ||
    before.epoch !== row.epoch
  );
}

function orderOf(state: ContainerState): 'run' | 'stop' | 'nothing' {
  switch (state) {
    case 'ASSIGNED':
    case 'STARTING':
    case 'RUNNING':
    case 'DRAINING':
    case 'UNKNOWN':
      return 'run';
    case 'STOPPING':
      return 'stop';
    case 'PENDING':
    case 'STOPPED':
    case 'FAILED':
    case 'LOST':
      return 'nothing';
  }
}

/** What the agent should do about one container; undefined: nothing, it should not be there. */
export function assignmentOf(entry: BookEntry, stopGraceMs: number): Assignment | undefined {
  const { row, spec } = entry;
  const base = {
    assignmentId: row.assignmentId ?? '',
    containerId: row.id,
    epoch: row.epoch,
    spec: { ...spec.wire, gpuUuids: [...row.gpuUuids] },
  };
  switch (orderOf(row.state)) {
    case 'run':
      return { ...base, stop: false };
    case 'stop':
      return { ...base, stop: true, graceMs: stopGraceMs, stopReason: row.reason ?? 'scaled_in' };
    case 'nothing':
      return undefined;
  }
}
