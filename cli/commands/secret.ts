// `longshore secret`: values that the workspace's containers get as variables. A value comes
// from stdin or a file, never from the command line, which other users of the host can see.
import { readFile } from 'node:fs/promises';
import { messageOf } from '#shared/errors.ts';
import type { Client } from '../client.ts';
import { CliError, usageError } from '../errors.ts';
import type { SecretSetFlags } from '../flags.ts';
import { ageOf } from '../format.ts';
import { listField, numberField, textField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { pagesOf } from '../pages.ts';
import { note } from '../print.ts';
import { askHidden, readStdin } from '../typed.ts';
import { configOf } from './deployment-settings.ts';
import { noSuch } from './no-such.ts';
import { showDone, showList, withClient } from './run.ts';
import type { Invocation } from './run.ts';

/** Deployments of one request. */
const PAGE = 1_000;
/** Deployments that a warning names. */
const MOST_SHOWN = 5;

export async function runSecretList(invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const answer = await client.rest(await secretsPath(client));
    const nowMs = Date.now();
    showList(invocation, listField(answer, 'data'), ['NAME', 'CREATED', 'CHANGED'], (secret) => [
      textField(secret, 'name'),
      `${ageOf(textField(secret, 'created_at'), nowMs)} ago`,
      `${ageOf(textField(secret, 'updated_at'), nowMs)} ago`,
    ]);
  });
}

/** Creates the secret, or replaces its value. */
export async function runSecretSet(name: string, flags: SecretSetFlags, invocation: Invocation): Promise<void> {
  const value = await readValue(name, flags);
  await withClient(invocation, async (client) => {
    const { made, secret } = await putSecret(client, name, value);
    showDone(invocation, secret, [
      made ? `made secret ${name}` : `changed secret ${name}: containers that start from now on get the new value`,
    ]);
  });
}

export async function runSecretDelete(name: string, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const users = await usersOf(client, name);
    await client
      .restCall('DELETE', `${await secretsPath(client)}/${encodeURIComponent(name)}`)
      .catch(async (error: unknown) => {
        if (!(error instanceof CliError) || error.status !== 404) throw error;
        throw await noSuch(client, 'secret', name, error);
      });
    for (const line of inUseLines(name, users)) note(line);
    const told = { name, done: 'deleted', used_by: users.names, used_by_complete: users.lack === '' };
    showDone(invocation, told, [`deleted secret ${name}`]);
  });
}

/** Active deployments that name a secret, as `hello/v3`. */
interface SecretUsers {
  readonly names: readonly string[];
  /** Reason why there may be more of them; empty: these are all. */
  readonly lack: string;
}

/** A list that the scheduler refuses, or that breaks off, keeps no secret from being deleted. */
async function usersOf(client: Client, name: string): Promise<SecretUsers> {
  const names: string[] = [];
  const path = `/deployment/${await client.workspaceId()}`;
  try {
    for await (const page of pagesOf('the deployments', (cursor) =>
      client.rest(`${path}?${new URLSearchParams({ active: 'true', limit: String(PAGE), cursor }).toString()}`),
    ))
      for (const one of listField(page, 'data')) if (namesSecret(one, name)) names.push(shownUser(one));
  } catch (error) {
    if (!(error instanceof CliError)) throw error;
    return { names, lack: error.message };
  }
  return { names, lack: '' };
}

const namesSecret = (deployment: JsonObject, name: string): boolean =>
  listField(configOf(deployment), 'secrets').some((secret) => textField(secret, 'name') === name);

const shownUser = (deployment: JsonObject): string =>
  `${textField(deployment, 'name')}/v${numberField(deployment, 'version')}`;

/** @internal exported for its test: warnings on stderr */
export function inUseLines(name: string, { names, lack }: SecretUsers): readonly string[] {
  const more = names.length > MOST_SHOWN ? `, and ${names.length - MOST_SHOWN} more` : '';
  const used =
    `warning: ${names.slice(0, MOST_SHOWN).join(', ')}${more} named ${name}: their next containers do not start. ` +
    `Set it again with \`longshore secret set ${name}\`, or deploy without it`;
  const unknown =
    `warning: there may be ${names.length === 0 ? '' : 'more '}deployments that name ${name}, and whose next containers do not start. ` +
    `They could not all be listed: ${lack}`;
  return [...(names.length === 0 ? [] : [used]), ...(lack === '' ? [] : [unknown])];
}

/** Updates the secret, or creates it when there is none. */
export async function putSecret(
  client: Client,
  name: string,
  value: string,
): Promise<{ readonly made: boolean; readonly secret: JsonObject }> {
  const path = await secretsPath(client);
  return client.restCall('PUT', `${path}/${encodeURIComponent(name)}`, { value }).then(
    (secret) => ({ made: false, secret }),
    async (error: unknown) => {
      if (!(error instanceof CliError) || error.status !== 404) throw error;
      return { made: true, secret: await client.restCall('POST', path, { name, value }) };
    },
  );
}

export const secretsPath = async (client: Client): Promise<string> => `/secret/${await client.workspaceId()}`;

/** Reads the value, without the single line end that a pipe or an editor adds. */
export async function readValue(name: string, flags: SecretSetFlags): Promise<string> {
  const raw = flags.file === undefined ? await fromStdin(name) : await fromFile(flags.file);
  const value = raw.replace(/\r?\n$/, '');
  if (value === '') throw usageError('the value is empty: pipe it in, or name a file with --file');
  return value;
}

async function fromFile(path: string): Promise<string> {
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    throw new CliError(`cannot read ${path} (${messageOf(error)})`, { cause: error });
  }
}

const fromStdin = (name: string): Promise<string> =>
  process.stdin.isTTY ? askHidden(`value of ${name} (not shown): `) : readStdin();
