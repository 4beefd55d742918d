// The command line of `npm run chaos`.
import { parseArgs } from 'node:util';
import { UsageError } from '../options.ts';

export interface ChaosOptions {
  readonly rounds: number;
  /** PGlite and a private Redis child, or servers of their own. */
  readonly stores: 'embedded' | 'servers';
  readonly kill: 'scheduler' | 'redis';
  /** How long after the last round every task may take to end. */
  readonly settleMs: number;
  readonly jsonPath: string;
  /** Where the daemons' logs and the handlers' records go; they are thrown away otherwise. */
  readonly keepLogsIn: string | undefined;
}

export const CHAOS_USAGE =
  'usage: npm run chaos -- [--rounds N] [--stores embedded|servers] [--kill scheduler|redis] [--settle SECONDS] [--json FILE] [--keep-logs DIR]';
const DEFAULT_JSON = 'bench/results/chaos.jsonl';
/** What a dead process left comes back within seconds; what none of its owners saw, when its lock has run out and two scans have seen that: about five minutes at worst. */
const SETTLE_S = 420;

/** @throws UsageError naming the option */
export function parseChaosOptions(args: readonly string[]): ChaosOptions {
  const { values } = parseStrictly(args);
  return {
    rounds: wholeNumber('--rounds', values.rounds, 50, 1000),
    stores: oneOf('--stores', values.stores, ['embedded', 'servers']),
    kill: oneOf('--kill', values.kill, ['scheduler', 'redis']),
    settleMs: wholeNumber('--settle', values.settle, SETTLE_S, 3600) * 1000,
    jsonPath: values.json ?? DEFAULT_JSON,
    keepLogsIn: values['keep-logs'],
  };
}

function parseStrictly(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      strict: true,
      allowPositionals: false,
      options: {
        rounds: { type: 'string' },
        stores: { type: 'string' },
        kill: { type: 'string' },
        settle: { type: 'string' },
        json: { type: 'string' },
        'keep-logs': { type: 'string' },
      },
    });
  } catch (error) {
    throw new UsageError(error instanceof Error ? error.message : String(error), { cause: error });
  }
}

/** The first is the default. */
function oneOf<T extends string>(name: string, text: string | undefined, choices: readonly [T, ...T[]]): T {
  const found = text === undefined ? choices[0] : choices.find((choice) => choice === text);
  if (found === undefined)
    throw new UsageError(`${name}: must be ${choices.join(' or ')}, got ${JSON.stringify(text)}`);
  return found;
}

function wholeNumber(name: string, text: string | undefined, fallback: number, most: number): number {
  if (text === undefined) return fallback;
  const value = Number(text);
  if (!/^[0-9]{1,6}$/.test(text) || value < 1 || value > most)
    throw new UsageError(`${name}: must be a whole number from 1 to ${most}, got ${JSON.stringify(text)}`);
  return value;
}
