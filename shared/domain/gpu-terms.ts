// GPU terms of a request: alternatives in order of preference, each a model with conditions on one device, such as
// `A100:>=40GiB` or `any:cc>=8.9`. Texts are stored and sent; each list of them is read once. Pure.
import { compareVersions, cudaOf, runsCuda } from './cuda.ts';
import { ANY_GPU, computeCapOf, knownGpu, knownSlice, modelMatches } from './gpus.ts';

/** An alternative of a request. */
export interface GpuTerm {
  /** Text in one spelling, which `readGpuTerm` reads again. */
  readonly text: string;
  /** A model, or `any`. */
  readonly model: string;
  /** Least memory of one device; 0: any. */
  readonly memoryGib: number;
  /** Least compute capability, such as `8.9`; empty: any. */
  readonly computeCap: string;
  /** Least version of the driver, such as `550` or `550.90`; empty: any. */
  readonly driver: string;
  /** Least CUDA version that the driver runs, such as `12.4`; empty: any. */
  readonly cuda: string;
}

/** Facts of one device, as its driver tells them. */
export interface GpuFacts {
  readonly model: string;
  /** 0 or absent: not known. */
  readonly memoryBytes?: number | undefined;
  /** Empty or absent: as the model has it, where that is known. */
  readonly computeCap?: string | undefined;
  /** Devices of a machine with the same number are linked by NVLink, each with each; 0 or absent: none is known. */
  readonly nvlinkIsland?: number | undefined;
}

/** Version of a driver; empty: not known. null: of a machine that is not made yet, which counts as new enough. */
export type DriverFact = string | null;

/** `unknown`: the model is right, no condition is known to fail, and one cannot be judged. */
export type GpuFit = 'fits' | 'unknown' | 'fails';

/** Alternatives of one request. */
export const MOST_GPU_TERMS = 64;
const LONGEST_TERM = 128;
const NAME = /^[A-Za-z0-9][A-Za-z0-9._+-]*$/;
const GIB = 1024 ** 3;

/**
 * Part of the size by which devices are sold that their driver shows, at least. ECC takes a sixteenth of it, and the
 * driver a little more: an L4 with 24 GB shows 22.5 GiB.
 */
const SHOWN_PART = 0.93;

/** The alternatives of a text: `H100|A100`, `H100,A100`. */
export const gpuTextsOf = (text: string): readonly string[] =>
  text
    .split(/[,|]/)
    .map((one) => one.trim())
    .filter((one) => one !== '');

/** Reads one alternative. @returns a text: the sentence that refuses it, without its field */
export function readGpuTerm(text: string): GpuTerm | string {
  const [model = '', ...conditions] = text.split(':').map((part) => part.trim());
  const shown = JSON.stringify(text.slice(0, LONGEST_TERM));
  if (text.length > LONGEST_TERM) return `${shown} is longer than ${LONGEST_TERM} characters`;
  if (isPart(model) || conditions.some(isPart)) return partText(shown, [model, ...conditions].find(isPart) ?? '');
  if (!NAME.test(model)) return `${shown} does not begin with a model, such as H100 or any`;
  const read = { memoryGib: 0, computeCap: '', driver: '', cuda: '' };
  for (const condition of conditions) {
    const [, name = '', value = '', unit = ''] =
      /^(cc|driver|cuda)?\s*>=\s*(\d{1,4}(?:\.\d{1,3}){0,2})\s*(GiB)?$/i.exec(condition) ?? [];
    const key = value === '' ? undefined : KEYS[name.toLowerCase()];
    if (key === undefined || (name === '') !== (unit !== '') || Number(value.split('.')[0]) === 0)
      return `${shown}: ${JSON.stringify(condition)} is no condition; there are >=40GiB (memory of one device), cc>=8.9, driver>=550 and cuda>=12.4`;
    if (read[key] !== '' && read[key] !== 0) return `${shown} names ${WORDS[key]} twice`;
    if (key === 'memoryGib') read.memoryGib = Number(value);
    else read[key] = value;
  }
  const spelled = knownGpu(model) ?? knownSlice(model) ?? model;
  return { text: textOf(spelled, read), model: spelled, ...read };
}

const KEYS: Readonly<Record<string, Conditions | undefined>> = {
  '': 'memoryGib',
  cc: 'computeCap',
  driver: 'driver',
  cuda: 'cuda',
};
type Conditions = 'memoryGib' | 'computeCap' | 'driver' | 'cuda';
const WORDS: Readonly<Record<Conditions, string>> = {
  memoryGib: 'the memory',
  computeCap: 'the compute capability',
  driver: 'the driver',
  cuda: 'the CUDA version',
};

const isPart = (text: string): boolean => /^\d+(?:\.\d+)?\s*(?:[GM]i?B?)$/i.test(text);
const partText = (shown: string, part: string): string =>
  `${shown} asks for a part of a shared device, which is not possible yet: ask for a whole device with >=${part.replace(/\D+$/, '')}GiB, or for a MIG slice such as H100-MIG-3g.40gb`;

const textOf = (model: string, { memoryGib, computeCap, driver, cuda }: Pick<GpuTerm, Conditions>): string =>
  [
    model,
    ...(memoryGib === 0 ? [] : [`>=${memoryGib}GiB`]),
    ...(computeCap === '' ? [] : [`cc>=${computeCap}`]),
    ...(driver === '' ? [] : [`driver>=${driver}`]),
    ...(cuda === '' ? [] : [`cuda>=${cuda}`]),
  ].join(':');

const READ = new WeakMap<readonly string[], readonly GpuTerm[]>();

/** The alternatives of a list that was read before. A text that this version cannot read is a model that nobody has. */
export function gpuTerms(texts: readonly string[]): readonly GpuTerm[] {
  const known = READ.get(texts);
  if (known !== undefined) return known;
  const terms = texts.map((text): GpuTerm => {
    const read = readGpuTerm(text);
    return typeof read === 'string' ? { text, model: text, memoryGib: 0, computeCap: '', driver: '', cuda: '' } : read;
  });
  READ.set(texts, terms);
  return terms;
}

/** Whether an alternative says more than a model. */
export const hasConditions = ({ text, model }: GpuTerm): boolean => text !== model;

const COMPARED = new WeakMap<GpuTerm, Map<string, boolean>>();

/** Whether the model is what the alternative names. Placement asks for each device, so answers are kept. */
function isModel(model: string, term: GpuTerm): boolean {
  let known = COMPARED.get(term);
  if (known === undefined) COMPARED.set(term, (known = new Map()));
  let is = known.get(model);
  if (is === undefined) known.set(model, (is = modelMatches(model, [term.model])));
  return is;
}

/** Whether a device is what one alternative asks for. */
export function gpuFit(gpu: GpuFacts, driver: DriverFact, term: GpuTerm): GpuFit {
  if (!isModel(gpu.model, term)) return 'fails';
  if (!hasConditions(term)) return 'fits';
  const judged = CONDITIONS.map((judge) => judge(gpu, driver, term));
  return judged.includes(false) ? 'fails' : judged.includes(undefined) ? 'unknown' : 'fits';
}

type Judge = (gpu: GpuFacts, driver: DriverFact, term: GpuTerm) => boolean | undefined;

const hasMemory: Judge = ({ memoryBytes = 0 }, _driver, { memoryGib }) =>
  memoryGib === 0 ? true : memoryBytes === 0 ? undefined : memoryBytes >= memoryGib * GIB * SHOWN_PART;

const hasCap: Judge = (gpu, _driver, { computeCap }) => {
  const has = computeCap === '' ? '' : capOf(gpu);
  return computeCap === '' ? true : has === '' ? undefined : compareVersions(has, computeCap) >= 0;
};

const hasDriver: Judge = (_gpu, driver, term) =>
  term.driver === '' || driver === null ? true : driver === '' ? undefined : compareVersions(driver, term.driver) >= 0;

const hasCuda: Judge = (_gpu, driver, { cuda }) => driver === null || runsCuda(driver, cuda);

const CONDITIONS: readonly Judge[] = [hasMemory, hasCap, hasDriver, hasCuda];

const capOf = ({ model, computeCap = '' }: GpuFacts): string => (computeCap === '' ? computeCapOf(model) : computeCap);

/**
 * Whether a device is what one of the alternatives asks for. A fact that is not known does not match.
 * @param driver - of the device's machine
 */
export const gpuMatches = (gpu: GpuFacts, driver: DriverFact, wanted: readonly string[]): boolean =>
  gpuTerms(wanted).some((term) => gpuFit(gpu, driver, term) === 'fits');

/** Why none of a machine's devices matches: one might, if more were known of it; else each is another one. */
export const gpuLack = (
  gpus: readonly GpuFacts[],
  driver: DriverFact,
  wanted: readonly string[],
): 'gpu_fact_unknown' | 'gpu_model' =>
  gpus.some((gpu) => gpuTerms(wanted).some((term) => gpuFit(gpu, driver, term) === 'unknown'))
    ? 'gpu_fact_unknown'
    : 'gpu_model';

/** How the GPUs of a container must be linked. `island`: by NVLink, each with each. */
export const GPU_LINKS = ['island'] as const;
export type GpuLink = (typeof GPU_LINKS)[number];

/** Devices that a container may have together: all, or those of each island. */
export function linkedGroups<Gpu extends GpuFacts>(
  gpus: readonly Gpu[],
  { gpuCount, gpuLink }: { readonly gpuCount: number; readonly gpuLink?: GpuLink | undefined },
): readonly (readonly Gpu[])[] {
  if (gpuLink === undefined || gpuCount < 2) return [gpus];
  return [...Map.groupBy(gpus, ({ nvlinkIsland = 0 }) => nvlinkIsland)].flatMap(([island, some]) =>
    island === 0 ? [] : [some],
  );
}

/** Most devices that a container may have together. */
export const mostLinked = (gpus: readonly GpuFacts[], request: Parameters<typeof linkedGroups>[1]): number =>
  linkedGroups(gpus, request).reduce((most, { length }) => Math.max(most, length), 0);

// ---- words ----------------------------------------------------------------------------------------------------------

/** The request in words: `GPU H100 or A100 with 40 GiB`, `a GPU with compute capability 8.9`. */
export function gpuWords(wanted: readonly string[]): string {
  const terms = gpuTerms(wanted);
  if (terms.some((term) => term.model === ANY_GPU && !hasConditions(term))) return 'a GPU';
  const names = terms.map(
    (term) =>
      `${term.model === ANY_GPU ? 'a GPU' : term.model}${hasConditions(term) ? ` with ${conditionWords(term)}` : ''}`,
  );
  return `${terms[0]?.model === ANY_GPU ? '' : 'GPU '}${names.join(' or ')}`;
}

/** `80 GiB and compute capability 9.0` */
function conditionWords({ memoryGib, computeCap, driver, cuda }: GpuTerm): string {
  const words = [
    ...(memoryGib === 0 ? [] : [`${memoryGib} GiB`]),
    ...(computeCap === '' ? [] : [`compute capability ${computeCap}`]),
    ...(driver === '' ? [] : [`driver ${driver}`]),
    ...(cuda === '' ? [] : [`CUDA ${cuda}`]),
  ];
  return words.length < 2 ? words.join('') : `${words.slice(0, -1).join(', ')} and ${words.at(-1)}`;
}

export interface NearGpu extends GpuFacts {
  readonly driver: DriverFact;
}

/** Alternatives that are explained one by one. */
const MOST_EXPLAINED = 3;

/**
 * Sentences on conditions that no device meets: `no device has 80 GiB and compute capability 9.0; nearest: A100-80
 * (8.0)`. The nearest device fails the fewest conditions. An alternative whose model nobody has, or that some device
 * is, has no sentence.
 */
export function nearestTexts(wanted: readonly string[], devices: readonly NearGpu[]): readonly string[] {
  const texts: string[] = [];
  for (const term of gpuTerms(wanted)) {
    if (!hasConditions(term) || texts.length >= MOST_EXPLAINED) continue;
    const alike = devices.filter(({ model }) => modelMatches(model, [term.model]));
    const near = alike.map((device) => ({ device, lacks: lacksOf(device, term) }));
    const [nearest] = near.sort(
      (a, b) => a.lacks.length - b.lacks.length || (b.device.memoryBytes ?? 0) - (a.device.memoryBytes ?? 0),
    );
    if (nearest === undefined || nearest.lacks.length === 0) continue;
    const what = term.model === ANY_GPU ? 'device' : term.model;
    texts.push(
      `no ${what} has ${conditionWords(term)}; nearest: ${nearest.device.model} (${nearest.lacks.join(', ')})`,
    );
  }
  return texts;
}

const cudaWords = (driver: DriverFact): string => {
  const cuda = cudaOf(driver ?? '');
  return driver === '' ? 'driver not known' : cuda === undefined ? `driver ${driver}, CUDA not known` : `CUDA ${cuda}`;
};

/** Facts of the device that do not meet the conditions. */
function lacksOf(device: NearGpu, term: GpuTerm): readonly string[] {
  const { driver, memoryBytes = 0 } = device;
  const shown: readonly (readonly [Judge, () => string])[] = [
    [hasMemory, () => (memoryBytes === 0 ? 'memory not known' : `${Math.round((memoryBytes / GIB) * 10) / 10} GiB`)],
    [hasCap, () => capOf(device) || 'compute capability not known'],
    [hasDriver, () => (driver === '' ? 'driver not known' : `driver ${driver}`)],
    [hasCuda, () => cudaWords(driver)],
  ];
  const lacks = shown.flatMap(([judge, words]) => (judge(device, driver, term) === true ? [] : [words()]));
  return [...new Set(lacks)];
}
