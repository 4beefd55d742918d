// The command line of `npm run upgrade`.
import { parseStrictly, UsageError } from '../options.ts';

export interface UpgradeOptions {
  /** The commit whose installation is upgraded to this checkout; without it the newest release. */
  readonly from: string | undefined;
  /** PGlite and a private Redis child, or servers of their own. */
  readonly stores: 'embedded' | 'servers';
  readonly jsonPath: string;
  /** Directory that keeps the daemons' logs and the handlers' records; without it they are deleted. */
  readonly keepLogsIn: string | undefined;
}

export const UPGRADE_USAGE =
  'usage: npm run upgrade -- [--from COMMIT] [--stores embedded|servers] [--json FILE] [--keep-logs DIR]';
const DEFAULT_JSON = 'bench/results/upgrade.jsonl';

/** @throws UsageError naming the option */
export function parseUpgradeOptions(args: readonly string[]): UpgradeOptions {
  const values = parseStrictly(args, {
    from: { type: 'string' },
    stores: { type: 'string' },
    json: { type: 'string' },
    'keep-logs': { type: 'string' },
  });
  const { from, stores = 'embedded' } = values;
  if (from === '') throw new UsageError('--from: must name a commit');
  if (stores !== 'embedded' && stores !== 'servers')
    throw new UsageError(`--stores: must be embedded or servers, got ${JSON.stringify(stores)}`);
  return { from, stores, jsonPath: values.json ?? DEFAULT_JSON, keepLogsIn: values['keep-logs'] };
}
