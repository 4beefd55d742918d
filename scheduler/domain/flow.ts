// Flow control of asynchronous tasks. A deployment bounds the tasks of one key, and a limit bounds tasks of all
// deployments of the workspace that name it. Counted are tasks that run, and those that a free slot would take. The
// caller gives the key, or it is a field of the input. Pure.
import type { QueueName, WorkspaceId } from '#shared/domain/ids.ts';
import { isRecord } from '#shared/json.ts';

/** Settings of a stub, `extra.flow`. */
export interface FlowConfig {
  /** Most tasks of a key that run or are handed to the queue. Absent: any number. */
  readonly concurrency?: number;
  /** Field of the input that is the key. Absent: the call gives it, and calls without one share a key. */
  readonly key?: string;
  /** Place of that field among the positional inputs of a Python handler. Absent: it has none. */
  readonly position?: number;
  /** Limits that all deployments of the workspace share, by name, with the most tasks of each. Absent: none. */
  readonly limits?: Readonly<Record<string, number>>;
}

/** Flow control of a task, in its job. */
export interface TaskFlow {
  /** The key; empty: that of calls without one. */
  readonly key: string;
  /** Most tasks of the key that run or are handed to the queue. Absent: any number. */
  readonly most?: number;
  /** As {@link FlowConfig.limits}. */
  readonly limits?: Readonly<Record<string, number>>;
}

/** Something that counts tasks, and the most that may have a slot of it. */
export type Control = readonly [name: string, most: number];

export const MOST_KEY_CHARACTERS = 128;
const MOST_POSITION = 255;
export const MOST_LIMITS = 8;
export const MOST_CONCURRENCY = 100_000;

/** Text that cannot be a key: it is in names of Redis, in headers and in lists. */
// oxlint-disable-next-line no-control-regex -- they are refused
const UNFIT = /[\u0000-\u001F\u007F]/;

/** Fault of a key; undefined: it has none. */
export function keyProblem(key: string): string | undefined {
  if (key === '' || key.length > MOST_KEY_CHARACTERS || UNFIT.test(key))
    return `must have 1 to ${MOST_KEY_CHARACTERS} characters, and no control characters`;
  return undefined;
}

/** Prefix of the controls of all keys of a queue. */
export const keysOfQueue = (queue: QueueName): string => `key:${queue}:`;

/** Control of a limit of a workspace. */
export const limitControl = (workspaceId: WorkspaceId, name: string): string => `limit:${workspaceId}:${name}`;

/** The controls of a task. Limits come first: a slot of one goes to the task that waits longest, of any key. */
export const controlsOf = (queue: QueueName, workspaceId: WorkspaceId, flow: TaskFlow): readonly Control[] => [
  ...Object.entries(flow.limits ?? {}).map(([name, most]) => [limitControl(workspaceId, name), most] as const),
  ...(flow.most === undefined ? [] : [[`${keysOfQueue(queue)}${flow.key}`, flow.most] as const]),
];

/** Kind of a control, for metrics. */
export const kindOfControl = (control: string): string => (control.startsWith('key:') ? 'concurrency' : 'limit');

/** The key or the name of a limit that a control is for. */
export const keyOfControl = (control: string): string => control.split(':').slice(2).join(':');

/**
 * Flow control of a call.
 * @param given - key of the call; undefined: none
 * @param input - body of the call, a JSON object with the field, or with the inputs of a handler in `kwargs`
 * @returns a text: why the call is refused
 */
export function flowOf(
  config: FlowConfig | undefined,
  given: string | undefined,
  input: string,
): TaskFlow | string | undefined {
  if (config === undefined)
    return given === undefined
      ? undefined
      : 'the call has a key (X-Longshore-Key), and the deployment has no flow control';
  const { concurrency: most, limits } = config;
  const of = (key: string): TaskFlow => ({
    key,
    ...(most === undefined ? {} : { most }),
    ...(limits === undefined ? {} : { limits }),
  });
  if (given !== undefined) {
    const problem = keyProblem(given);
    return problem === undefined ? of(given) : `X-Longshore-Key ${problem}`;
  }
  if (config.key === undefined) return of('');
  const found = fieldOf(input, config.key, config.position);
  const key = typeof found === 'number' || typeof found === 'boolean' ? String(found) : found;
  if (typeof key !== 'string')
    return `the input has no field ${JSON.stringify(config.key)} with a text or a number, which is the key of the deployment's flow control`;
  const problem = keyProblem(key);
  return problem === undefined ? of(key) : `the field ${JSON.stringify(config.key)} ${problem}`;
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

const FIELDS = ['concurrency', 'key', 'position', 'limits'];

/** Reads `extra.flow` of a stub. @returns a text: why the stub is refused; undefined: it has no flow control */
export function readFlow(asked: unknown): FlowConfig | string | undefined {
  if (asked === undefined || asked === null) return undefined;
  if (!isRecord(asked)) return 'extra.flow must be an object';
  const unknown = Object.keys(asked).find((name) => !FIELDS.includes(name));
  if (unknown !== undefined) return `extra.flow.${unknown.slice(0, 60)} is not known; allowed: ${FIELDS.join(', ')}`;
  const { concurrency, key, position } = asked;
  const limits = readLimits(asked['limits']);
  if (typeof limits === 'string') return limits;
  if (concurrency === undefined || concurrency === null) {
    if (limits === undefined) return 'extra.flow must have concurrency or limits';
    if (key !== undefined && key !== null) return 'extra.flow.key needs extra.flow.concurrency';
    return { limits };
  }
  if (!isCount(concurrency))
    return `extra.flow.concurrency must be a whole number from 1 to ${MOST_CONCURRENCY}, got ${textOf(concurrency)}`;
  const rest = { concurrency, ...(limits === undefined ? {} : { limits }) };
  if (key === undefined || key === null) return rest;
  if (typeof key !== 'string' || keyProblem(key) !== undefined)
    return `extra.flow.key ${keyProblem(typeof key === 'string' ? key : '')}, got ${textOf(key)}`;
  if (position === undefined || position === null) return { ...rest, key };
  if (typeof position !== 'number' || !Number.isInteger(position) || position < 0 || position > MOST_POSITION)
    return `extra.flow.position must be a whole number from 0 to ${MOST_POSITION}, got ${textOf(position)}`;
  return { ...rest, key, position };
}

const isCount = (value: unknown): value is number =>
  typeof value === 'number' && Number.isInteger(value) && value >= 1 && value <= MOST_CONCURRENCY;

function readLimits(asked: unknown): Readonly<Record<string, number>> | string | undefined {
  if (asked === undefined || asked === null) return undefined;
  if (!isRecord(asked)) return 'extra.flow.limits must be an object of names and numbers';
  const limits: Record<string, number> = {};
  for (const [name, most] of Object.entries(asked)) {
    const problem = keyProblem(name);
    if (problem !== undefined) return `extra.flow.limits: a name ${problem}, got ${textOf(name)}`;
    if (!isCount(most))
      return `extra.flow.limits.${name} must be a whole number from 1 to ${MOST_CONCURRENCY}, got ${textOf(most)}`;
    limits[name] = most;
  }
  const count = Object.keys(limits).length;
  if (count > MOST_LIMITS) return `extra.flow.limits must have at most ${MOST_LIMITS} names`;
  return count === 0 ? undefined : limits;
}

const textOf = (value: unknown): string => (JSON.stringify(value) ?? 'nothing').slice(0, 60);
