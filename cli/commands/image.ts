// `longshore image`: images that were built from definitions in app files.
import type { Client } from '../client.ts';
import { CliError } from '../errors.ts';
import { describeApp } from '../deploy/describe.ts';
import { resolveImage } from '../deploy/image.ts';
import { ageOf } from '../format.ts';
import { listField, numberField, objectField, textField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { isRecord } from '#shared/json.ts';
import { pagesOf } from '../pages.ts';
import { note, print } from '../print.ts';
import { configOf } from './deployment-settings.ts';
import { showDone, showList, withClient } from './run.ts';
import type { Invocation } from './run.ts';
import { listedIdOf } from './whole-ids.ts';

export async function runImageList(invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const nowMs = Date.now();
    const [found, users] = await Promise.all([client.rest(await imagesPath(client)), usersOf(client)]);
    const images = listField(found, 'data').map((image) => ({
      ...image,
      deployments: users.get(textField(image, 'id')) ?? [],
    }));
    showList(invocation, images, ['IMAGE', 'STATE', 'USED BY', 'SIZE', 'MACHINES', 'USED', 'LAST STEP'], (image) => [
      textField(image, 'id'),
      textField(image, 'state'),
      image.deployments.slice(0, MOST_USERS).join(',') + (image.deployments.length > MOST_USERS ? ',…' : '') || '-',
      sizeOf(image),
      listField(image, 'machines')
        .map((machine) => textField(machine, 'id'))
        .join(',') || '-',
      `${ageOf(textField(image, 'used_at'), nowMs)} ago`,
      stepsOf(image).at(-1)?.slice(0, 60) ?? '',
    ]);
  });
}

/** Deployments of an image that a table names. */
const MOST_USERS = 3;
/** Deployments that are read at once. */
const PAGE = 500;

/** Active deployments as `hello/v3`, by their image; none where this token may not list them. */
async function usersOf(client: Client): Promise<ReadonlyMap<string, readonly string[]>> {
  const users = new Map<string, string[]>();
  const path = `/deployment/${await client.workspaceId()}`;
  const read = (cursor: string): Promise<JsonObject> =>
    client.rest(`${path}?${new URLSearchParams({ active: 'true', limit: String(PAGE), cursor }).toString()}`);
  try {
    for await (const page of pagesOf('the deployments', read))
      for (const one of listField(page, 'data')) {
        const image = imageOf(one);
        if (image === '') continue;
        const names = users.get(image) ?? [];
        names.push(`${textField(one, 'name')}/v${numberField(one, 'version')}`);
        users.set(image, names);
      }
  } catch (error) {
    if (!(error instanceof CliError)) throw error;
  }
  return users;
}

const imageOf = (deployment: JsonObject): string => textField(objectField(configOf(deployment), 'runtime'), 'image_id');

/** Shows an image and the output of its last build. */
export async function runImageShow(reference: string, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const id = await listedIdOf(client, reference, 'image', await imagesPath(client));
    const path = `${await imagesPath(client)}/${encodeURIComponent(id)}`;
    const [image, { output }] = await Promise.all([client.rest(path), client.rest(`${path}/output`)]).catch(named(id));
    showDone(invocation, { ...image, output }, [
      `${textField(image, 'name')}: ${textField(image, 'state')}, ${sizeOf(image)}`,
      ...stepsOf(image).map((step, index) => `  ${index + 1}. ${step}`),
      ...registryOf(image),
      ...(textField(image, 'error') === '' ? [] : ['', textField(image, 'error')]),
      ...(typeof output !== 'string' || output === '' ? [] : ['', 'Last build:', output]),
    ]);
  });
}

/** Builds the image of an app file without a deployment. */
export async function runImageBuild(target: string, root: string | undefined, invocation: Invocation): Promise<void> {
  const { handler } = await describeApp(target, root, invocation.env);
  await withClient(invocation, async (client) => {
    const imageId = await resolveImage(client, handler, note);
    if (invocation.options.json === true) showDone(invocation, { imageId }, []);
    else print(imageId === '' ? 'the app runs in the base image: there is nothing to build' : imageId);
  });
}

export async function runImageDelete(reference: string, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const id = await listedIdOf(client, reference, 'image', await imagesPath(client));
    await client.restCall('DELETE', `${await imagesPath(client)}/${encodeURIComponent(id)}`).catch(named(id));
    showDone(invocation, { id, done: 'deleted' }, [`deleted image ${id}`]);
  });
}

const imagesPath = async (client: Client): Promise<string> => `/image/${await client.workspaceId()}`;

function named(id: string): (error: unknown) => never {
  return (error) => {
    if (!(error instanceof CliError) || error.status !== 404) throw error;
    throw new CliError(`there is no image ${id} in this workspace: \`longshore image list\` shows them`, {
      cause: error,
    });
  };
}

const stepsOf = (image: JsonObject): readonly string[] =>
  Array.isArray(image['steps']) ? image['steps'].filter((step) => typeof step === 'string') : [];

/** Where other machines get the image from; nothing where no registry was tried. */
function registryOf(image: JsonObject): readonly string[] {
  const { registry } = image;
  const [digest, error] = isRecord(registry) ? [textField(registry, 'digest'), textField(registry, 'error')] : ['', ''];
  if (digest !== '') return ['', `in the registry: ${digest}`];
  return error === '' ? [] : ['', `on its machines alone, because it was not pushed: ${error}`];
}

function sizeOf(image: JsonObject): string {
  const sizes = listField(image, 'machines').map((machine) => numberField(machine, 'size_bytes'));
  return sizes.length === 0 ? '-' : `${Math.ceil(Math.max(...sizes) / 1024 ** 2)} MiB`;
}
