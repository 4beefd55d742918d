// Settings of flow control, `extra.flow` of a stub. Pure.
import { isRecord } from '#shared/json.ts';

/** So many in so much time. */
export interface Pace {
  readonly count: number;
  readonly perMs: number;
}

export interface FlowConfig {
  /** Most tasks of a key that run or are handed to the queue. Absent: any number. */
  readonly concurrency?: number;
  /** Field of the input that is the key. Absent: the call gives it, and calls without one share a key. */
  readonly key?: string;
  /** Place of that field among the positional inputs of a Python handler. Absent: it has none. */
  readonly position?: number;
  /** Limits that all deployments of the workspace share, by name, with the most tasks of each. Absent: none. */
  readonly limits?: Readonly<Record<string, number>>;
  /** Tasks of a key start at most at this pace, and the others later. Absent: at any. */
  readonly throttle?: Pace;
  /** Calls of a key are taken at most at this pace. Absent: at any. */
  readonly rate?: Pace;
  /** Whether a call beyond the rate is dropped. Absent: it is refused. */
  readonly skipsExcess?: boolean;
  /** Head start of a task in its queue, in seconds, where its call gives none. Absent: the queue has no priorities. */
  readonly priority?: number;
}

export const MOST_KEY_CHARACTERS = 128;
const MOST_POSITION = 255;
export const MOST_LIMITS = 8;
export const MOST_CONCURRENCY = 100_000;
/** Largest head start and the largest handicap of a task, in seconds. */
export const MOST_HEAD_START_S = 3_600;

/** Text that cannot be a key: it is in names of Redis, in headers and in lists. */
// oxlint-disable-next-line no-control-regex -- they are refused
const UNFIT = /[\u0000-\u001F\u007F]/;

/** Fault of a key; undefined: it has none. */
export function keyProblem(key: string): string | undefined {
  if (key === '' || key.length > MOST_KEY_CHARACTERS || UNFIT.test(key))
    return `must have 1 to ${MOST_KEY_CHARACTERS} characters, and no control characters`;
  return undefined;
}

const UNITS_MS: Readonly<Record<string, number>> = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };
const LONGEST_MS = 86_400_000;
const PACE = /^([1-9][0-9]{0,5})\/([1-9][0-9]{0,4})?([smhd])$/;

/** Reads `100/m` or `5/10s`. @returns undefined: it is none, more than 1,000 a second or longer than a day */
export function readPace(text: unknown): Pace | undefined {
  const [, count = '', times = '1', unit = ''] = (typeof text === 'string' ? PACE.exec(text) : null) ?? [];
  const pace = { count: Number(count), perMs: Number(times) * (UNITS_MS[unit] ?? 0) };
  return pace.count > 0 && pace.perMs <= LONGEST_MS && pace.count <= pace.perMs ? pace : undefined;
}

/** A pace as {@link readPace} reads it. */
export function paceText({ count, perMs }: Pace): string {
  const [unit, ms] = Object.entries(UNITS_MS).findLast(([, unitMs]) => perMs % unitMs === 0) ?? ['s', 1_000];
  return `${count}/${perMs === ms ? '' : perMs / ms}${unit}`;
}

const PACE_PROBLEM =
  'must be a number and a time such as 100/m or 5/10s (s, m, h, d; at most 1000 a second, and a day)';

type Read<T> = { readonly value: T | undefined } | { readonly why: string };

/** Reads `extra.flow` of a stub. @returns a text: why the stub is refused; undefined: it has no flow control */
export function readFlow(asked: unknown): FlowConfig | string | undefined {
  if (asked === undefined || asked === null) return undefined;
  if (!isRecord(asked)) return 'extra.flow must be an object';
  const unknown = Object.keys(asked).find((name) => !Object.hasOwn(READERS, name));
  if (unknown !== undefined)
    return `extra.flow.${unknown.slice(0, 60)} is not known; allowed: ${Object.keys(READERS).join(', ')}`;
  const found: Record<string, unknown> = {};
  for (const [name, read] of Object.entries(READERS)) {
    const given = asked[name];
    if (given === undefined || given === null) continue;
    const one: Read<unknown> = read(given);
    if ('why' in one) return `extra.flow.${name}${one.why}, got ${textOf(given)}`;
    if (one.value !== undefined) found[FIELD_OF[name] ?? name] = one.value;
  }
  const flow = found as FlowConfig;
  return problemOf(flow) ?? withoutUnused(flow);
}

/** Names of settings that are called otherwise here. */
const FIELD_OF: Readonly<Record<string, string>> = { onExcess: 'skipsExcess' };

const READERS: Readonly<Record<string, (given: unknown) => Read<unknown>>> = {
  concurrency: (given) =>
    isCount(given) ? { value: given } : { why: ` must be a whole number from 1 to ${MOST_CONCURRENCY}` },
  key: (given) => {
    const problem = keyProblem(typeof given === 'string' ? given : '');
    return problem === undefined ? { value: given } : { why: ` ${problem}` };
  },
  position: (given) =>
    isWhole(given, 0, MOST_POSITION) ? { value: given } : { why: ` must be a whole number from 0 to ${MOST_POSITION}` },
  limits: readLimits,
  throttle: paceOf,
  rate: paceOf,
  onExcess: (given) =>
    given === 'refuse' || given === 'skip'
      ? { value: given === 'skip' ? true : undefined }
      : { why: ' must be refuse or skip' },
  priority: (given) =>
    isWhole(given, -MOST_HEAD_START_S, MOST_HEAD_START_S)
      ? { value: given }
      : { why: ` must be whole seconds from -${MOST_HEAD_START_S} to ${MOST_HEAD_START_S}` },
};

/** Settings that count or pace by a key. */
const KEYED = ['concurrency', 'throttle', 'rate'] as const;

function problemOf(flow: FlowConfig): string | undefined {
  const isKeyed = KEYED.some((name) => flow[name] !== undefined);
  if (!isKeyed && flow.limits === undefined && flow.priority === undefined)
    return `extra.flow must have one of ${KEYED.join(', ')}, limits, priority`;
  if (!isKeyed && flow.key !== undefined) return `extra.flow.key needs one of extra.flow.${KEYED.join(', ')}`;
  if (flow.skipsExcess === true && flow.rate === undefined) return 'extra.flow.onExcess needs extra.flow.rate';
  return undefined;
}

/** The place of a key among the inputs means nothing without the key. */
function withoutUnused({ position, ...flow }: FlowConfig): FlowConfig {
  return flow.key === undefined || position === undefined ? flow : { ...flow, position };
}

function paceOf(given: unknown): Read<Pace> {
  const value = readPace(given);
  return value === undefined ? { why: ` ${PACE_PROBLEM}` } : { value };
}

const isWhole = (value: unknown, least: number, most: number): value is number =>
  typeof value === 'number' && Number.isInteger(value) && value >= least && value <= most;

const isCount = (value: unknown): value is number => isWhole(value, 1, MOST_CONCURRENCY);

function readLimits(asked: unknown): Read<Readonly<Record<string, number>>> {
  if (!isRecord(asked)) return { why: ' must be an object of names and numbers' };
  const limits: Record<string, number> = {};
  for (const [name, most] of Object.entries(asked)) {
    const problem = keyProblem(name);
    if (problem !== undefined) return { why: `: a name ${problem}` };
    if (!isCount(most)) return { why: `.${name} must be a whole number from 1 to ${MOST_CONCURRENCY}` };
    limits[name] = most;
  }
  const count = Object.keys(limits).length;
  if (count > MOST_LIMITS) return { why: ` must have at most ${MOST_LIMITS} names` };
  return { value: count === 0 ? undefined : limits };
}

const textOf = (value: unknown): string => (JSON.stringify(value) ?? 'nothing').slice(0, 60);
