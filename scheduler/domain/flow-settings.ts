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
  /**
   * Seconds without another call of the key after which its task begins, with the input of the last call. Absent: each
   * call is a task.
   */
  readonly debounce?: number;
  /** Seconds after the first of these calls in which the task begins in any case. Absent: there is no such time. */
  readonly debounceMax?: number;
  /** Fate of a call whose key has an open task: it is skipped, or replaces that one. Absent: neither. */
  readonly singleton?: 'skip' | 'replace';
  /** Whether a task that runs is replaced, too. Absent: only one that waits. */
  readonly cancelsRunning?: boolean;
  /** Field of the input by whose values tasks take turns. Absent: they begin in order. */
  readonly fairKey?: string;
  /** Place of that field among the positional inputs. Absent: it has none. */
  readonly fairPosition?: number;
  /** Turns of a value for one turn of others. Absent: each has one. */
  readonly weights?: Readonly<Record<string, number>>;
  /** Head start of a task in its queue, in seconds, where its call gives none. Absent: the queue has no priorities. */
  readonly priority?: number;
}

export const MOST_KEY_CHARACTERS = 128;
const MOST_POSITION = 255;
export const MOST_LIMITS = 8;
export const MOST_WEIGHTS = 100;
const MOST_WEIGHT = 100;
const LONGEST_DEBOUNCE_S = 86_400;
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
const FIELD_OF: Readonly<Record<string, string>> = { onExcess: 'skipsExcess', cancelRunning: 'cancelsRunning' };

const READERS: Readonly<Record<string, (given: unknown) => Read<unknown>>> = {
  concurrency: wholeFrom(1, MOST_CONCURRENCY),
  key: fieldName,
  position: wholeFrom(0, MOST_POSITION),
  limits: namedNumbers(MOST_LIMITS, MOST_CONCURRENCY),
  throttle: paceOf,
  rate: paceOf,
  onExcess: (given) =>
    given === 'refuse' || given === 'skip'
      ? { value: given === 'skip' ? true : undefined }
      : { why: ' must be refuse or skip' },
  debounce: wholeFrom(1, LONGEST_DEBOUNCE_S),
  debounceMax: wholeFrom(1, LONGEST_DEBOUNCE_S),
  singleton: (given) =>
    given === 'skip' || given === 'replace' ? { value: given } : { why: ' must be skip or replace' },
  cancelRunning: (given) =>
    typeof given === 'boolean' ? { value: given ? true : undefined } : { why: ' must be true or false' },
  fairKey: fieldName,
  fairPosition: wholeFrom(0, MOST_POSITION),
  weights: namedNumbers(MOST_WEIGHTS, MOST_WEIGHT),
  priority: (given) =>
    isWhole(given, -MOST_HEAD_START_S, MOST_HEAD_START_S)
      ? { value: given }
      : { why: ` must be whole seconds from -${MOST_HEAD_START_S} to ${MOST_HEAD_START_S}` },
};

/** Settings that count or pace by a key. */
const KEYED = ['concurrency', 'throttle', 'rate', 'debounce', 'singleton'] as const;

function problemOf(flow: FlowConfig): string | undefined {
  const isKeyed = KEYED.some((name) => flow[name] !== undefined);
  if (!isKeyed && flow.limits === undefined && flow.priority === undefined && flow.fairKey === undefined)
    return `extra.flow must have one of ${KEYED.join(', ')}, limits, priority, fairKey`;
  if (!isKeyed && flow.key !== undefined) return `extra.flow.key needs one of extra.flow.${KEYED.join(', ')}`;
  if (flow.skipsExcess === true && flow.rate === undefined) return 'extra.flow.onExcess needs extra.flow.rate';
  if (flow.debounceMax !== undefined && flow.debounceMax < (flow.debounce ?? Infinity))
    return 'extra.flow.debounceMax needs extra.flow.debounce, and is no shorter';
  if (flow.singleton !== undefined && flow.debounce !== undefined)
    return 'extra.flow.singleton and extra.flow.debounce exclude each other';
  if (flow.cancelsRunning === true && flow.singleton !== 'replace')
    return 'extra.flow.cancelRunning needs extra.flow.singleton replace';
  if (flow.weights !== undefined && flow.fairKey === undefined) return 'extra.flow.weights needs extra.flow.fairKey';
  if (flow.fairKey !== undefined && flow.priority !== undefined)
    return 'extra.flow.fairKey and extra.flow.priority exclude each other';
  return undefined;
}

/** The place of a key among the inputs means nothing without the key. */
function withoutUnused({ position, fairPosition, ...flow }: FlowConfig): FlowConfig {
  return {
    ...flow,
    ...(flow.key === undefined || position === undefined ? {} : { position }),
    ...(flow.fairKey === undefined || fairPosition === undefined ? {} : { fairPosition }),
  };
}

function fieldName(given: unknown): Read<unknown> {
  const problem = keyProblem(typeof given === 'string' ? given : '');
  return problem === undefined ? { value: given } : { why: ` ${problem}` };
}

function wholeFrom(least: number, most: number): (given: unknown) => Read<unknown> {
  return (given) =>
    isWhole(given, least, most) ? { value: given } : { why: ` must be a whole number from ${least} to ${most}` };
}

function paceOf(given: unknown): Read<Pace> {
  const value = readPace(given);
  return value === undefined ? { why: ` ${PACE_PROBLEM}` } : { value };
}

const isWhole = (value: unknown, least: number, most: number): value is number =>
  typeof value === 'number' && Number.isInteger(value) && value >= least && value <= most;

function namedNumbers(mostNames: number, most: number): (asked: unknown) => Read<Readonly<Record<string, number>>> {
  return (asked) => {
    if (!isRecord(asked)) return { why: ' must be an object of names and numbers' };
    const found: Record<string, number> = {};
    for (const [name, value] of Object.entries(asked)) {
      const problem = keyProblem(name);
      if (problem !== undefined) return { why: `: a name ${problem}` };
      if (!isWhole(value, 1, most)) return { why: `.${name} must be a whole number from 1 to ${most}` };
      found[name] = value;
    }
    const count = Object.keys(found).length;
    if (count > mostNames) return { why: ` must have at most ${mostNames} names` };
    return { value: count === 0 ? undefined : found };
  };
}

const textOf = (value: unknown): string => (JSON.stringify(value) ?? 'nothing').slice(0, 60);
