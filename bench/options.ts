// The command line of `npm run bench`.
import { resolve } from 'node:path';
import { parseArgs } from 'node:util';
import type { ParseArgsConfig } from 'node:util';

export const SUITES = [
  'warm',
  'throughput',
  'cold',
  'scale',
  'pull',
  'die',
  'agent',
  'agent-gpus',
  'reconcile',
  'reaction',
  'growth',
  'rest',
  'placement',
  'fair',
  'flow',
  'provisioning',
  'records',
  'crossing',
  'saturation',
  'streams',
  'bodies',
  'volumes',
  'builds',
  'weights',
  'sandboxes',
  'serve',
  'list',
  'grpc',
  'inference',
  'events',
  'logs',
  'console',
  'loss',
  'restart',
  'renewal',
  'first-start',
  'start',
] as const;
export type SuiteName = (typeof SUITES)[number];

/**
 * Suites that compare two commits, in the order in which they run.
 * All other suites compare with something that no commit changes.
 */
export const AGAINST_SUITES = ['warm', 'throughput', 'cold', 'start', 'reaction', 'placement', 'saturation'] as const;
export type AgainstSuite = (typeof AGAINST_SUITES)[number];

export interface BenchOptions {
  readonly suites: readonly SuiteName[];
  readonly isQuick: boolean;
  /** Rounds that count; discarded ones are repeated, up to as many again. */
  readonly rounds: number;
  readonly jsonPath: string;
  /** Share of the machine above which a round is discarded, from 0 to 1. */
  readonly maxOutside: number;
  /** Exit with 1 when a goal is missed. */
  readonly isGate: boolean;
  /** Directory where both daemons leave processor profiles; profiling slows them. */
  readonly profileDir: string | undefined;
  /** The commit that this checkout is compared with, instead of the baselines. */
  readonly against: string | undefined;
}

export class UsageError extends Error {}

export const USAGE = `usage: npm run bench -- [--quick] [--only ${SUITES.join()}] [--rounds N] [--json FILE] [--max-outside PERCENT] [--gate] [--profile DIR]
       npm run bench -- --against COMMIT [--only ${AGAINST_SUITES.join()}] [--quick] [--rounds N] [--json FILE] [--max-outside PERCENT] [--gate]`;

const DEFAULT_JSON = 'bench/results/latest.jsonl';

/** @throws UsageError naming the option */
export function parseOptions(args: readonly string[]): BenchOptions {
  const values = parseStrictly(args, {
    quick: { type: 'boolean' },
    only: { type: 'string' },
    rounds: { type: 'string' },
    json: { type: 'string' },
    'max-outside': { type: 'string' },
    gate: { type: 'boolean' },
    profile: { type: 'string' },
    against: { type: 'string' },
  });
  const isQuick = values.quick === true;
  const { against } = values;
  if (against === '') throw new UsageError('--against: must name a commit');
  if (against !== undefined && values.profile !== undefined)
    throw new UsageError('--profile: cannot be used with --against');
  return {
    suites: suitesOf(values.only, against === undefined ? SUITES : AGAINST_SUITES),
    isQuick,
    rounds: wholeNumber('--rounds', values.rounds, isQuick ? 1 : 5, 1, 100),
    jsonPath: values.json ?? DEFAULT_JSON,
    maxOutside: wholeNumber('--max-outside', values['max-outside'], 12, 0, 100) / 100,
    isGate: values.gate === true,
    profileDir: values.profile === undefined ? undefined : resolve(values.profile),
    against,
  };
}

/** The options given, each at most once and none that is not known. @throws UsageError */
export function parseStrictly<T extends NonNullable<ParseArgsConfig['options']>>(args: readonly string[], options: T) {
  try {
    return parseArgs({ args: [...args], strict: true, allowPositionals: false, options }).values;
  } catch (error) {
    throw new UsageError(error instanceof Error ? error.message : String(error), { cause: error });
  }
}

function suitesOf(text: string | undefined, known: readonly SuiteName[]): readonly SuiteName[] {
  if (text === undefined) return known;
  const asked = text.split(',').map((name) => name.trim());
  for (const name of asked) {
    if (!known.some((suite) => suite === name))
      throw new UsageError(`--only: there is no benchmark ${JSON.stringify(name)}; there are ${known.join(', ')}`);
  }
  // Suites run in the order of the list: `start` ends what others share, and is measured on the data that they left.
  return known.filter((suite) => asked.includes(suite));
}

/** @throws UsageError naming the option */
export function wholeNumber(
  name: string,
  text: string | undefined,
  fallback: number,
  min: number,
  max: number,
): number {
  if (text === undefined) return fallback;
  const value = Number(text);
  if (!/^[0-9]+$/.test(text) || value < min || value > max)
    throw new UsageError(`${name}: must be a whole number from ${min} to ${max}, got ${JSON.stringify(text)}`);
  return value;
}
