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
export const FINAL_TASK_STATUSES = ['COMPLETE', 'ERROR', 'CANCELLED', 'TIMEOUT', 'EXPIRED'] as const;
const TERMINAL: ReadonlySet<string> = new Set(FINAL_TASK_STATUSES);
export const isTerminalTask = (status: TaskStatus): boolean => TERMINAL.has(status);

/** Internal container states; scheduler/fleet/containers/state.ts has their transitions. */
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

const LIVE: ReadonlySet<ContainerState> = new Set(['PENDING', 'ASSIGNED', 'STARTING', 'RUNNING']);
/**
 * Whether a container in that state counts as capacity. Pending and
 * starting ones do; those that leave, or are on a lost machine, do not.
 */
export const isLiveContainer = (state: ContainerState): boolean => LIVE.has(state);

/** Phases of a container on an agent, as its reports and its page show them. */
export const CONTAINER_PHASES = [
  'accepted',
  'pulling',
  'creating',
  'starting',
  'running',
  'stopping',
  'exited',
  'removed',
] as const;
export type ContainerPhase = (typeof CONTAINER_PHASES)[number];

export const STUB_KINDS = [
  'endpoint',
  'asgi',
  'taskqueue',
  'function',
  'schedule',
  'pod',
  'bot',
  'container',
  'shell',
  'sandbox',
] as const;
export type StubKind = (typeof STUB_KINDS)[number];
/** Kind of a task: that of its stub, or a call of a model, which has no stub. */
export type TaskKind = StubKind | 'model';
/** The part before `/` of a stub type. */
export const kindOf = (stubType: string): string => stubType.split('/', 1)[0] ?? stubType;

/** Kinds that a development server serves. */
export const SERVED_KINDS = ['endpoint', 'asgi', 'taskqueue', 'function'] as const;
/** Whether stubs of that type are served by a development server. */
export const isServe = (stubType: string): boolean => SERVED_KINDS.some((kind) => stubType === `${kind}/serve`);
