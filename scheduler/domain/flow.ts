// Flow control of tasks. A deployment bounds the tasks of one key, and a limit bounds tasks of all deployments of the
// workspace that name it. Counted are tasks that run, and those that a free slot would take. A throttle spaces the
// starts of a key, and a rate refuses calls. The caller gives the key, or it is a field of the input. Pure.
import type { QueueName, WorkspaceId } from '#shared/domain/ids.ts';
import { isRecord } from '#shared/json.ts';
import type { FlowConfig, Pace } from './flow-settings.ts';
import { keyProblem, MOST_HEAD_START_S } from './flow-settings.ts';

/** Flow control of a task, in its job. */
export interface TaskFlow {
  /** The key; empty: that of calls without one. */
  readonly key: string;
  /** Most tasks of the key that run or are handed to the queue. Absent: any number. */
  readonly most?: number;
  /** As {@link FlowConfig.limits}. */
  readonly limits?: Readonly<Record<string, number>>;
  /** Least milliseconds between two starts of the key. Absent: tasks start as they may. */
  readonly everyMs?: number;
  /** Epoch milliseconds of its turn under the throttle: the task is not ready before. Absent: at once. */
  readonly atMs?: number;
  /** Whether the start at `atMs` is this task's alone. Absent: it asks at its fetch. */
  readonly isDue?: boolean;
  /** Head start in its queue, seconds. Absent: the queue has no priorities. */
  readonly headStart?: number;
  /** Whether `atMs` is when no further call of the key is awaited: until then its input may be replaced. */
  readonly isGathered?: boolean;
  /** The value that takes turns with others, and its turns for one of theirs. Absent: tasks begin in order. */
  readonly fair?: { readonly key: string; readonly weight: number };
  /** Place among the turns, as the queue gave it. Absent: none yet. */
  readonly turn?: number;
}

/** Control of a queue by an operator (docs/flow.md). */
export interface QueueControl {
  /** Whether nothing begins. */
  readonly paused: boolean;
  /** Most tasks that run at a time; null: any number. */
  readonly limit: number | null;
}

/** Something that counts tasks, and the most that may have a slot of it. */
export type Control = readonly [name: string, most: number];

/** Prefix of the controls of all keys of a queue. */
export const keysOfQueue = (queue: QueueName): string => `key:${queue}:`;

/** Control of a limit of a workspace. */
export const limitControl = (workspaceId: WorkspaceId, name: string): string => `limit:${workspaceId}:${name}`;

/** Prefix of the throttles of all keys of a queue. */
export const throttlesOfQueue = (queue: QueueName): string => `throttle:${queue}:`;

/** The rate of a key of a queue. */
export const rateControl = (queue: QueueName, key: string): string => `rate:${queue}:${key}`;

/** The controls of a task. Limits come first: a slot of one goes to the task that waits longest, of any key. */
export const controlsOf = (queue: QueueName, workspaceId: WorkspaceId, flow: TaskFlow): readonly Control[] => [
  ...Object.entries(flow.limits ?? {}).map(([name, most]) => [limitControl(workspaceId, name), most] as const),
  ...(flow.most === undefined ? [] : [[`${keysOfQueue(queue)}${flow.key}`, flow.most] as const]),
];

/** Kind of a control, for metrics. */
export const kindOfControl = (control: string): 'concurrency' | 'limit' =>
  control.startsWith('key:') ? 'concurrency' : 'limit';

/** The key or the name of a limit that a control is for. */
export const keyOfControl = (control: string): string => control.split(':').slice(2).join(':');

/** Least milliseconds between two starts. */
export const everyMsOf = ({ count, perMs }: Pace): number => perMs / count;

/** Flow control as the headers of a call give it. */
export interface FlowCall {
  readonly key?: string;
  /** Head start in the queue, seconds. */
  readonly priority?: number;
}

/**
 * Flow control of a call.
 * @param given - of the call's headers
 * @param input - body of the call, a JSON object with the field, or with the inputs of a handler in `kwargs`
 * @returns a text: why the call is refused
 */
export function flowOf(config: FlowConfig | undefined, given: FlowCall, input: string): TaskFlow | string | undefined {
  if (config === undefined)
    return given.key === undefined
      ? undefined
      : 'the call has a key (X-Longshore-Key), and the deployment has no flow control';
  const key = keyOf(config, given.key, input);
  if ('why' in key) return key.why;
  const { fairKey, weights = {}, singleton, cancelsRunning, limits, throttle } = config;
  const fair = fairKey === undefined ? { key: '' } : keyIn(input, fairKey, config.fairPosition, 'turns');
  if ('why' in fair) return fair.why;
  // Without that, a task would begin beside the one that it may not cancel.
  const waitsForRunning = singleton === 'replace' && cancelsRunning !== true;
  const most = config.concurrency ?? (waitsForRunning ? 1 : undefined);
  const headStart = given.priority ?? config.priority;
  return {
    key: key.key,
    ...(most === undefined ? {} : { most }),
    ...(limits === undefined ? {} : { limits }),
    ...(throttle === undefined ? {} : { everyMs: everyMsOf(throttle) }),
    ...(headStart === undefined ? {} : { headStart }),
    ...(fairKey === undefined
      ? {}
      : { fair: { key: fair.key, weight: Object.hasOwn(weights, fair.key) ? (weights[fair.key] ?? 1) : 1 } }),
  };
}

/** Why the priority of a call cannot be used; undefined: it can, or the call has none. */
export function priorityProblem(config: FlowConfig | undefined, priority: number | undefined): string | undefined {
  if (priority === undefined) return undefined;
  if (config?.priority === undefined)
    return 'the call has a priority (X-Longshore-Priority), and the deployment has none: Flow(priority=0) lets calls have their own';
  return Math.abs(priority) <= MOST_HEAD_START_S ? undefined : PRIORITY_PROBLEM;
}

export const PRIORITY_PROBLEM = `X-Longshore-Priority must be whole seconds from -${MOST_HEAD_START_S} to ${MOST_HEAD_START_S}`;

/** The key of a call; `why`: it has none that can be used. */
function keyOf(
  config: FlowConfig,
  given: string | undefined,
  input: string,
): { readonly key: string } | { readonly why: string } {
  if (given !== undefined) {
    const problem = keyProblem(given);
    return problem === undefined ? { key: given } : { why: `X-Longshore-Key ${problem}` };
  }
  return config.key === undefined ? { key: '' } : keyIn(input, config.key, config.position, 'key');
}

/** The value of a field as a key. @param purpose - of the field, for the refusal */
function keyIn(
  input: string,
  name: string,
  position: number | undefined,
  purpose: 'key' | 'turns',
): { readonly key: string } | { readonly why: string } {
  const found = fieldOf(input, name, position);
  const key = typeof found === 'number' || typeof found === 'boolean' ? String(found) : found;
  const field = JSON.stringify(name);
  if (typeof key !== 'string') {
    const what = purpose === 'key' ? "is the key of the deployment's flow control" : 'takes turns in the queue';
    return { why: `the input has no field ${field} with a text or a number, which ${what}` };
  }
  const problem = keyProblem(key);
  return problem === undefined ? { key } : { why: `the field ${field} ${problem}` };
}

function fieldOf(input: string, field: string, position: number | undefined): unknown {
  let body: unknown;
  try {
    body = input === '' ? {} : JSON.parse(input);
  } catch {
    return undefined;
  }
  if (!isRecord(body)) return undefined;
  if (Object.hasOwn(body, field)) return body[field];
  const { args, kwargs } = body;
  if (isRecord(kwargs) && Object.hasOwn(kwargs, field)) return kwargs[field];
  return position !== undefined && Array.isArray(args) ? args[position] : undefined;
}
