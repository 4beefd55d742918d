// The command line of `npm run chaos`.
import { parseStrictly, UsageError, wholeNumber } from '../options.ts';

export interface ChaosOptions {
  readonly rounds: number;
  /** PGlite and a private Redis child, or servers of their own. */
  readonly stores: 'embedded' | 'servers';
  /** `redis-rollback`: Redis is killed, too, and comes back with data a second old; two schedulers, on servers. */
  readonly kill: 'scheduler' | 'redis' | 'agent' | 'redis-rollback';
  /** How long after the last round every task may take to end. */
  readonly settleMs: number;
  readonly jsonPath: string;
  /** Directory that keeps the daemons' logs and the handlers' records; without it they are deleted. */
  readonly keepLogsIn: string | undefined;
}

export const CHAOS_USAGE =
  'usage: npm run chaos -- [--rounds N] [--stores embedded|servers] [--kill scheduler|redis|agent|redis-rollback] [--settle SECONDS] [--json FILE] [--keep-logs DIR]';
const DEFAULT_JSON = 'bench/results/chaos.jsonl';
/**
 * Work of a dead process comes back within seconds. A task that no owner saw comes back when its lock has expired and
 * two scans have found that: about five minutes at worst.
 */
const SETTLE_S = 420;

/** @throws UsageError naming the option */
export function parseChaosOptions(args: readonly string[]): ChaosOptions {
  const values = parseStrictly(args, {
    rounds: { type: 'string' },
    stores: { type: 'string' },
    kill: { type: 'string' },
    settle: { type: 'string' },
    json: { type: 'string' },
    'keep-logs': { type: 'string' },
  });
  const kill = oneOf('--kill', values.kill, ['scheduler', 'redis', 'agent', 'redis-rollback']);
  if (kill === 'redis-rollback' && values.stores === 'embedded')
    throw new UsageError('--stores: redis-rollback has two schedulers, which need servers');
  return {
    rounds: wholeNumber('--rounds', values.rounds, 50, 1, 1000),
    stores: kill === 'redis-rollback' ? 'servers' : oneOf('--stores', values.stores, ['embedded', 'servers']),
    kill,
    settleMs: wholeNumber('--settle', values.settle, SETTLE_S, 1, 3600) * 1000,
    jsonPath: values.json ?? DEFAULT_JSON,
    keepLogsIn: values['keep-logs'],
  };
}

/** The first is the default. */
function oneOf<T extends string>(name: string, text: string | undefined, choices: readonly [T, ...T[]]): T {
  const found = text === undefined ? choices[0] : choices.find((choice) => choice === text);
  if (found === undefined)
    throw new UsageError(`${name}: must be ${choices.join(' or ')}, got ${JSON.stringify(text)}`);
  return found;
}
