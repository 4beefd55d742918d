// The command line of `npm run soak`.
import { parseStrictly, UsageError } from '../options.ts';

export interface SoakOptions {
  /** Minutes of load that count, after the warm-up. */
  readonly minutes: number;
  readonly warmUpMinutes: number;
  readonly jsonPath: string;
  /** Where the daemons' logs go when something failed; they are thrown away otherwise. */
  readonly keepLogsIn: string | undefined;
}

export const SOAK_USAGE = 'usage: npm run soak -- [--minutes N] [--warm-up N] [--json FILE] [--keep-logs DIR]';
const DEFAULT_JSON = 'bench/results/soak.jsonl';

/** @throws UsageError naming the option */
export function parseSoakOptions(args: readonly string[]): SoakOptions {
  const values = parseStrictly(args, {
    minutes: { type: 'string' },
    'warm-up': { type: 'string' },
    json: { type: 'string' },
    'keep-logs': { type: 'string' },
  });
  return {
    minutes: minutesOf('--minutes', values.minutes, 10),
    warmUpMinutes: minutesOf('--warm-up', values['warm-up'], 1),
    jsonPath: values.json ?? DEFAULT_JSON,
    keepLogsIn: values['keep-logs'],
  };
}

function minutesOf(name: string, text: string | undefined, fallback: number): number {
  if (text === undefined) return fallback;
  const value = Number(text);
  if (!/^[0-9]+(\.[0-9]+)?$/.test(text) || value <= 0 || value > 1440)
    throw new UsageError(`${name}: must be a number of minutes above 0 and at most 1440, got ${JSON.stringify(text)}`);
  return value;
}
