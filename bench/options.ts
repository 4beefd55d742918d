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
  'reconcile',
  'start',
  'reaction',
  'growth',
  'rest',
  'placement',
  'records',
  'crossing',
  'list',
  'loss',
] as const;
export type SuiteName = (typeof SUITES)[number];

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
  /** Where both daemons leave processor profiles; they are slower then. */
  readonly profileDir: string | undefined;
}

export class UsageError extends Error {}

export const USAGE = `usage: npm run bench -- [--quick] [--only ${SUITES.join()}] [--rounds N] [--json FILE] [--max-outside PERCENT] [--gate] [--profile DIR]`;

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
  });
  const isQuick = values.quick === true;
  return {
    suites: suitesOf(values.only),
    isQuick,
    rounds: wholeNumber('--rounds', values.rounds, isQuick ? 1 : 5, 1, 100),
    jsonPath: values.json ?? DEFAULT_JSON,
    maxOutside: wholeNumber('--max-outside', values['max-outside'], 12, 0, 100) / 100,
    isGate: values.gate === true,
    profileDir: values.profile === undefined ? undefined : resolve(values.profile),
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

function suitesOf(text: string | undefined): readonly SuiteName[] {
  if (text === undefined) return SUITES;
  const asked = text.split(',').map((name) => name.trim());
  for (const name of asked) {
    if (!SUITES.some((suite) => suite === name))
      throw new UsageError(`--only: there is no benchmark ${JSON.stringify(name)}; there are ${SUITES.join(', ')}`);
  }
  // Always in the order of the list: the start is measured on what the others left.
  return SUITES.filter((suite) => asked.includes(suite));
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
