// Reasons why a handler is refused: those that can be asked for before anything is changed, and the words of a refusal,
// with the place of the handler and the command that helps.
import { nameProblem } from '#shared/domain/deployment-names.ts';
import { GPU_MODELS } from '#shared/domain/gpus.ts';
import { isRecord } from '#shared/json.ts';
import type { Client } from '../client.ts';
import { CliError, usageError } from '../errors.ts';
import { counted } from '../format.ts';
import { listField, numberField, textField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { nearName, withNear } from '../near-name.ts';
import { kindOf, stubFields } from './describe.ts';
import type { HandlerDefinition } from './describe.ts';
import { wantedImage } from './image.ts';

/** Stands for the id that a volume will have. */
const FUTURE_ID = '00000000-0000-4000-8000-000000000000';
/** Fields whose problems a deploy takes: a machine with the model, or the pool, may still come. */
const MAY_COME: ReadonlySet<string> = new Set(['gpu', 'pool']);

/**
 * Asks whether a stub of the handler would be taken.
 * @param image - `imageId` of an image that exists, or `builtFrom`: what one would be built from
 * @throws CliError with status 404 from a scheduler that cannot check
 */
export const checkStub = (
  client: Client,
  handler: HandlerDefinition,
  image: { readonly imageId: string; readonly builtFrom: string },
): Promise<JsonObject> =>
  client.gateway('POST', '/stubs/check', {
    ...stubFields(handler),
    ...image,
    stubType: `${kindOf(handler)}/deployment`,
    objectId: '',
    volumes: listField(handler, 'volumes').map((mount) => {
      const mountPath = textField(mount, 'mountPath');
      return isRecord(mount['config']) ? { id: '', mountPath, config: mount['config'] } : { id: FUTURE_ID, mountPath };
    }),
  });

/** Something that is wrong with a handler. */
export interface Problem {
  /** A deploy takes it all the same. */
  readonly mayCome: boolean;
  readonly error: CliError;
}

/** Everything that is wrong with the handler, as a deploy and its dry run tell it. @param checked - of `checkStub` */
export async function problemsOf(
  client: Client,
  {
    handler,
    name,
    checked,
  }: { readonly handler: HandlerDefinition; readonly name: string; readonly checked: JsonObject },
): Promise<readonly Problem[]> {
  const ofName = nameProblem(name);
  const found: { mayCome: boolean; error: unknown }[] =
    ofName === undefined ? [] : [{ mayCome: false, error: usageError(ofName) }];
  const problems = listField(checked, 'problems');
  const workspaceId = problems.length === 0 ? '' : await client.workspaceId().catch(() => 'WORKSPACE');
  for (const problem of problems) {
    const [field, value, text] = ['field', 'value', 'text'].map((key) => textField(problem, key)) as [
      string,
      string,
      string,
    ];
    const near = nearName(value, await candidatesFor(client, field).catch(() => []));
    const meant = near === undefined ? text : `${text}; did you mean ${near}?`;
    const error =
      field === 'secrets' ? noSecret(value, near) : withLimitCure(new CliError(meant), { handler, workspaceId });
    found.push({ mayCome: MAY_COME.has(field), error });
  }
  return found.flatMap(({ mayCome, error }) => {
    const told = placed(handler, error);
    return told instanceof CliError ? [{ mayCome, error: told }] : [];
  });
}

/** Names that exist, of which a misspelt one in the field may mean one. */
async function candidatesFor(client: Client, field: string): Promise<readonly string[]> {
  const named = (answer: JsonObject, list: string): readonly string[] =>
    listField(answer, list).map((one) => textField(one, 'name'));
  switch (field) {
    case 'gpu':
      return GPU_MODELS;
    case 'pool':
      return named(await client.gateway('GET', '/pools'), 'pools');
    case 'secrets':
      return named(await client.rest(`/secret/${await client.workspaceId()}`), 'data');
    default:
      return [];
  }
}

/** The problems of a handler that is about to be deployed, asked for without a change. */
export async function knownProblems(
  client: Client,
  handler: HandlerDefinition,
  name: string,
): Promise<readonly Problem[]> {
  const wanted = wantedImage(handler);
  const image = wanted.kind === 'named' ? { imageId: wanted.name, builtFrom: '' } : { imageId: '', builtFrom: 'built' };
  const checked = await checkStub(client, handler, image).catch((error: unknown): JsonObject => {
    if (error instanceof CliError && error.status === 404) return {};
    throw error;
  });
  return problemsOf(client, { handler, name, checked });
}

/**
 * Adds the command that creates a missing secret: the scheduler's sentence, which all clients share, names no command.
 */
export function withSecretCure(error: unknown): unknown {
  if (!(error instanceof CliError)) return error;
  const name = /Secret "([^"]+)" does not exist/.exec(error.message)?.[1];
  return name === undefined ? error : noSecret(name, undefined, error);
}

function noSecret(name: string, near?: string, cause?: unknown): CliError {
  const cure = `\`longshore secret set ${name}\`, then deploy again`;
  return new CliError(withNear(`there is no secret ${name} in this workspace`, near, cure), { cause });
}

/** Looks for the handler's secrets before an image is built for it; the stub is checked in any case. */
export async function checkSecrets(client: Client, handler: HandlerDefinition): Promise<void> {
  const wanted = listField(handler, 'secrets').map((secret) => textField(secret, 'name'));
  if (wanted.length === 0) return;
  const answer = await client.rest(`/secret/${await client.workspaceId()}`);
  const there = new Set(listField(answer, 'data').map((secret) => textField(secret, 'name')));
  const missing = wanted.find((name) => !there.has(name));
  if (missing !== undefined) throw noSecret(missing, nearName(missing, [...there]));
}

/** Whether the scheduler refused the request itself: calls that failed have a cause, other answers a status. */
export const isRefusal = (error: unknown): boolean =>
  error instanceof CliError && error.status === undefined && error.cause === undefined;

/** Names the lines that define the handler, in the form that editors open. */
export function placed({ place = '' }: HandlerDefinition, error: unknown): unknown {
  if (!(error instanceof CliError) || place === '') return error;
  return new CliError(`${place}: ${asParameter(error.message)}`, { cause: error });
}

/** Fields of `extra` are parameters of decorators: `extra.workerMode` is `worker_mode`. */
const asParameter = (sentence: string): string =>
  sentence.replace(/^extra\.(\w+)/, (_, name: string) =>
    name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`),
  );

/**
 * The limits of a workspace that stubs are refused by, as the scheduler's sentences begin, and the field of a handler
 * that says how much it asks for.
 */
const LIMITS: readonly (readonly [RegExp, string, string])[] = [
  [/^Memory must be (\S+)GiB or less\.$/, 'stub.memory_mib', 'memory'],
  [/^CPU must be (\S+) or less\.$/, 'stub.cpu_millicores', 'cpu'],
  [/^GPU count must be \S+ or less\.$/, 'stub.max_gpu_count', 'gpuCount'],
  [/^GPU concurrency limit is 0\.$/, 'concurrency.gpu_limit', 'gpuCount'],
  [/^max replicas must be \S+ or less$/, 'stub.max_replicas', ''],
];

/** Whose limit it is, or where GPUs stand: the sentence is the interface's. */
export function withLimitCure(
  error: unknown,
  { handler, workspaceId }: { readonly handler: HandlerDefinition; readonly workspaceId: string },
): unknown {
  if (!(error instanceof CliError)) return error;
  if (/no GPU capacity for/.test(error.message))
    return new CliError(
      `${error.message.replace(/\.$/, '')}: \`longshore machine list\` shows the GPUs that there are, \`longshore top\` what uses them`,
      { cause: error },
    );
  const [sentence, limit, field = ''] = LIMITS.find(([form]) => form.test(error.message)) ?? [];
  if (limit === undefined) return error;
  const asked = numberField(handler, field) || 'N';
  const cure = `it is this workspace's limit ${limit}, which \`longshore workspace limits\` shows. An administrator raises it: \`longshore workspace limits ${workspaceId} --set ${limit}=${asked}\``;
  return new CliError(`${inUnits(error.message, sentence, handler)}: ${cure}`, { cause: error });
}

/** The refusal of cores or memory in the units that people write; the scheduler counts thousandths of a core. */
function inUnits(text: string, sentence: RegExp | undefined, handler: HandlerDefinition): string {
  const most = Number(sentence?.exec(text)?.[1]);
  const cores = numberField(handler, 'cpu') / 1000;
  const mib = numberField(handler, 'memory');
  if (text.startsWith('CPU') && cores > 0) return `cpu: ${counted(cores, 'core')}, at most ${most / 1000}`;
  if (text.startsWith('Memory') && mib > 0)
    return `memory: ${mib % 1024 === 0 ? `${mib / 1024} GiB` : `${mib} MiB`}, at most ${most} GiB`;
  return text.replace(/\.$/, '');
}
