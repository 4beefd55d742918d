// `longshore map`: the maps that handlers and programs share (`Map` of the Python module), and their entries.
import { shellWord } from '#shared/shell-word.ts';
import type { Client } from '../client.ts';
import { CliError, notFound } from '../errors.ts';
import type { ClearFlags, MapShowFlags, TtlFlags } from '../flags.ts';
import { numberField, textField, textsField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { nearName, withNear } from '../near-name.ts';
import { note, printJson, printTable, withoutControls } from '../print.ts';
import { sharedNames, sharedPath } from '../shared-names.ts';
import { noSuch } from './no-such.ts';
import { showDone, showList, withClient } from './run.ts';
import type { Invocation } from './run.ts';
import { clearShared, nameRow, readJsonValue, showValue, ttlOf } from './shared-values.ts';

/** Keys among which a misspelt one is looked for. */
const NEAR_KEYS = 1_000;

export async function runMapList(invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    showList(invocation, await sharedNames(client, 'map'), ['NAME', 'ENTRIES', 'SIZE'], nameRow);
  });
}

/** Shows keys, in their order. */
export async function runMapShow(name: string, flags: MapShowFlags, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const page = await keysOf(client, name, flags.limit, flags.after);
    if (numberField(page, 'count') === 0) throw await noSuch(client, 'map', name);
    if (invocation.options.json === true) return printJson(page);
    const keys = textsField(page, 'data');
    printTable(
      ['KEY'],
      keys.map((key) => [key]),
    );
    if (textField(page, 'next') === '') return;
    const more = `longshore map show ${shellWord(name)} --after ${shellWord(textField(page, 'next'))}`;
    note(`${keys.length} of ${numberField(page, 'count')} keys; those behind them: \`${withoutControls(more)}\``);
  });
}

export async function runMapGet(name: string, key: string, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const entry = await known(client, name, key, client.rest(await entryPath(client, name, key)));
    showValue(invocation, entry, `longshore map get ${shellWord(name)} ${shellWord(key)}`);
  });
}

export async function runMapSet(
  name: string,
  key: string,
  given: string,
  flags: TtlFlags,
  invocation: Invocation,
): Promise<void> {
  const value = await readJsonValue(given);
  await withClient(invocation, async (client) => {
    const body = { name, key, encoding: 'json', value, ...ttlOf(flags) };
    await client.restCall('PUT', await sharedPath(client, 'map', '/entry'), body);
    showDone(invocation, { name, key, done: 'set' }, [`set ${key} of map ${name}`]);
  });
}

export async function runMapDelete(name: string, key: string, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    await known(client, name, key, client.restCall('DELETE', await entryPath(client, name, key)));
    showDone(invocation, { name, key, done: 'deleted' }, [`deleted ${key} of map ${name}`]);
  });
}

export async function runMapClear(name: string, flags: ClearFlags, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const entries = numberField(await keysOf(client, name, 1), 'count');
    if (entries === 0) throw await noSuch(client, 'map', name);
    await clearShared(client, 'map', name, entries, flags, invocation);
  });
}

const entryPath = (client: Client, name: string, key: string): Promise<string> =>
  sharedPath(client, 'map', '/entry', { name, key });

const keysOf = async (client: Client, name: string, limit: number, after = ''): Promise<JsonObject> =>
  client.rest(await sharedPath(client, 'map', '/keys', { name, limit: String(limit), after }));

/** Says whether the map or its key is missing, and which was probably meant. */
function known<T>(client: Client, name: string, key: string, work: Promise<T>): Promise<T> {
  return work.catch(async (error: unknown) => {
    if (!(error instanceof CliError) || error.answerCode !== 'entry_not_found') throw error;
    const page = await keysOf(client, name, NEAR_KEYS).catch((): JsonObject => ({}));
    if (page['count'] === 0) throw await noSuch(client, 'map', name, error);
    const hint = `\`longshore map show ${shellWord(name)}\` shows them`;
    throw notFound(
      withNear(`there is no key ${key} in map ${name}`, nearName(key, textsField(page, 'data')), hint),
      error,
    );
  });
}
