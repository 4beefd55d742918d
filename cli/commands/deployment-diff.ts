// `longshore deployment diff`: what differs between two versions of a name. Values of environment variables are not
// shown, because they may be secret.
import { membersOf } from '#shared/json-text.ts';
import type { Client } from '../client.ts';
import { filesChanged, zipListing } from '../deploy/zip-listing.ts';
import type { FilesChanged, ZipListing } from '../deploy/zip-listing.ts';
import { CliError } from '../errors.ts';
import { objectField, textField, textsField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { shown } from './deployment-reference.ts';
import type { DeploymentFacts } from './deployment-reference.ts';
import { comparedVersions, readVersions } from './deployment-versions.ts';
import { showDone, withClient } from './run.ts';
import type { Invocation } from './run.ts';

/** A value that differs: `field` is its place, such as `autoscaler.max_containers`. */
export interface ConfigChange {
  readonly field: string;
  /** null: it was not there. */
  readonly from: string | null;
  readonly to: string | null;
}

const DOWNLOAD_MS = 600_000;
const NO_FILES: FilesChanged = { added: [], removed: [], changed: [] };

export async function runDeploymentDiff(
  name: string,
  asked: { readonly from: string | undefined; readonly to: string | undefined },
  invocation: Invocation,
): Promise<void> {
  await withClient(invocation, async (client) => {
    const [from, to] = comparedVersions(await readVersions(client, name), asked);
    const [before, after] = await Promise.all([recordOf(client, from), recordOf(client, to)]);
    const config = configChanges(configOf(before), configOf(after));
    const objects = [textField(before, 'object_id'), textField(after, 'object_id')] as const;
    const files = objects[0] === objects[1] ? NO_FILES : await filesBetween(client, objects);
    showDone(
      invocation,
      { name: to.name, from: from.version, to: to.version, config, files },
      linesOf(shown(from), `v${to.version}`, config, files),
    );
  });
}

async function recordOf(client: Client, { id }: DeploymentFacts): Promise<JsonObject> {
  return client.rest(`/deployment/${await client.workspaceId()}/${id}`);
}

const configOf = (record: JsonObject): string => textField(objectField(record, 'stub'), 'config') || '{}';

async function filesBetween(client: Client, [before, after]: readonly [string, string]): Promise<FilesChanged> {
  const [first, second] = await Promise.all([listingOf(client, before), listingOf(client, after)]);
  return filesChanged(first, second);
}

async function listingOf(client: Client, objectId: string): Promise<ZipListing> {
  if (objectId === '') return new Map();
  const { url } = await client.rest(`/object/${await client.workspaceId()}/${objectId}/download-url`);
  const answer = await client.call(String(url), { anonymous: true, timeoutMs: DOWNLOAD_MS });
  if (answer.status !== 200) throw new CliError(`the code ${objectId} could not be read (status ${answer.status})`);
  return zipListing(answer.body);
}

/** Values that differ, in the order of their places. @param before - an object as JSON, whose values keep their text */
export function configChanges(before: string, after: string): readonly ConfigChange[] {
  const [from, to] = [flat(before), flat(after)];
  const fields = [...new Set([...from.keys(), ...to.keys()])].toSorted();
  return fields
    .filter((field) => from.get(field) !== to.get(field))
    .map((field) => ({ field, from: told(field, from.get(field)), to: told(field, to.get(field)) }));
}

const told = (field: string, value: string | undefined): string | null =>
  value === undefined ? null : field.startsWith(ENV) ? '(set)' : value;

const ENV = 'env ';
/** The digest of all parameters, which are compared one by one. */
const RECIPE = 'extra.recipe';

/** Every value by its place; a variable of the environment by its name. */
function flat(config: string): ReadonlyMap<string, string> {
  const values = new Map<string, string>();
  const add = (text: string, place: string): void => {
    if (place === RECIPE) return;
    if (!text.startsWith('{')) return void values.set(place, text);
    for (const { name, valueFrom, to } of membersOf(text)) add(text.slice(valueFrom, to), `${place}.${name}`);
  };
  for (const { name, valueFrom, to } of membersOf(config)) {
    if (name !== 'env') add(config.slice(valueFrom, to), name);
  }
  for (const entry of textsField(JSON.parse(config) as JsonObject, 'env')) {
    const [variable = ''] = entry.split('=', 1);
    values.set(`${ENV}${variable}`, entry);
  }
  return values;
}

function linesOf(from: string, to: string, config: readonly ConfigChange[], files: FilesChanged): readonly string[] {
  const { added, removed, changed } = files;
  const ofFiles = [
    ...changed.map((name) => `  ~ ${name}`),
    ...added.map((name) => `  + ${name}`),
    ...removed.map((name) => `  - ${name}`),
  ];
  if (config.length === 0 && ofFiles.length === 0) return [`${from} and ${to} are the same`];
  return [
    `${from} to ${to}`,
    ...(config.length === 0 ? [] : ['configuration:', ...config.map(configLine)]),
    ...(ofFiles.length === 0 ? [] : ['files:', ...ofFiles]),
  ];
}

function configLine({ field, from, to }: ConfigChange): string {
  if (from === null) return `  + ${field} ${to ?? ''}`;
  if (to === null) return `  - ${field} ${from}`;
  return from === to ? `  ~ ${field}` : `  ~ ${field} ${from} -> ${to}`;
}
