// The way an app becomes a deployment: describe, pack, check or create the object, upload, stub, deploy. `longshore
// deploy` and the example of `longshore up` use all of it, `longshore prepare` all but the last step.
import type { Client } from '../client.ts';
import { sleep } from '#shared/backoff.ts';
import { isRecord } from '#shared/json.ts';
import { CliError } from '../errors.ts';
import { listField, numberField, textField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { packFiles } from './archive.ts';
import { describeApp, givenDefinition } from './describe.ts';
import { kindOf, stubFields } from './describe.ts';
import type { HandlerDefinition } from './describe.ts';
import { collectFiles } from './files.ts';
import type { AppFiles } from './files.ts';
import { resolveImage } from './image.ts';
import { uploadArchive } from './upload.ts';
import { checkSecrets, isRefusal, placed, withLimitCure, withSecretCure } from './refusals.ts';
import { rolloutIn } from './rollout.ts';
import type { RolloutFacts } from './rollout.ts';
import { resolveVolumes } from './volumes.ts';

export interface Deployed {
  readonly name: string;
  readonly kind: string;
  readonly deploymentId: string;
  readonly stubId: string;
  readonly version: number;
  readonly url: string;
  /** Address of a web application or a pod on a host of its own, for browsers; null: another kind. `<PORT>` stands in
   * the addresses of a pod with several ports. */
  readonly hostUrl: string | null;
  /** Ports of a pod. */
  readonly ports: readonly number[];
  /** Anybody may call it, without a token. */
  readonly isPublic: boolean;
  /** The handler takes WebSockets alone; absent: no. */
  readonly isRealtime?: boolean;
  /** Names that a call must give; null: not known. */
  readonly requiredInputs: readonly string[] | null;
  /** Names of the file's other handlers: each is deployed by itself. */
  readonly otherHandlers: readonly string[];
  /** The version that serves the name already was this, and no new one was made. */
  readonly reused: boolean;
  /** Whether calls of the name reach the version. */
  readonly rollout: RolloutFacts;
}

export interface DeployRequest {
  /** `file.py` or `file.py:handler`. */
  readonly target: string;
  /** The directory to pack; undefined: the file's own. */
  readonly root?: string | undefined;
  readonly name: string | undefined;
  /** Make no new version when the serving one is the same code and recipe. */
  readonly reuse: boolean;
  /** Calls of the name reach the new version at once. */
  readonly now?: boolean;
  readonly onStep: (line: string) => void;
  readonly env: Readonly<Record<string, string | undefined>>;
}

/** @throws CliError naming what was refused and the cure */
export async function deployApp(client: Client, request: DeployRequest): Promise<Deployed> {
  const { root, handler, others } = await describeApp(request.target, request.root, request.env);
  return deployDefinition(
    client,
    { handler, others, objectId: await uploadCode(client, root, request.onStep) },
    request,
  );
}

/** Deploys a handler that was read, with code that was uploaded. @throws CliError with what was refused and the cure */
export async function deployDefinition(
  client: Client,
  read: {
    readonly handler: HandlerDefinition;
    readonly others: readonly string[];
    readonly objectId: string;
  },
  request: Omit<DeployRequest, 'target' | 'root' | 'env'>,
): Promise<Deployed> {
  return { ...(await deployHandler(client, read.handler, read.objectId, request)), otherHandlers: read.others };
}

/** A handler that can be called by its stub's id, and has no deployment. */
export interface Prepared {
  readonly name: string;
  readonly kind: string;
  readonly stubId: string;
}

/**
 * Everything of a deploy but the deployment: a file as it is now becomes a stub. The same code and recipe give the same
 * stub.
 * @throws CliError naming what was refused and the cure
 */
export async function prepareApp(client: Client, request: Omit<DeployRequest, 'name' | 'reuse'>): Promise<Prepared> {
  const { root, handler } = await describeApp(request.target, request.root, request.env);
  return prepareDefinition(client, handler, root, request.onStep);
}

/**
 * As `prepareApp`, of a definition that a program gives.
 * @param text - JSON with the fields of a handler, as `longshore.describe` writes them
 * @param root - the directory to pack; undefined: none
 * @throws CliError naming what was refused and the cure
 */
export async function prepareGiven(
  client: Client,
  { text, root, onStep }: { readonly text: string; readonly root?: string; readonly onStep: (line: string) => void },
): Promise<Prepared> {
  return prepareDefinition(client, givenDefinition(text), root, onStep);
}

/** As `prepareApp`, of a definition that was read. @param root - the directory to pack; undefined: none */
export async function prepareDefinition(
  client: Client,
  handler: HandlerDefinition,
  root: string | undefined,
  onStep: (line: string) => void,
): Promise<Prepared> {
  const objectId = root === undefined ? '' : await uploadCode(client, root, onStep);
  const kind = kindOf(handler);
  const stubId = await createStub(client, handler, async () => ({ stubType: kind, objectId }), onStep);
  return { name: handler.name, kind, stubId };
}

/** Uploads the files of an app, unless the installation has them. @returns the object's id */
export async function uploadCode(client: Client, root: string, onStep: (line: string) => void): Promise<string> {
  return uploadFiles(client, await collectFiles(root), onStep);
}

/** As `uploadCode`, of files that were collected. */
export async function uploadFiles(client: Client, found: AppFiles, onStep: (line: string) => void): Promise<string> {
  saySkipped(found, onStep);
  const archive = await packFiles(found);
  try {
    return await uploadArchive(client, archive, onStep);
  } finally {
    await archive.remove();
  }
}

export function saySkipped({ skipped }: AppFiles, onStep: (line: string) => void): void {
  for (const path of skipped)
    onStep(`left out ${path}: it is a link to nothing or to a directory elsewhere, or no file`);
}

/**
 * Makes the stub, with its image and its volumes.
 * @param fields - of the stub, asked for when its image is there
 * @returns the stub's id
 */
export async function createStub(
  client: Client,
  handler: HandlerDefinition,
  fields: () => Promise<Readonly<Record<string, unknown>>>,
  onStep: (line: string) => void,
): Promise<string> {
  const recipe = stubFields(handler);
  await checkSecrets(client, handler).catch((error: unknown) => {
    throw isRefusal(error) ? placed(handler, error) : error;
  });
  const imageId = await resolveImage(client, handler, onStep);
  const volumes = await resolveVolumes(client, handler);
  const own = await fields();
  const stub = await client
    .gateway('POST', '/stubs', { ...recipe, imageId, volumes, ...own })
    .catch(async (error: unknown) => {
      if (!isRefusal(error)) throw error;
      const workspaceId = await client.workspaceId().catch(() => 'WORKSPACE');
      throw placed(handler, withLimitCure(withSecretCure(error), { handler, workspaceId }));
    });
  const warning = textField(stub, 'warnMsg');
  if (warning !== '') onStep(`warning: ${warning}`);
  return textField(stub, 'stubId');
}

async function deployHandler(
  client: Client,
  handler: HandlerDefinition,
  objectId: string,
  request: Omit<DeployRequest, 'target' | 'root' | 'env'>,
): Promise<Omit<Deployed, 'otherHandlers'>> {
  const { requiredInputs } = handler;
  const isPublic = handler['authorized'] === false;
  const realtime = handler.isRealtime === true ? { isRealtime: true } : {};
  const kind = kindOf(handler);
  const name = request.name ?? handler.name;
  const stubType = `${kind}/deployment`;
  const fields = async () => ({
    stubType,
    objectId,
    ...(await runOnDeploy(client, handler, objectId, request.onStep)),
  });
  const stubId = await createStub(client, handler, fields, request.onStep);
  if (request.reuse) {
    const latest = await servingDeployment(client, name, stubType);
    if (latest !== undefined && latest.active && latest.stubId === stubId) {
      const ids = { stubId, deploymentId: latest.id };
      const url = (await urlOf(client, ids, isPublic ? 'name' : '')) ?? '';
      const hostUrl = await hostUrlOf(client, kind, ids, isPublic);
      return {
        name,
        kind,
        deploymentId: latest.id,
        stubId,
        version: latest.version,
        url,
        hostUrl,
        isPublic,
        ...realtime,
        ports: portsOf(handler),
        requiredInputs,
        reused: true,
        rollout: { state: 'done', why: '' },
      };
    }
  }
  const deployed = await client.gateway('POST', '/stubs/deploy', {
    stubId,
    name,
    rollout: request.now === true ? 'now' : 'auto',
  });
  const doubt = textField(deployed, 'warnMsg');
  if (doubt !== '') request.onStep(`warning: ${doubt}`);
  const deploymentId = textField(deployed, 'deploymentId');
  return {
    name,
    kind,
    deploymentId,
    stubId,
    version: numberField(deployed, 'version'),
    // Programs of strangers have this address: it has to stay when the version changes.
    url: (isPublic ? await urlOf(client, { stubId, deploymentId }, 'name') : null) ?? textField(deployed, 'invokeUrl'),
    hostUrl: await hostUrlOf(client, kind, { stubId, deploymentId }, isPublic),
    isPublic,
    ...realtime,
    ports: portsOf(handler),
    requiredInputs,
    reused: false,
    rollout: rolloutIn(deployed),
  };
}

const portsOf = ({ ports }: HandlerDefinition): readonly number[] =>
  Array.isArray(ports) ? ports.filter((port) => typeof port === 'number') : [];

interface DeployedIds {
  readonly stubId: string;
  readonly deploymentId: string;
}

const hostUrlOf = async (client: Client, kind: string, ids: DeployedIds, isPublic: boolean): Promise<string | null> =>
  kind === 'asgi' || kind === 'pod' ? urlOf(client, ids, isPublic ? 'name-host' : 'host') : null;

/** @param form - as `urlType` of GetURL */
async function urlOf(client: Client, ids: DeployedIds, form: string): Promise<string | null> {
  const path = `/stubs/${ids.stubId}/url?deploymentId=${ids.deploymentId}&urlType=${form}`;
  // The deployment stands, whatever becomes of this question.
  const address = await client.gateway('GET', path).catch(() => null);
  return address === null ? null : textField(address, 'url');
}

/** Longest pause between two looks at the hook's task. */
const HOOK_PAUSE_MS = 1_000;

/**
 * Runs the function that `on_deploy` names, with the code of this deployment, and waits for its end.
 * @returns the stub's field; nothing where there is no such function
 * @throws CliError when the function did not complete: nothing is deployed then
 */
async function runOnDeploy(
  client: Client,
  handler: HandlerDefinition,
  objectId: string,
  onStep: (line: string) => void,
): Promise<{ readonly onDeployStubId?: string }> {
  const hook = handler['onDeployHandler'];
  if (!isRecord(hook)) return {};
  const definition = { ...hook, requiredInputs: null } as unknown as HandlerDefinition;
  const onDeployStubId = await createStub(client, definition, async () => ({ stubType: 'function', objectId }), onStep);
  onStep(`running ${definition.name} before the deployment`);
  const taskId = await putTask(client, onDeployStubId, definition.name);
  for (;;) {
    const listed = await client.gateway('GET', `/tasks?limit=1&filters=task-id=${taskId}`);
    const [task] = listField(listed, 'tasks');
    const status = task === undefined ? '' : textField(task, 'status');
    if (status === 'COMPLETE') return { onDeployStubId };
    if (['ERROR', 'CANCELLED', 'TIMEOUT', 'EXPIRED'].includes(status)) {
      throw new CliError(
        `on_deploy: ${definition.name} ended as ${status}, so nothing was deployed: \`longshore logs --task ${taskId}\` shows its output`,
      );
    }
    await sleep(HOOK_PAUSE_MS);
  }
}

/** Puts a task of a function's stub, without inputs. */
async function putTask(client: Client, stubId: string, name: string): Promise<string> {
  const answer = await client.call(`/function/id/${stubId}`, { method: 'POST', body: '{}' });
  const text = answer.body.toString('utf8');
  if (answer.status !== 200) throw new CliError(`on_deploy: ${name} was refused with ${answer.status}: ${text}`);
  return textField(JSON.parse(text) as JsonObject, 'task_id');
}

export interface DeploymentSummary {
  readonly id: string;
  readonly stubId: string;
  readonly version: number;
  readonly active: boolean;
  /** Calls of the name reach it. */
  readonly serving: boolean;
}

/** The highest version of exactly that name and stub type. */
export const latestDeployment = async (
  client: Client,
  name: string,
  stubType: string,
): Promise<DeploymentSummary | undefined> => (await versionsOf(client, name, stubType))[0];

/** The version of exactly that name and stub type that calls of the name reach. */
async function servingDeployment(
  client: Client,
  name: string,
  stubType: string,
): Promise<DeploymentSummary | undefined> {
  const versions = await versionsOf(client, name, stubType);
  // A scheduler of the release before marks none.
  return versions.find(({ serving }) => serving) ?? versions[0];
}

/** The versions of exactly that name and stub type, the highest first. */
async function versionsOf(client: Client, name: string, stubType: string): Promise<readonly DeploymentSummary[]> {
  // The list's name filter means "contains"; the exact name is picked here.
  const filters = encodeURIComponent(JSON.stringify({ name }));
  const answer = await client.gateway('GET', `/deployments?limit=1000&filters=${filters}`);
  return listField(answer, 'deployments')
    .filter((item) => textField(item, 'name') === name && textField(item, 'stubType') === stubType)
    .map((item) => ({
      id: textField(item, 'id'),
      stubId: textField(item, 'stubId'),
      version: numberField(item, 'version'),
      active: item['active'] === true,
      serving: item['serving'] === true,
    }))
    .toSorted((a, b) => b.version - a.version);
}
