// Resolves the deployment that a person names: an id, a name (the version that serves it), or a name with a version
// (`hello/v3`). The kind stands in front where an endpoint and a task queue share a name (`taskqueue/hello`).
import { isUuid } from '#shared/domain/ids.ts';
import { kindOf } from '#shared/domain/status.ts';
import type { Client } from '../client.ts';
import { CliError, notFound, usageError } from '../errors.ts';
import { EXIT } from '../exit-codes.ts';
import { listField, numberField, textField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { nearName, withNear } from '../near-name.ts';
import { wholeIdOf } from '../short-id.ts';

export interface DeploymentFacts {
  readonly id: string;
  readonly name: string;
  readonly kind: string;
  readonly version: number;
  readonly active: boolean;
  readonly stubId: string;
  /** Calls of the name reach this version; false also where that is not known. */
  readonly serving: boolean;
  /** State of its rollout; empty: it had none. */
  readonly rollout: string;
}

/** A reference, parsed from the person's text. */
export type DeploymentReference =
  | { readonly id: string }
  | { readonly name: string; readonly kind: string | undefined; readonly version: number | undefined };

const KINDS = ['endpoint', 'asgi', 'taskqueue', 'function', 'schedule', 'pod', 'bot'];
const HINT = '`longshore deployment list` shows them';
/** The most items that the scheduler returns for one list. */
const LIST_LIMIT = 1000;

/** @throws CliError when the text has none of the forms */
export function parseReference(text: string): DeploymentReference {
  if (isUuid(text)) return { id: text };
  const parts = text.split('/');
  const version = /^v([1-9]\d{0,8})$/.exec(parts.length > 1 ? (parts.at(-1) ?? '') : '')?.[1];
  if (version !== undefined) parts.pop();
  const kind = parts.length > 1 && KINDS.includes(parts[0] ?? '') ? parts.shift() : undefined;
  const name = parts.join('/');
  if (name === '' || parts.includes('')) {
    throw usageError(
      `${JSON.stringify(text)} is not a deployment: give its id, a name, or a name and version (hello/v3)`,
    );
  }
  return { name, kind, version: version === undefined ? undefined : Number(version) };
}

/** The deployments of a list answer. */
export function deploymentsOf(answer: JsonObject): readonly DeploymentFacts[] {
  return listField(answer, 'deployments').map(factsOf);
}

/**
 * Every deployment that the reference can mean, the highest version first: all versions of a name, or one.
 * @throws CliError when no deployment matches
 */
export async function deploymentsNamed(client: Client, text: string): Promise<readonly DeploymentFacts[]> {
  const reference = parseReference(text);
  if ('id' in reference) return [await deploymentWithId(client, reference.id)];
  const { name, kind, version } = reference;
  const filters = { name: [name], ...(version === undefined ? {} : { version: [String(version)] }) };
  const query = new URLSearchParams({ limit: String(LIST_LIMIT), filters: JSON.stringify(filters) });
  const all = deploymentsOf(await client.gateway('GET', `/deployments?${query.toString()}`));
  // The list's name filter means "contains"; the exact name is picked here.
  const found = all.filter(
    (one) =>
      one.name === name &&
      (kind === undefined || one.kind === kind) &&
      (version === undefined || one.version === version),
  );
  if (found.length === 0) throw notFound(noneText({ text, name, version }, all, await everyDeployment(client)));
  return found.toSorted((a, b) => b.version - a.version);
}

/**
 * The one deployment that the reference means; a name means the version that its calls reach.
 * @throws CliError when none matches, or when several kinds share the name
 */
export async function oneDeployment(client: Client, text: string): Promise<DeploymentFacts> {
  const found = await deploymentsNamed(client, text);
  const [latest] = found;
  const kinds = [...new Set(found.map((one) => one.kind))];
  if (latest === undefined || kinds.length > 1) throw ambiguous(text, kinds);
  // A scheduler of the release before marks none: its calls reach the highest.
  return found.find(({ serving }) => serving) ?? latest;
}

/**
 * The same for a command that only reads: it takes the beginning or the end of an id, too. One that changes something
 * does not, because a misspelt name may be part of the id of another deployment.
 * @throws CliError as `oneDeployment`
 */
export async function shownDeployment(client: Client, text: string): Promise<DeploymentFacts> {
  try {
    return await oneDeployment(client, text);
  } catch (error) {
    if (!(error instanceof CliError) || error.exitCode !== EXIT.notFound) throw error;
    const all = await everyDeployment(client);
    const id = await wholeIdOf(text, { noun: 'deployment', ids: () => Promise.resolve(all.map((one) => one.id)) });
    const meant = all.find((one) => one.id === id);
    if (meant === undefined) throw error;
    return meant;
  }
}

/** Whether the text names one version, by its id or its number. @throws CliError as `parseReference` */
export function isOneVersion(text: string): boolean {
  const reference = parseReference(text);
  return 'id' in reference || reference.version !== undefined;
}

/** All versions of the name that the reference means. @throws CliError as `oneDeployment` */
export async function allVersions(client: Client, text: string): Promise<readonly DeploymentFacts[]> {
  if (isOneVersion(text)) throw usageError(`--all-versions goes with a name, and ${text} is one version`);
  const found = await deploymentsNamed(client, text);
  const kinds = [...new Set(found.map((one) => one.kind))];
  if (kinds.length > 1) throw ambiguous(text, kinds);
  return found;
}

/** `hello v3`. */
export const shown = (deployment: DeploymentFacts): string => `${deployment.name} v${deployment.version}`;

/** Kind of a container, such as `sandbox`: its id begins so. Empty: not known. */
export const kindOfContainer = (container: JsonObject): string =>
  /^([a-z]+)-[0-9a-f]{8}-/.exec(textField(container, 'containerId'))?.[1] ?? '';

/** Kind of a container without a deployment, with the name that its program gave it: `box (sandbox)`. */
function namedKind(container: JsonObject): string {
  const kind = kindOfContainer(container);
  const name = textField(container, 'stubName');
  return name === '' || name === kind || name.startsWith(`${kind}/`) ? kind : `${name} (${kind})`;
}

/**
 * The deployment of a container by its name. A container without one has its own name and its kind instead.
 * @param names - of deployments by id
 */
export function servedBy(container: JsonObject, names: ReadonlyMap<string, string> = new Map()): string {
  const deploymentId = textField(container, 'deploymentId');
  if (deploymentId !== '') return names.get(deploymentId) ?? '-';
  return namedKind(container) || '-';
}

function ambiguous(text: string, kinds: readonly string[]): CliError {
  const forms = kinds.map((kind) => `${kind}/${text}`).join(' or ');
  return usageError(`${text} is the name of several kinds: say ${forms}`);
}

async function deploymentWithId(client: Client, id: string): Promise<DeploymentFacts> {
  const path = `/deployment/${await client.workspaceId()}/${id.toLowerCase()}`;
  const found = await client.rest(path).catch(async (error: unknown) => {
    if (!(error instanceof CliError) || error.status !== 404) throw error;
    const near = nearName(
      id,
      (await everyDeployment(client)).map((one) => one.id),
    );
    throw new CliError(withNear(`no deployment has the id ${id}`, near, HINT), { cause: error });
  });
  return factsOf(found);
}

const factsOf = (item: JsonObject): DeploymentFacts => ({
  id: textField(item, 'id'),
  name: textField(item, 'name'),
  kind: kindOf(textField(item, 'stubType')),
  version: numberField(item, 'version'),
  active: item['active'] === true,
  stubId: textField(item, 'stubId'),
  serving: item['serving'] === true,
  rollout: textField(item, 'rollout'),
});

/** The newest deployments; none where this token may not see them. */
const everyDeployment = (client: Client): Promise<readonly DeploymentFacts[]> =>
  client.gateway('GET', `/deployments?limit=${LIST_LIMIT}`).then(deploymentsOf, () => []);

/** Says that there is none, with names that contain the text, else the one that was probably meant. */
function noneText(
  { text, name, version }: { readonly text: string; readonly name: string; readonly version: number | undefined },
  all: readonly DeploymentFacts[],
  others: readonly DeploymentFacts[],
): string {
  if (version !== undefined && all.some((one) => one.name === name)) return `there is no ${text}: ${HINT}`;
  const containing = [...new Set(all.map((one) => one.name))].slice(0, 5);
  if (containing.length > 0) return `no deployment is named ${text} (there is ${containing.join(', ')}): ${HINT}`;
  const near = nearName(
    name,
    others.map((one) => one.name),
  );
  return withNear(`no deployment is named ${text}`, near, HINT);
}
