// The effects that a deploy would have, found by questions alone: nothing is uploaded, built or made.
import { isRecord } from '#shared/json.ts';
import type { Client } from '../client.ts';
import { CliError } from '../errors.ts';
import { listField, objectField, textField, textsField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { allVolumes } from '../transfer/volume-files.ts';
import { packFiles } from './archive.ts';
import { latestDeployment } from './deploy.ts';
import { kindOf } from './describe.ts';
import { collectFiles } from './files.ts';
import type { AppFiles } from './files.ts';
import { contextFiles } from './files.ts';
import { wantedImage } from './image.ts';
import { checkStub, problemsOf } from './refusals.ts';
import type { DeployItem } from './targets.ts';

/** Files that travel together. */
export interface FilesPlan {
  readonly directory: string;
  readonly files: readonly { readonly path: string; readonly bytes: number }[];
  /** Bytes of the files before they are packed. */
  readonly totalBytes: number;
  readonly archiveBytes: number;
  /** The installation has these bytes: nothing is uploaded. */
  readonly isThere: boolean;
  readonly leftOut: readonly string[];
}

export interface ImagePlan {
  /** base: of the Python version; named: another, as it is; built: from the definition. */
  readonly kind: 'base' | 'named' | 'built';
  /** Name of a named image, id of a built one; empty: not known before its files are there. */
  readonly name: string;
  readonly pythonVersion: string;
  /** False: a deploy builds it. */
  readonly exists: boolean;
  readonly steps: readonly string[];
  /** Files that its Dockerfile copies from; null: none. */
  readonly context: FilesPlan | null;
}

export interface VolumePlan {
  /** Name of the volume or bucket. */
  readonly name: string;
  readonly mountPath: string;
  readonly kind: 'volume' | 'bucket';
  /** False: a deploy makes it. null: the token may not look. */
  readonly exists: boolean | null;
}

export interface DeployPlan {
  readonly target: string;
  readonly name: string;
  readonly kind: string;
  /** The version that it would be. */
  readonly version: number;
  /** When the handler is tried again, in words; empty: nobody says. */
  readonly retriedAfter: string;
  /** The configuration as the scheduler would keep it; null: it refuses it. */
  readonly config: JsonObject | null;
  readonly image: ImagePlan;
  readonly volumes: readonly VolumePlan[];
  readonly secrets: readonly string[];
  /** Reasons why it would be refused, or never run; each begins with the place of its handler, as `app.py:3`. */
  readonly problems: readonly string[];
  readonly warnings: readonly string[];
}

/** Plans one handler. @throws CliError when the scheduler cannot be asked */
export async function planItem(
  client: Client,
  { target, handler }: DeployItem,
  nameFlag?: string,
): Promise<DeployPlan> {
  const name = nameFlag ?? handler.name;
  const kind = kindOf(handler);
  const { image, builtFrom, problem } = await planImage(client, handler);
  const volumes = await planVolumes(client, handler);
  const { place = '' } = handler;
  // An image that is built, or will be, is no problem of the stub.
  const given = { imageId: image.kind === 'named' ? image.name : '', builtFrom };
  const checked = await checkStub(client, handler, given);
  const problems = await problemsOf(client, { handler, name, checked });
  const latest = await latestDeployment(client, name, `${kind}/deployment`);
  return {
    target,
    name,
    kind,
    version: (latest?.version ?? 0) + 1,
    retriedAfter: handler.retriedAfter ?? '',
    config: isRecord(checked['config']) ? checked['config'] : null,
    image,
    volumes,
    secrets: listField(handler, 'secrets').map((secret) => textField(secret, 'name')),
    problems: [
      ...(problem === undefined ? [] : [place === '' ? problem : `${place}: ${problem}`]),
      ...problems.map(({ error }) => error.message),
    ],
    warnings: textsField(checked, 'warnings'),
  };
}

/** Plans the files of a directory. */
export const planFiles = async (client: Client, directory: string): Promise<FilesPlan> =>
  (await filesPlan(client, directory, await collectFiles(directory))).plan;

/** The plan, and the id of the object with these files; '' where there is none. */
async function filesPlan(
  client: Client,
  directory: string,
  found: AppFiles,
): Promise<{ readonly plan: FilesPlan; readonly objectId: string }> {
  const archive = await packFiles(found);
  try {
    const head = await client.gateway('GET', `/objects/${archive.sha256}`);
    const isThere = head['exists'] === true;
    const plan = {
      directory,
      files: found.files.map(({ path, size }) => ({ path, bytes: size })),
      totalBytes: found.totalBytes,
      archiveBytes: archive.size,
      isThere,
      leftOut: found.skipped,
    };
    return { plan, objectId: isThere ? textField(head, 'objectId') : '' };
  } finally {
    await archive.remove();
  }
}

async function planImage(
  client: Client,
  handler: DeployItem['handler'],
): Promise<{ readonly image: ImagePlan; readonly builtFrom: string; readonly problem?: string }> {
  const wanted = wantedImage(handler);
  const pythonVersion = textField(handler, 'pythonVersion');
  if (wanted.kind === 'named') {
    const { name } = wanted;
    const kind = name === '' ? 'base' : 'named';
    return { image: { kind, name, pythonVersion, exists: true, steps: [], context: null }, builtFrom: '' };
  }
  const { context: folder } = wanted;
  const builtFrom = folder === undefined ? textField(wanted.definition, 'existingImageUri') : 'Dockerfile';
  const planned =
    folder === undefined
      ? undefined
      : await filesPlan(client, folder.directory, await contextFiles(folder.directory, folder.dockerfile));
  const context = planned?.plan ?? null;
  const buildCtxObject = planned?.objectId ?? '';
  const none = { kind: 'built', name: '', pythonVersion, exists: false, steps: [], context } as const;
  try {
    const known = await client.gateway('POST', '/images/verify-build', { ...wanted.definition, buildCtxObject });
    const isWhole = context === null || context.isThere;
    const name = isWhole ? textField(known, 'imageId') : '';
    const exists = isWhole && known['exists'] === true;
    const image = { ...none, name, exists, steps: textsField(known, 'steps') };
    return { image, builtFrom: exists ? name : builtFrom };
  } catch (error) {
    if (!(error instanceof CliError) || error.status !== undefined) throw error;
    return { image: none, builtFrom, problem: `the image: ${error.message}` };
  }
}

async function planVolumes(client: Client, handler: JsonObject): Promise<readonly VolumePlan[]> {
  const wanted = listField(handler, 'volumes');
  if (wanted.length === 0) return [];
  // A restricted token may not list volumes.
  const known = await allVolumes(client).catch((error: unknown) => {
    if (error instanceof CliError && error.status === 401) return null;
    throw error;
  });
  return wanted.map((mount) => {
    const mountPath = textField(mount, 'mountPath');
    if (isRecord(mount['config'])) {
      const config = objectField(mount, 'config');
      return { name: textField(config, 'bucketName'), mountPath, kind: 'bucket', exists: null } as const;
    }
    const name = textField(mount, 'name');
    const found = known?.find((volume) => textField(volume, 'name') === name);
    const exists = known === null ? null : found !== undefined;
    return { name, mountPath, kind: 'volume', exists };
  });
}
