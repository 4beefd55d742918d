// `longshore queue`: the queues that handlers and programs share (`Queue` of the Python module), and their items. Calls
// that wait for a task queue are tasks.
import { shellWord } from '#shared/shell-word.ts';
import type { Client } from '../client.ts';
import type { CliError } from '../errors.ts';
import { notFound, usageError } from '../errors.ts';
import type { ClearFlags, TtlFlags } from '../flags.ts';
import { numberField, objectField, textField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { nearName, withNear } from '../near-name.ts';
import { isTerminal, print, printJson, withoutControls } from '../print.ts';
import { sharedNames, sharedPath } from '../shared-names.ts';
import { showDone, showList, withClient } from './run.ts';
import type { Invocation } from './run.ts';
import { clearShared, isPickled, kindOfValue, nameRow, readJsonValue, showValue, ttlOf } from './shared-values.ts';

export async function runQueueList(invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    showList(invocation, await sharedNames(client, 'queue'), ['NAME', 'ITEMS', 'SIZE'], nameRow);
  });
}

/** Shows the size, and what the oldest item is. */
export async function runQueueShow(name: string, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const state = await stateOf(client, name);
    if (invocation.options.json === true) return printJson(state);
    const first = objectField(state, 'first');
    print(`name   ${withoutControls(name)}`);
    print(`items  ${numberField(state, 'size')}`);
    print(`first  ${kindOfValue(first)}, kept until ${textField(first, 'expires_at')}`);
  });
}

export async function runQueuePeek(name: string, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    showValue(invocation, objectField(await stateOf(client, name), 'first'), commandOf('peek', name));
  });
}

export async function runQueuePut(name: string, given: string, flags: TtlFlags, invocation: Invocation): Promise<void> {
  const value = await readJsonValue(given);
  await withClient(invocation, async (client) => {
    const body = { name, encoding: 'json', value, ...ttlOf(flags) };
    await client.restCall('POST', await sharedPath(client, 'queue', ''), body);
    showDone(invocation, { name, done: 'put' }, [`put an item into queue ${name}`]);
  });
}

/** Takes the oldest item. */
export async function runQueuePop(name: string, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const again = commandOf('pop', name);
    // A terminal would lose the value.
    const isSeen = invocation.options.json !== true && isTerminal();
    if (isSeen && isPickled(objectField(await stateOf(client, name), 'first')))
      throw usageError(`the oldest item is pickled by Python: \`${again} > FILE\` takes it, nothing was taken`);
    const { item } = await client.restCall('POST', await sharedPath(client, 'queue', '/pop'), { name });
    if (item === null || item === undefined) throw await isEmpty(client, name);
    const taken = objectField({ item }, 'item');
    // Another taker was between.
    if (isSeen && isPickled(taken)) return printJson(taken);
    showValue(invocation, taken, again);
  });
}

export async function runQueueClear(name: string, flags: ClearFlags, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const items = numberField(await stateOf(client, name), 'size');
    await clearShared(client, 'queue', name, items, flags, invocation);
  });
}

const commandOf = (verb: string, name: string): string => `longshore queue ${verb} ${shellWord(name)}`;

/** The size and the oldest item. @throws CliError for a queue without items: a name says nothing else of it */
async function stateOf(client: Client, name: string): Promise<JsonObject> {
  const state = await client.rest(await sharedPath(client, 'queue', '', { name }));
  if (state['first'] === null || state['first'] === undefined) throw await isEmpty(client, name);
  return state;
}

async function isEmpty(client: Client, name: string): Promise<CliError> {
  const names = await sharedNames(client, 'queue').catch((): readonly JsonObject[] => []);
  const near = nearName(
    name,
    names.map((one) => textField(one, 'name')),
  );
  const hint = `\`longshore queue list\` shows queues that have any. Calls of a task queue: \`longshore task list --deployment ${shellWord(name)}\``;
  return notFound(withNear(`queue ${name} has no items in this workspace`, near, hint));
}
