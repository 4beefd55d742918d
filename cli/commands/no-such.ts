// The failure that nothing has a name or an id, with the one that was probably meant.
import type { Client } from '../client.ts';
import type { CliError } from '../errors.ts';
import { notFound } from '../errors.ts';
import { listField, textField } from '../json.ts';
import { nearName, withNear } from '../near-name.ts';
import { sharedNames } from '../shared-names.ts';
import { allVolumes } from '../transfer/volume-files.ts';

/** Lists that have the names, by the kind of thing. */
const NAMES = {
  volume: async (client) => (await allVolumes(client)).map((one) => textField(one, 'name')),
  secret: async (client) =>
    listField(await client.rest(`/secret/${await client.workspaceId()}`), 'data').map((one) => textField(one, 'name')),
  stack: async (client) =>
    listField(await client.rest(`/stack/${await client.workspaceId()}?limit=1000`), 'data').map((one) =>
      textField(one, 'name'),
    ),
  map: async (client) => (await sharedNames(client, 'map')).map((one) => textField(one, 'name')),
  machine: async (client) =>
    listField(await client.gateway('GET', '/machines'), 'machines').map((one) => textField(one, 'id')),
  worker: async (client) =>
    listField(await client.gateway('GET', '/workers'), 'workers').map((one) => textField(one, 'id')),
} as const satisfies Record<string, (client: Client) => Promise<string[]>>;

/** `there is no volume modles in this workspace; did you mean models? …` */
export async function noSuch(
  client: Client,
  kind: keyof typeof NAMES,
  name: string,
  cause?: unknown,
): Promise<CliError> {
  // A token that may not list them gets the sentence without a suggestion.
  const near = nearName(name, await NAMES[kind](client).catch(() => []));
  const where = kind === 'machine' || kind === 'worker' ? '' : ' in this workspace';
  return notFound(
    withNear(`there is no ${kind} ${name}${where}`, near, `\`longshore ${kind} list\` shows them`),
    cause,
  );
}
