// Image definitions, checked, and as the instructions of their builds. Pure.
// Invariant: the same definition of the same workspace gives the same image name, and no definition of another
// workspace does.
import type { BuildImageRequest } from '#shared/api/images.ts';
import { BASE_IMAGE, baseImageId, builtImageName, isBuiltImage } from '#shared/domain/built-images.ts';
import { readDockerfile, readStep, readSteps } from '#shared/domain/dockerfile/read.ts';
import { imagesIn } from '#shared/domain/dockerfile/stages.ts';
import { textOf } from '#shared/domain/dockerfile/write.ts';
import { gpuTextsOf, hasConditions, readGpuTerm } from '#shared/domain/gpu-terms.ts';
import { sha256Hex } from '#shared/domain/ids.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import { imageProblem } from '#shared/domain/image-reference.ts';
import { isRecord } from '#shared/json.ts';
import { aptStep, condaStep, condaSteps, pipStep, pythonSteps, shellStep } from './package-steps.ts';
import type { Step } from './package-steps.ts';

/** Fields of a request that say what the image is. */
export type ImageRequest = Pick<
  BuildImageRequest,
  | 'pythonVersion'
  | 'pythonPackages'
  | 'systemPackages'
  | 'commands'
  | 'existingImageUri'
  | 'buildSteps'
  | 'envVars'
  | 'dockerfile'
  | 'buildCtxObject'
  | 'secrets'
  | 'gpu'
  | 'ignorePython'
> & { readonly existingImageCreds?: unknown };

export interface Definition {
  /** The base image's Python version: `python3`, `python3.11`. */
  readonly pythonVersion: string;
  readonly steps: readonly Step[];
  /** Object with the files for COPY and ADD; empty: none. */
  readonly contextObjectId: string;
  /** Images that the machine needs first. */
  readonly bases: readonly string[];
  /** Models of the GPU that the added steps have, in order of preference; absent: they have none. */
  readonly gpu?: readonly string[];
  /** The container whose files it has; absent: it is built, and can be built again. */
  readonly snapshotOf?: string;
}

export type ReadDefinition =
  /** Nothing is added to an image that exists: that one is used as it is. */
  | { readonly kind: 'as_is'; readonly image: string }
  | { readonly kind: 'build'; readonly definition: Definition }
  | { readonly kind: 'refused'; readonly errMsg: string };

const MOST_STEPS = 256;
const MOST_ITEMS = 1000;
const MOST_ITEM = 16 * 1024;
const MOST_BYTES = 256 * 1024;
const PYTHON = /^(?:python|micromamba)?3(?:\.(\d{1,2}))?$/;
const PACKAGE = /^[a-z0-9][a-z0-9+.-]*(?::[a-z0-9]+)?(?:=[A-Za-z0-9.+:~-]+)?$/;
const VARIABLE = /^[A-Za-z_][A-Za-z0-9_]*$/;
/** Reads a request. */
export function readDefinition(request: ImageRequest): ReadDefinition {
  const problem = sizeProblem(request) ?? fieldProblem(request);
  if (problem !== undefined) return { kind: 'refused', errMsg: problem };
  const added = addedSteps(request);
  if (typeof added === 'string') return { kind: 'refused', errMsg: added };
  const { existingImageUri, dockerfile } = request;
  if (dockerfile === '' && added.length === 0) {
    const image = existingImageUri === '' ? baseImageId(versionOf(request.pythonVersion)) : existingImageUri;
    return { kind: 'as_is', image };
  }
  const first = firstSteps(request);
  if (typeof first === 'string') return { kind: 'refused', errMsg: first };
  const gpu = gpuTextsOf(request.gpu);
  const steps = [...first, ...(gpu.length === 0 ? added : added.map(onGpu))];
  if (steps.length > MOST_STEPS) return { kind: 'refused', errMsg: `the image has more than ${MOST_STEPS} steps` };
  const instructions = readSteps(steps.map(({ text }) => text));
  if (instructions.kind === 'problem') return { kind: 'refused', errMsg: `the image: ${instructions.problem}` };
  const bases = imagesIn(instructions.sources);
  const foreign = bases.find((image) => image !== BASE_IMAGE && isBuiltImage(image));
  if (foreign !== undefined || (dockerfile !== '' && bases.includes(BASE_IMAGE))) {
    const field = dockerfile === '' ? 'existingImageUri' : 'dockerfile';
    return {
      kind: 'refused',
      errMsg: `${field}: ${foreign ?? BASE_IMAGE} is not a base: name the image it was built on`,
    };
  }
  const { buildCtxObject: contextObjectId, pythonVersion } = request;
  const definition = { pythonVersion: versionOf(pythonVersion), steps, contextObjectId, bases };
  return { kind: 'build', definition: gpu.length === 0 ? definition : { ...definition, gpu } };
}

/** Added commands have the GPU; instructions of a Dockerfile are the engine's, which passes none. */
const onGpu = (step: Step): Step => (step.text.startsWith('RUN ') ? { ...step, apart: true } : step);

/** The name of the image that a definition makes for a workspace. */
export const imageNameOf = (workspaceId: WorkspaceId, definition: Definition): string =>
  builtImageName(
    sha256Hex(
      JSON.stringify([
        'image-1',
        workspaceId,
        definition.pythonVersion,
        definition.steps.map(({ text }) => text),
        definition.contextObjectId,
        ...(definition.gpu === undefined ? [] : [definition.gpu]),
      ]),
    ),
  );

function sizeProblem(request: ImageRequest): string | undefined {
  for (const field of ['pythonPackages', 'systemPackages', 'commands', 'envVars', 'buildSteps'] as const) {
    const list: readonly unknown[] = request[field];
    if (list.length > MOST_ITEMS) return `${field} must have at most ${MOST_ITEMS} entries`;
    const long = list.findIndex((item) => typeof item === 'string' && item.length > MOST_ITEM);
    if (long !== -1) return `${field}[${long}] is longer than ${MOST_ITEM} characters`;
  }
  return JSON.stringify(request).length > MOST_BYTES ? `the definition is larger than ${MOST_BYTES} bytes` : undefined;
}

function fieldProblem(request: ImageRequest): string | undefined {
  const { pythonVersion, existingImageUri, existingImageCreds, secrets, dockerfile, buildCtxObject } = request;
  if (secrets.length > 0)
    return `secrets: a build gets none, because whatever a step reads can stay in a layer; read ${quoted(secrets[0])} in the handler or in on_start`;
  const [, minor] = PYTHON.exec(pythonVersion) ?? [];
  if (
    pythonVersion !== '' &&
    (!PYTHON.test(pythonVersion) || (minor !== undefined && !isKnownMinor(Number(minor), request)))
  )
    return `pythonVersion must be python3, python3.8 to python3.14 or micromamba3.8 to micromamba3.12, not ${quoted(pythonVersion)}`;
  if (hasCredentials(existingImageCreds))
    return 'existingImageCreds: credentials are kept once for a workspace, not in an image: `longshore registry set`';
  const imageWhy = existingImageUri === '' ? undefined : imageProblem(existingImageUri);
  if (imageWhy !== undefined) return `existingImageUri ${imageWhy}`;
  const gpu = gpuTextsOf(request.gpu).flatMap((text) => gpuProblem(text) ?? [])[0];
  if (gpu !== undefined) return gpu;
  if (existingImageUri !== '' && dockerfile !== '') return 'dockerfile and existingImageUri exclude each other';
  if (buildCtxObject !== '' && dockerfile === '') return 'buildCtxObject needs a dockerfile';
  return undefined;
}

/** The machine's agent chooses the device of a build, by its model. */
function gpuProblem(text: string): string | undefined {
  const term = readGpuTerm(text);
  if (typeof term === 'string') return `gpu: ${term}`;
  return hasConditions(term) ? `gpu: a build names models of GPUs without conditions, not ${quoted(text)}` : undefined;
}

const isKnownMinor = (minor: number, request: Pick<ImageRequest, 'pythonVersion'>): boolean =>
  minor >= 8 && minor <= (isMicromamba(request) ? 12 : 14);

function hasCredentials(value: unknown): boolean {
  if (typeof value === 'string') return value !== '';
  return isRecord(value) && Object.values(value).some((one) => one !== '' && one !== null);
}

/** Python of the base image: any will do for micromamba, which brings its own. */
const versionOf = (text: string): string =>
  text === '' || text.startsWith('micromamba') ? 'python3' : `python${text.replace(/^python/, '')}`;
const isMicromamba = ({ pythonVersion }: Pick<ImageRequest, 'pythonVersion'>): boolean =>
  pythonVersion.startsWith('micromamba');

/** The steps before what is added: the base, or the caller's own Dockerfile. */
function firstSteps({ dockerfile, existingImageUri }: ImageRequest): readonly Step[] | string {
  if (dockerfile === '') {
    const base = existingImageUri === '' ? BASE_IMAGE : existingImageUri;
    const from = { text: `FROM ${base}`, title: existingImageUri === '' ? 'FROM the base image' : '' };
    // Steps install software: a base image of another user must not keep them from it.
    return existingImageUri === '' ? [from] : [from, { text: 'USER 0', title: '' }];
  }
  const read = readDockerfile(dockerfile);
  if (read.kind === 'problem') return `dockerfile: ${read.problem}`;
  return read.instructions.map(({ instruction, source }) => ({ text: textOf(instruction), title: source }));
}

/** The steps that fields of the request add, in order; a text is a refusal. */
function addedSteps(request: ImageRequest): readonly Step[] | string {
  const variables = request.envVars.map((item, index) => variableStep(item, index));
  const refusal = variables.find((one) => typeof one === 'string');
  if (refusal !== undefined) return refusal;
  const steps = variables.filter((one) => typeof one !== 'string');
  const system = request.systemPackages;
  const odd = system.findIndex((name) => !PACKAGE.test(name));
  if (odd !== -1) return `systemPackages[${odd}]: ${quoted(system[odd])} is not the name of a Debian package`;
  if (system.length > 0) steps.push(aptStep(system));
  const work: Work[] = [
    ...(request.pythonPackages.length === 0 ? [] : [{ type: 'pip' as const, items: request.pythonPackages }]),
    ...request.commands.map((command) => ({ type: 'shell' as const, items: [command] })),
  ];
  for (const [index, step] of request.buildSteps.entries()) {
    const added = addedWork(step, isMicromamba(request));
    if (typeof added === 'string') return `buildSteps[${index}] ${added}`;
    const last = work.at(-1);
    // Packages that follow each other are resolved together, unless the definition says that they are layers.
    if (added.type !== 'shell' && last?.type === added.type && last.layer === added.layer)
      work[work.length - 1] = { ...added, items: [...last.items, ...added.items] };
    else work.push(added);
  }
  const refused = work.map(workProblem).find((one) => one !== undefined);
  if (refused !== undefined) return refused;
  return [...steps, ...(isMicromamba(request) ? condaSteps(request.pythonVersion) : []), ...packageSteps(work)];
}

interface Work {
  readonly type: 'pip' | 'shell' | 'micromamba';
  readonly items: readonly string[];
  /** Packages with the same number are one layer. */
  readonly layer?: number;
}

/** A step of `buildSteps`; a text is a refusal. */
function addedWork(step: unknown, hasMicromamba: boolean): Work | string {
  const type: unknown = isRecord(step) ? step['type'] : undefined;
  const command: unknown = isRecord(step) ? step['command'] : undefined;
  if ((type !== 'shell' && type !== 'pip' && type !== 'micromamba') || typeof command !== 'string')
    return 'must be {"type": "shell", "pip" or "micromamba", "command": text}';
  if (type === 'micromamba' && !hasMicromamba)
    return 'needs micromamba: call micromamba() of the image first, or set pythonVersion to micromamba3.11';
  const layer: unknown = isRecord(step) ? step['layer'] : undefined;
  if (layer === undefined) return { type, items: [command] };
  if (typeof layer !== 'number' || !Number.isSafeInteger(layer)) return 'layer must be a whole number';
  return { type, items: [command], layer };
}

const FIELD_OF = { pip: 'pythonPackages', shell: 'commands', micromamba: 'buildSteps' } as const;

function workProblem({ type, items }: Work): string | undefined {
  const field = FIELD_OF[type];
  if (items.some((item) => item.trim() === '')) return `${field} has an empty entry`;
  if (type !== 'shell' && items.some((item) => /[\n\r\0]/.test(item)))
    return `${field} has an entry with several lines`;
  return items.some((item) => item.includes('\0')) ? `${field} has an entry with a NUL character` : undefined;
}

function packageSteps(work: readonly Work[]): readonly Step[] {
  const firstPip = work.findIndex(({ type }) => type === 'pip');
  return work.flatMap(({ type, items }, index) => {
    if (type === 'micromamba') return [condaStep(items)];
    if (type === 'pip') return [...(index === firstPip ? pythonSteps() : []), pipStep(items)];
    return [shellStep(items[0] ?? '', items[0] ?? '')];
  });
}

function variableStep(item: string, index: number): Step | string {
  const cut = item.indexOf('=');
  const [name, value] = [item.slice(0, cut), item.slice(cut + 1)];
  if (cut === -1 || !VARIABLE.test(name)) return `envVars[${index}]: ${quoted(item)} is not NAME=VALUE`;
  if (/[\n\r\0]/.test(value)) return `envVars[${index}]: the value of ${name} has several lines`;
  const text = textOf({ name: 'ENV', pairs: [{ key: name, value: [value] }] });
  const read = readStep(text);
  return read.kind === 'problem' ? `envVars[${index}]: ${read.problem}` : { text, title: '' };
}

const quoted = (value: unknown): string => JSON.stringify(String(value).slice(0, 60));
