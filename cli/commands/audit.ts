// `longshore audit`: who changed what, and from where. For the administrator and the workspace's primary token.
import { sleep } from '#shared/backoff.ts';
import { isRecord } from '#shared/json.ts';
import type { Client } from '../client.ts';
import type { AuditFlags } from '../flags.ts';
import { listField, numberField, textField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { note, print, printJson, printTable } from '../print.ts';
import { sinceMsOf } from '../since.ts';
import { withClient } from './run.ts';
import type { Invocation } from './run.ts';

const POLL_MS = 1_000;
const KINDS = 'audit.*';
const HEADINGS = ['TIME', 'WHO', 'FROM', 'ACTION', 'WHAT', 'DETAILS'];

/** Prints entries, oldest first; `signal` ends following (Ctrl-C does it for a person). */
export async function runAudit(flags: AuditFlags, invocation: Invocation, signal?: AbortSignal): Promise<void> {
  const sinceMs = flags.since === undefined ? undefined : sinceMsOf(flags.since, Date.now());
  await withClient(invocation, async (client) => {
    const path = `/events/${await client.workspaceId()}/history`;
    const isJson = invocation.options.json === true;
    const first = await entriesOf(client, path, {
      limit: String(flags.limit),
      ...(sinceMs === undefined ? {} : { start_time: new Date(sinceMs).toISOString() }),
    });
    if (flags.follow !== true) {
      if (isJson) printJson(first);
      else if (first.length === 0) note('no entry of the audit trail');
      else printTable(HEADINGS, first.map(rowOf));
      return;
    }
    const show = (entries: readonly JsonObject[]): void => {
      for (const entry of entries) print(isJson ? JSON.stringify(entry) : rowOf(entry).join('  '));
    };
    show(first);
    let last = lastOf(first, 0);
    while (signal?.aborted !== true) {
      await sleep(POLL_MS, signal);
      const newest = (await entriesOf(client, path, { limit: '1000' })).filter(
        (entry) => numberField(entry, 'seq_num') > last,
      );
      show(newest);
      last = lastOf(newest, last);
    }
  });
}

const entriesOf = async (
  client: Client,
  path: string,
  query: Readonly<Record<string, string>>,
): Promise<readonly JsonObject[]> =>
  listField(await client.rest(`${path}?${new URLSearchParams({ event_types: KINDS, ...query }).toString()}`), 'events');

const lastOf = (entries: readonly JsonObject[], before: number): number =>
  entries.reduce((last, entry) => Math.max(last, numberField(entry, 'seq_num')), before);

/** @internal exported for its test */
export function rowOf(entry: JsonObject): string[] {
  const data = recordOf(entry, 'data');
  const actor = recordOf(data, 'actor');
  const target = recordOf(data, 'target');
  const attrs = Object.entries(recordOf(data, 'attrs')).filter(([, value]) => value !== null && value !== '');
  const name = textField(target, 'name');
  const id = textField(target, 'id');
  return [
    textField(entry, 'timestamp').replace(/\.\d+Z$/, 'Z'),
    textField(actor, 'token_name') ||
      `${textField(actor, 'token_type')} ${textField(actor, 'token_id').slice(0, 8)}`.trim(),
    textField(actor, 'remote_ip') || '-',
    textField(data, 'action'),
    name === '' || name === id ? id : `${name} (${id})`,
    attrs.map(([key, value]) => `${key}=${String(value)}`).join(' ') || '-',
  ];
}

function recordOf(of: JsonObject, name: string): JsonObject {
  const value = of[name];
  return isRecord(value) ? value : {};
}
