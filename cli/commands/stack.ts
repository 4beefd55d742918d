// `longshore stack`: named groups of apps. A stack changes nothing about its apps.
import type { Client } from '../client.ts';
import { usageError } from '../errors.ts';
import type { StackChangeFlags } from '../flags.ts';
import { ageOf } from '../format.ts';
import { listField, listWith, objectWith, textField, textsField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { pagesOf } from '../pages.ts';
import { noSuch } from './no-such.ts';
import { showDone, showList, withClient } from './run.ts';
import type { Invocation } from './run.ts';

const PAGE = 100;
/** JSON of users in a stack, whose text is kept. */
const OF_USERS = ['layout'];
const stackOf = (text: string): JsonObject => objectWith(text, OF_USERS);

export async function runStackList(invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const nowMs = Date.now();
    showList(invocation, await allStacks(client), ['NAME', 'APPS', 'CHANGED', 'ID'], (stack) => [
      textField(stack, 'name'),
      listField(stack, 'members').map(memberText).join(', ') || '-',
      `${ageOf(textField(stack, 'updated_at'), nowMs)} ago`,
      textField(stack, 'id'),
    ]);
  });
}

/** An app that takes no calls is marked. */
function memberText(member: JsonObject): string {
  const name = textField(member, 'name');
  if (textField(member, 'kind') === '') return `${name} (nothing made)`;
  return member['active'] === true ? name : `${name} (not active)`;
}

export async function runStackCreate(
  name: string,
  flags: { readonly app?: readonly string[] },
  invocation: Invocation,
): Promise<void> {
  await withClient(invocation, async (client) => {
    const body = { name, apps: flags.app ?? [] };
    const stack = await client.restCall('POST', await stacksPath(client), body, undefined, stackOf);
    showDone(invocation, stack, [`made stack ${name}${withApps(stack)}`]);
  });
}

export async function runStackUpdate(
  reference: string,
  flags: StackChangeFlags,
  invocation: Invocation,
): Promise<void> {
  const { name, app, add, remove } = flags;
  if ([name, app, add, remove].every((given) => given === undefined)) {
    throw usageError('say what to change: --name, --app, --add or --remove');
  }
  if ((add ?? remove) !== undefined && (name ?? app) !== undefined) {
    throw usageError('--add and --remove change the apps one by one, --name and --app replace: not both at once');
  }
  await withClient(invocation, async (client) => {
    const id = textField(await found(client, reference), 'id');
    const stack = await client.restCall(
      'PUT',
      `${await stacksPath(client)}/${id}`,
      {
        ...(name === undefined ? {} : { name }),
        ...(app === undefined ? {} : { apps: app }),
        ...(add === undefined ? {} : { add }),
        ...(remove === undefined ? {} : { remove }),
      },
      undefined,
      stackOf,
    );
    showDone(invocation, stack, [`changed stack ${textField(stack, 'name')}${withApps(stack)}`]);
  });
}

export async function runStackDelete(reference: string, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const stack = await found(client, reference);
    const [id, name] = [textField(stack, 'id'), textField(stack, 'name')];
    await client.restCall('DELETE', `${await stacksPath(client)}/${id}`);
    showDone(invocation, { id, name, done: 'deleted' }, [`deleted stack ${name}; its apps stay`]);
  });
}

const withApps = (stack: JsonObject): string => {
  const apps = textsField(stack, 'apps');
  return apps.length === 0 ? ', without apps' : `: ${apps.join(', ')}`;
};

/** The stack of that name, else of that id. @throws CliError */
async function found(client: Client, reference: string): Promise<JsonObject> {
  const all = await allStacks(client);
  const stack =
    all.find((one) => textField(one, 'name') === reference) ??
    all.find((one) => textField(one, 'id') === reference.toLowerCase());
  if (stack !== undefined) return stack;
  throw await noSuch(client, 'stack', reference);
}

async function allStacks(client: Client): Promise<readonly JsonObject[]> {
  const path = await stacksPath(client);
  const stacks: JsonObject[] = [];
  const read = (cursor: string): Promise<JsonObject> =>
    client.restCall(
      'GET',
      `${path}?${new URLSearchParams({ limit: String(PAGE), cursor }).toString()}`,
      undefined,
      undefined,
      (text) => listWith(text, OF_USERS),
    );
  for await (const page of pagesOf('the stacks', read)) stacks.push(...listField(page, 'data'));
  return stacks;
}

const stacksPath = async (client: Client): Promise<string> => `/stack/${await client.workspaceId()}`;
