// Status values both daemons and every surface share (wire spellings).

export const TASK_STATUSES = [
  'PENDING',
  'RUNNING',
  'RETRY',
  'COMPLETE',
  'ERROR',
  'CANCELLED',
  'TIMEOUT',
  'EXPIRED',
] as const;
export type TaskStatus = (typeof TASK_STATUSES)[number];
const TERMINAL: ReadonlySet<string> = new Set(['COMPLETE', 'ERROR', 'CANCELLED', 'TIMEOUT', 'EXPIRED']);
export const isTerminalTask = (status: TaskStatus): boolean => TERMINAL.has(status);

/** Internal container states; their moves: scheduler/containers/state.ts. */
export const CONTAINER_STATES = [
  'PENDING',
  'ASSIGNED',
  'STARTING',
  'RUNNING',
  'DRAINING',
  'STOPPING',
  'UNKNOWN',
  'STOPPED',
  'FAILED',
  'LOST',
] as const;
export type ContainerState = (typeof CONTAINER_STATES)[number];
export const isTerminalContainer = (state: ContainerState): boolean =>
  state === 'STOPPED' || state === 'FAILED' || state === 'LOST';

export type StubKind =
  | 'endpoint'
  | 'asgi'
  | 'taskqueue'
  | 'function'
  | 'schedule'
  | 'pod'
  | 'bot'
  | 'container'
  | 'shell'
  | 'sandbox';
/** The part before `/` of a stub type. */
export const kindOf = (stubType: string): string => stubType.split('/', 1)[0] ?? stubType;
