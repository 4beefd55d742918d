// `longshore share list`: use of each market by workspaces, beside what would be fair. A workspace sees its own lines.
// `longshore share reservations`: machines that are kept for containers which need much.
import type { Client } from '../client.ts';
import { TokenKindError } from '../errors.ts';
import { listField, numberField, textField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { showList, withClient } from './run.ts';
import type { Invocation } from './run.ts';
import { numberText, showWarnings } from './share-text.ts';

const HEADINGS = ['MARKET', 'WORKSPACE', 'USED', 'FAIR', 'GUARANTEED', 'LIMIT', 'WEIGHT', 'WAITING', 'OLDEST'];

export async function runShareList({ market }: { readonly market?: string }, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const query = market === undefined ? '' : `?${new URLSearchParams({ market }).toString()}`;
    const answer = await client.rest(`/share${query}`).catch((error: unknown) => ownShares(client, query, error));
    showList(invocation, listField(answer, 'data'), HEADINGS, rowOf);
    if (invocation.options.json !== true) showWarnings(answer);
  });
}

const KEPT = ['MARKET', 'MACHINE', 'FOR', 'WORKSPACE', 'SINCE', 'GPUS', 'FREE', 'HELD BY'];

export async function runShareReservations(invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    showList(invocation, listField(await client.rest('/share/reservations'), 'data'), KEPT, keptRowOf);
  });
}

function keptRowOf(row: JsonObject): readonly string[] {
  const holders = listField(row, 'held_by').map((one) => {
    const ends = textField(one, 'ends_at');
    return `${textField(one, 'container_id')} (${textField(one, 'workspace_name')})${ends === '' ? '' : ` until ${ends}`}`;
  });
  return [
    textField(row, 'market'),
    textField(row, 'machine_id'),
    textField(row, 'container_id'),
    textField(row, 'workspace_name'),
    textField(row, 'since'),
    String(numberField(row, 'gpus')),
    String(numberField(row, 'free_gpus')),
    holders.join(', ') || '-',
  ];
}

async function ownShares(client: Client, query: string, error: unknown): Promise<JsonObject> {
  if (!(error instanceof TokenKindError)) throw error;
  return await client.rest(`/workspace/${await client.workspaceId()}/markets${query}`);
}

function rowOf(row: JsonObject): readonly string[] {
  const amount = (name: string): string => String(Math.round(numberField(row, name) * 100) / 100);
  const waits = numberField(row, 'waiting') > 0;
  return [
    textField(row, 'market'),
    textField(row, 'workspace_name') || '(others)',
    amount('used'),
    amount('fair_share'),
    amount('guaranteed'),
    numberText(row['limit']) || 'none',
    amount('weight'),
    amount('waiting'),
    waits ? `${Math.round(numberField(row, 'oldest_wait_seconds'))} s` : '-',
  ];
}
