import type { ContainerId } from '#shared/domain/ids.ts';
import type { ContainerState } from '#shared/domain/status.ts';
import type { Assignment } from '#shared/protocol/generated/messages.ts';
import type { ContainerEntry } from './containers/container-entry.ts';
import type { ContainerRow } from '../stores/store/queries/containers.ts';
import { isPreempted, networkOf } from './containers/spec.ts';

/** Whether that move changes the agent's orders: most moves only record its progress. */
export function isNewOrder(before: ContainerRow | null, row: ContainerRow): boolean {
  return (
    before === null ||
    orderOf(before.state) !== orderOf(row.state) ||
    before.machineId !== row.machineId ||
    before.assignmentId !== row.assignmentId ||
    before.epoch !== row.epoch ||
    isPreempted(before) !== isPreempted(row) ||
    // Moves keep the recipe; a row that was read again may have another.
    (before.spec !== row.spec && networkOf(before).version !== networkOf(row).version)
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

/** Times that containers have which end. */
export interface EndTimes {
  readonly stopGraceMs: number;
  /** Rest of the notice that tasks of a container get which ends for another one. */
  readonly noticeMs: (id: ContainerId) => number;
}

/** The agent's assignment for one container; undefined: the container should not be there. */
export function assignmentOf(entry: ContainerEntry, { stopGraceMs, noticeMs }: EndTimes): Assignment | undefined {
  const { row, spec } = entry;
  const base = {
    assignmentId: row.assignmentId ?? '',
    containerId: row.id,
    epoch: row.epoch,
    spec: { ...spec.wire, gpuUuids: [...row.gpuUuids] },
  };
  switch (orderOf(row.state)) {
    case 'run':
      return {
        ...base,
        stop: false,
        ...(isPreempted(row) ? { interruptMs: Math.max(1, Math.round(noticeMs(row.id))) } : {}),
      };
    case 'stop':
      return { ...base, stop: true, graceMs: stopGraceMs, stopReason: row.reason ?? 'scaled_in' };
    case 'nothing':
      return undefined;
  }
}

/** Bytes of a message beside its assignments; an upper bound. */
const FRAME_BYTES = 1024;
/** Bytes of an assignment beside its spec: ids, devices, a reason. */
const ASSIGNMENT_BYTES = 1024;
const specBytes = new WeakMap<object, number>();

/** Upper bound of an assignment's bytes on the wire: JSON repeats names, and the wire does not. */
function bytesOf({ spec }: ContainerEntry): number {
  let bytes = specBytes.get(spec.wire);
  if (bytes === undefined) specBytes.set(spec.wire, (bytes = Buffer.byteLength(JSON.stringify(spec.wire))));
  return bytes + ASSIGNMENT_BYTES;
}

/**
 * All assignments of a machine in one message, which must not be larger than its agent accepts.
 * Containers that the machine has already always stay in it, because the agent stops those missing
 * from a snapshot. Assigned ones that do not fit are returned as `tooMany`, to be given back.
 */
export function ordersFor(
  entries: Iterable<ContainerEntry>,
  times: EndTimes,
  mostBytes: number,
): { readonly assignments: Assignment[]; readonly tooMany: readonly ContainerEntry[] } {
  const all = [...entries];
  let left = mostBytes - FRAME_BYTES;
  for (const entry of all) if (entry.row.state !== 'ASSIGNED') left -= bytesOf(entry);
  const assignments: Assignment[] = [];
  const tooMany: ContainerEntry[] = [];
  for (const entry of all) {
    if (entry.row.state === 'ASSIGNED') {
      const bytes = bytesOf(entry);
      if (bytes > left) {
        tooMany.push(entry);
        continue;
      }
      left -= bytes;
    }
    const assignment = assignmentOf(entry, times);
    if (assignment !== undefined) assignments.push(assignment);
  }
  return { assignments, tooMany };
}
