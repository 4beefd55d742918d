// The image of an app: the one that it names, or one that the scheduler builds from its definition. The output is shown
// line by line, and nothing is built that exists.
import type { Client } from '../client.ts';
import { CliError } from '../errors.ts';
import { objectField, textField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { packFiles } from './archive.ts';
import type { HandlerDefinition } from './describe.ts';
import { contextFiles } from './files.ts';
import { uploadArchive } from './upload.ts';

const LISTS = ['pythonPackages', 'systemPackages', 'commands', 'buildSteps', 'envVars'] as const;

/** The image that a handler asks for: one by its name (empty: the base image), or a definition that is built. */
export type WantedImage =
  | { readonly kind: 'named'; readonly name: string }
  | { readonly kind: 'built'; readonly definition: JsonObject; readonly context: BuildContext | undefined };

/** The folder of a Dockerfile. */
export interface BuildContext {
  readonly directory: string;
  /** Path of the Dockerfile. */
  readonly dockerfile: string;
}

export function wantedImage(handler: HandlerDefinition): WantedImage {
  const image = objectField(handler, 'image');
  const baseImage = textField(image, 'baseImage') || textField(handler, 'imageId');
  const dockerfile = textField(image, 'dockerfile');
  const lists = Object.fromEntries(LISTS.map((name) => [name, listOf(image, name)]));
  const hasMicromamba = textField(image, 'pythonVersion').startsWith('micromamba');
  if (dockerfile === '' && !hasMicromamba && Object.values(lists).every((list) => list.length === 0))
    return { kind: 'named', name: baseImage };
  const definition = {
    ...lists,
    pythonVersion: textField(image, 'pythonVersion'),
    existingImageUri: baseImage,
    dockerfile,
    buildCtxObject: '',
    gpu: textField(image, 'gpu'),
    // The image is built where the app's containers may run.
    machineGpu: textField(handler, 'gpu'),
    pool: textField(objectField(handler, 'pool'), 'name'),
  };
  const context = { directory: textField(image, 'contextDir'), dockerfile: textField(image, 'dockerfilePath') };
  return { kind: 'built', definition, context: dockerfile === '' ? undefined : context };
}

/**
 * The image id for a stub.
 * @throws CliError with the failing step and its last lines, or why the definition is refused
 */
export async function resolveImage(
  client: Client,
  handler: HandlerDefinition,
  onStep: (line: string) => void,
): Promise<string> {
  const wanted = wantedImage(handler);
  if (wanted.kind === 'named') return wanted.name;
  const { context } = wanted;
  const definition = {
    ...wanted.definition,
    buildCtxObject: context === undefined ? '' : await uploadContext(client, context, onStep),
  };
  const known = await client.gateway('POST', '/images/verify-build', definition).catch((error: unknown) => {
    if (error instanceof CliError) throw new CliError(`the image: ${error.message}`, { cause: error });
    throw error;
  });
  if (known['exists'] === true) return textField(known, 'imageId');
  onStep('building the image');
  const shown: string[] = [];
  const last = await client.gatewayStream('/images/build', definition, (message) => {
    const result = objectField(message, 'result');
    const text = textField(result, 'msg').trimEnd();
    if (result['done'] === true || text === '') return;
    shown.push(...text.split('\n'));
    shown.splice(0, shown.length - MOST_COMPARED);
    onStep(`  ${text}`);
  });
  const result = objectField(last, 'result');
  if (result['done'] !== true)
    throw new CliError('the connection to the scheduler ended during the build: deploy again, which goes on with it');
  if (result['success'] !== true)
    throw new CliError(`the image was not built: ${withoutShown(textField(result, 'msg'), shown)}`);
  onStep(`built image ${textField(result, 'imageId')}`);
  return textField(result, 'imageId');
}

/** Lines of a build that are compared with its failure, which ends with the last of them. */
const MOST_COMPARED = 200;

/**
 * The failure without the lines that were shown as they came. The first line, which names the step, stays.
 * @internal exported for its test
 */
export function withoutShown(failure: string, shown: readonly string[]): string {
  const seen = new Set(shown.map((line) => line.trim()));
  const [first = '', ...rest] = failure.trimEnd().split('\n');
  return [first, ...rest.filter((line) => !seen.has(line.trim()))].join('\n');
}

function listOf(image: JsonObject, name: string): readonly unknown[] {
  const value = image[name];
  return Array.isArray(value) ? value : [];
}

async function uploadContext(
  client: Client,
  { directory, dockerfile }: BuildContext,
  onStep: (line: string) => void,
): Promise<string> {
  const found = await contextFiles(directory, dockerfile);
  for (const path of found.skipped) onStep(`left out ${path}: it is neither a file nor a link`);
  const archive = await packFiles(found);
  try {
    return await uploadArchive(client, archive, onStep);
  } finally {
    await archive.remove();
  }
}
