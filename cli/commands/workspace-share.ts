// `longshore workspace share`: how a workspace shares machines with others. Everybody sees their own; the administrator
// sees and changes all.
import { usageError } from '../errors.ts';
import type { WorkspaceShareFlags } from '../flags.ts';
import { textField } from '../json.ts';
import { print, printJson, printTable } from '../print.ts';
import { withClient } from './run.ts';
import type { Invocation } from './run.ts';
import { numberText, shareRows, showWarnings } from './share-text.ts';
import { onlyAdmin } from './workspace.ts';
import { workspaceIdOf } from './workspace-reference.ts';

type Amounts = Readonly<Record<string, number | null>>;

/** A change as the API takes it; null: the default again. */
export type ShareChange = {
  readonly weight?: number | null;
  readonly guaranteed?: Amounts | null;
  readonly limits?: Amounts | null;
};

export async function runWorkspaceShare(
  reference: string | undefined,
  flags: WorkspaceShareFlags,
  invocation: Invocation,
): Promise<void> {
  const change = changeOf(flags);
  await withClient(invocation, async (client) => {
    const id = await workspaceIdOf(client, reference);
    const path = `/workspace/${encodeURIComponent(id)}/share`;
    const share = await (change === undefined ? client.rest(path) : client.restCall('PUT', path, change)).catch(
      onlyAdmin,
    );
    if (invocation.options.json === true) {
      printJson(share);
      return;
    }
    print(`weight: ${numberText(share['weight']) || '1'}`);
    const rows = shareRows(share);
    if (rows.length > 0) printTable(['MARKET', 'GUARANTEED', 'LIMIT'], rows);
    const file = textField(share, 'declared_in');
    if (file !== '') print(`declared in: ${file}`);
    showWarnings(share);
  });
}

/** @returns undefined when no flag changes the share. The scheduler validates markets and bounds. */
export function changeOf({
  weight,
  guarantee = [],
  limit = [],
  clear = false,
}: WorkspaceShareFlags): ShareChange | undefined {
  if (clear) {
    if (weight !== undefined || guarantee.length > 0 || limit.length > 0)
      throw usageError('--clear puts all of the share back: leave the other flags out');
    return { weight: null, guaranteed: null, limits: null };
  }
  const change: ShareChange = {
    ...(weight === undefined ? {} : { weight: weightOf(weight) }),
    ...(guarantee.length === 0 ? {} : { guaranteed: amountsOf('--guarantee', guarantee) }),
    ...(limit.length === 0 ? {} : { limits: amountsOf('--limit', limit) }),
  };
  return Object.keys(change).length === 0 ? undefined : change;
}

function weightOf(text: string): number | null {
  if (text === 'default') return null;
  const weight = Number(text);
  if (!/^[0-9]*\.?[0-9]+$/.test(text) || weight <= 0)
    throw usageError(`--weight ${text}: it must be a number above 0, such as 2 or 0.5, or default`);
  return weight;
}

function amountsOf(flag: string, said: readonly string[]): Amounts {
  const amounts = new Map<string, number | null>();
  for (const text of said) {
    const [, market, value] = /^([A-Za-z0-9.][A-Za-z0-9.+-]*)=([0-9]{1,7}|none)$/.exec(text) ?? [];
    if (market === undefined || value === undefined)
      throw usageError(`${flag} ${text}: it must be MARKET=NUMBER, such as H100=16 or cpu=64, or MARKET=none`);
    if (amounts.has(market)) throw usageError(`${flag} ${text}: ${market} is named twice`);
    amounts.set(market, value === 'none' ? null : Number(value));
  }
  return Object.fromEntries(amounts);
}
