import { ENGINE_CANNOT_START } from '#shared/domain/conditions.ts';
import type { ContainerState } from '#shared/domain/status.ts';
import type { ObservedContainer__Output } from '#shared/protocol/generated/messages.ts';
import type { ContainerEvent } from './containers/state.ts';
import type { ContainerChange } from '../stores/store/queries/container-moves.ts';

export interface ObservedStep {
  readonly event: ContainerEvent;
  readonly change: ContainerChange;
}

/** Failures of a start that would repeat elsewhere: their cause is the user's, so they are not retried. */
export const USER_CAUSES: ReadonlySet<string> = new Set([
  'user_error',
  'image_error',
  'start_timeout',
  'oom',
  'completed',
  'timeout',
  'protocol_violation',
  'disk_limit',
  'gpu_driver',
  'registry_unreachable',
]);
/**
 * Causes that another machine may not have: they are the user's, yet the start is tried elsewhere first. Here is how
 * often in all. A name of a registry that is misspelt is told within seconds, because each machine asks twice itself.
 */
const MACHINES_DIFFER: ReadonlyMap<string, number> = new Map([
  ['gpu_driver', 3],
  ['registry_unreachable', 2],
]);
export const isUserCause = (reason: string): boolean => USER_CAUSES.has(reason);
const MAX_START_FAILURES = 3;
const mostStarts = (reason: string): number =>
  MACHINES_DIFFER.get(reason) ?? (isUserCause(reason) ? 1 : MAX_START_FAILURES);
/** Most slots that an agent may report: more than any stub may ask for, and within the column. */
const MOST_SLOTS = 1_000_000;

/** A container's row as far as an agent's report may move it. */
export interface ObservedEntry {
  readonly state: ContainerState;
  /** State before UNKNOWN, as far as this scheduler knows. */
  readonly stateBefore: ContainerState | null;
  readonly startFailures: number;
  /** Reason of the ordered stop. */
  readonly reason?: string | null;
}

/**
 * Steps that an agent's report about one container means for its row, given the row's state. The caller has compared
 * the epochs. Pure. The moves themselves: containers/state.ts.
 */
export function stepsFor(entry: ObservedEntry, observed: ObservedContainer__Output): readonly ObservedStep[] {
  switch (observed.phase) {
    case 'running':
      return whenRunning(entry, observed);
    case 'exited':
      return whenExited(entry, observed);
    case 'removed':
      return entry.state === 'STOPPING'
        ? [{ event: 'gone', change: endAsTold(entry, observed) }]
        : whenExited(entry, observed);
    case 'stopping':
      return entry.state === 'UNKNOWN' ? [{ event: 'stop', change: {} }] : [];
    default:
      if (entry.state !== 'UNKNOWN') return [];
      return [{ event: entry.stateBefore === 'STOPPING' ? 'stop' : 'back_starting', change: {} }];
  }
}

/** Steps for a container that the machine should have and does not: it left nothing there. */
export function stepsWhenAbsent(entry: Pick<ObservedEntry, 'state' | 'startFailures'>): readonly ObservedStep[] {
  switch (entry.state) {
    case 'STOPPING':
      return [{ event: 'gone', change: {} }];
    case 'STARTING':
      return entry.startFailures + 1 < MAX_START_FAILURES
        ? [{ event: 'retry', change: unassigned(entry.startFailures) }]
        : [{ event: 'fail', change: { reason: 'lost' } }];
    case 'RUNNING':
    case 'DRAINING':
    case 'UNKNOWN':
      return [{ event: 'fail', change: { reason: 'lost', message: 'the container is not on its machine any more' } }];
    case 'PENDING':
    case 'ASSIGNED':
    case 'STOPPED':
    case 'FAILED':
    case 'LOST':
      return [];
  }
}

/** Steps after a boot of the machine: no container from before it runs there, in any state. */
export function stepsAfterReboot(entry: Pick<ObservedEntry, 'state' | 'startFailures'>): readonly ObservedStep[] {
  switch (entry.state) {
    case 'ASSIGNED':
      return [{ event: 'revoke', change: { machineId: null, assignmentId: null } }];
    case 'STARTING':
    case 'RUNNING':
    case 'DRAINING':
    case 'UNKNOWN':
      return [{ event: 'fail', change: { reason: 'host_reboot', message: 'its machine was booted again' } }];
    case 'STOPPING':
      return [{ event: 'gone', change: {} }];
    case 'PENDING':
    case 'STOPPED':
    case 'FAILED':
    case 'LOST':
      return [];
  }
}

function whenRunning(entry: ObservedEntry, observed: ObservedContainer__Output): readonly ObservedStep[] {
  const ready: ObservedStep = {
    event: 'ready',
    change: { startedAtMs: observed.startedAtMs || Date.now(), message: null, ...slotsField(observed) },
  };
  switch (entry.state) {
    case 'ASSIGNED':
      return [{ event: 'ack', change: {} }, ready];
    case 'STARTING':
      return [ready];
    case 'UNKNOWN':
      // The container was being stopped when its machine was lost: the agent is told again.
      return entry.stateBefore === 'STOPPING'
        ? [{ event: 'stop', change: {} }]
        : [{ event: 'back_running', change: slotsField(observed) }];
    case 'PENDING':
    case 'RUNNING':
    case 'DRAINING':
    case 'STOPPING':
    case 'STOPPED':
    case 'FAILED':
    case 'LOST':
      return [];
  }
}

/** The slots of a runner that cannot fork: fewer than its stub asked for. Other replicas count the slots in the row. */
const slotsField = ({ slots }: ObservedContainer__Output): Pick<ContainerChange, 'slots'> =>
  slots > 0 ? { slots: Math.min(slots, MOST_SLOTS) } : {};

function whenExited(
  entry: Pick<ObservedEntry, 'state' | 'startFailures'>,
  observed: ObservedContainer__Output,
): readonly ObservedStep[] {
  switch (entry.state) {
    case 'ASSIGNED':
      return [{ event: 'revoke', change: unassigned(entry.startFailures) }];
    case 'STARTING':
      // An engine that starts nothing reports this as a condition of its machine,
      // which gets nothing new. The reason says nothing about the container.
      if (observed.reason === ENGINE_CANNOT_START)
        return [{ event: 'retry', change: { machineId: null, assignmentId: null } }];
      return entry.startFailures + 1 >= mostStarts(observed.reason)
        ? [{ event: 'fail', change: { message: null, ...endOf(observed) } }]
        : [{ event: 'retry', change: { ...unassigned(entry.startFailures), ...messageOf(observed) } }];
    case 'RUNNING':
    case 'DRAINING':
    case 'UNKNOWN':
      return [{ event: endedWell(observed) ? 'exit' : 'fail', change: endOf(observed) }];
    case 'STOPPING':
    case 'PENDING':
    case 'STOPPED':
    case 'FAILED':
    case 'LOST':
      return [];
  }
}

/** Reasons for which the agent or its engine ends a container. Exit code 0 is then no success: it only obeyed. */
const ENDED_BY_AGENT: ReadonlySet<string> = new Set([
  'gpu_fault',
  'protocol_violation',
  'disk_limit',
  'engine_restarted',
  'killed',
]);
const endedWell = ({ exitCode, oomKilled, reason }: ObservedContainer__Output): boolean =>
  exitCode === 0 && !oomKilled && !ENDED_BY_AGENT.has(reason);

const unassigned = (startFailures: number): ContainerChange => ({
  machineId: null,
  assignmentId: null,
  startFailures: startFailures + 1,
});

/**
 * Change at the end of a container. The reason of an ordered stop stays,
 * because an agent that restarted in the middle does not know it.
 */
const endAsTold = ({ reason }: ObservedEntry, observed: ObservedContainer__Output): ContainerChange =>
  reason === undefined || reason === null || reason === '' ? endOf(observed) : { exitCode: observed.exitCode };

function endOf(observed: ObservedContainer__Output): ContainerChange {
  return {
    exitCode: observed.exitCode,
    ...(observed.reason === '' ? {} : { reason: observed.reason }),
    ...messageOf(observed),
  };
}

/** The agent's sentence, also of a start that is tried elsewhere: `explain` tells why it failed, until it succeeds. */
const messageOf = ({ message }: ObservedContainer__Output): Pick<ContainerChange, 'message'> =>
  message === '' ? {} : { message: message.slice(-16_384) };
