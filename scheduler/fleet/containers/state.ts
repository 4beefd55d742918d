import type { ContainerState } from '#shared/domain/status.ts';

// Internal states of a container. Every pair that is not listed is refused, counted and logged. An event whose target
// is the present state is success. `frozen` is not a state. UNKNOWN keeps the state before in `stateBefore`.
export const CONTAINER_TRANSITIONS = {
  PENDING: { assign: 'ASSIGNED', abandon: 'STOPPED', give_up: 'FAILED' },
  ASSIGNED: { ack: 'STARTING', revoke: 'PENDING', abandon: 'STOPPED' },
  STARTING: {
    ready: 'RUNNING',
    retry: 'PENDING',
    fail: 'FAILED',
    stop: 'STOPPING',
    machine_lost: 'UNKNOWN',
    delete: 'LOST',
  },
  RUNNING: {
    drain: 'DRAINING',
    stop: 'STOPPING',
    exit: 'STOPPED',
    fail: 'FAILED',
    machine_lost: 'UNKNOWN',
    delete: 'LOST',
  },
  DRAINING: {
    undrain: 'RUNNING',
    stop: 'STOPPING',
    exit: 'STOPPED',
    fail: 'FAILED',
    machine_lost: 'UNKNOWN',
    delete: 'LOST',
  },
  STOPPING: { gone: 'STOPPED', machine_lost: 'UNKNOWN', delete: 'LOST' },
  UNKNOWN: {
    back_starting: 'STARTING',
    back_running: 'RUNNING',
    stop: 'STOPPING',
    exit: 'STOPPED',
    fail: 'FAILED',
    gone: 'STOPPED',
    expire: 'LOST',
    delete: 'LOST',
  },
  STOPPED: {},
  FAILED: {},
  LOST: {},
} as const satisfies Record<ContainerState, Readonly<Record<string, ContainerState>>>;

type Table = typeof CONTAINER_TRANSITIONS;
export type ContainerEvent = { [State in keyof Table]: keyof Table[State] }[keyof Table];

export type Transition =
  | { readonly kind: 'moved'; readonly to: ContainerState }
  /** The container was in that state already: repeating a transition is success. */
  | { readonly kind: 'already' }
  | { readonly kind: 'refused' };

export function containerTransition(from: ContainerState, event: ContainerEvent): Transition {
  const row: Readonly<Record<string, ContainerState>> = CONTAINER_TRANSITIONS[from];
  const to = row[event];
  if (to !== undefined) return { kind: 'moved', to };
  const alreadyThere = Object.values<Readonly<Record<string, ContainerState>>>(CONTAINER_TRANSITIONS).some(
    (candidates) => candidates[event] === from,
  );
  return alreadyThere ? { kind: 'already' } : { kind: 'refused' };
}

/** The state that surfaces show: PENDING, RUNNING or STOPPING; undefined: no longer listed. */
export function publicStatus(
  state: ContainerState,
  before: ContainerState | null,
): 'PENDING' | 'RUNNING' | 'STOPPING' | undefined {
  switch (state) {
    case 'PENDING':
    case 'ASSIGNED':
    case 'STARTING':
      return 'PENDING';
    case 'RUNNING':
      return 'RUNNING';
    case 'DRAINING':
    case 'STOPPING':
      return 'STOPPING';
    case 'UNKNOWN':
      return before === null || before === 'UNKNOWN' ? 'PENDING' : publicStatus(before, null);
    case 'STOPPED':
    case 'FAILED':
    case 'LOST':
      return undefined;
  }
}
