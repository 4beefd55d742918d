/**
 * The steps of a build, stage by stage: files and settings by the engine's builder, programs in containers of the
 * agent. Called by builder.ts. Must stay true: the engine's builder never runs a program, because none that it
 * runs has a bound on processes.
 */
import { readFile } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { sleep } from '#shared/backoff.ts';
import { OWN_LABELS, PACKAGES_VARIABLE } from '#shared/domain/built-images.ts';
import type { Instruction } from '#shared/domain/dockerfile/instruction.ts';
import { textOf } from '#shared/domain/dockerfile/write.ts';
import { AppError } from '#shared/errors.ts';
import type { BuildEvent } from '#shared/protocol/build-events.ts';
import type { Mount } from '../containers/runtime.ts';
import { tarOf } from '../containers/tar.ts';
import type { Assembled, Base, Known, ReadStep, Surroundings } from './assemble.ts';
import { assemble, forEngine, imageIdOf, programOf, shellOr } from './assemble.ts';
import { failure, tell } from './build.ts';
import type { Build } from './build.ts';
import type { BuilderParts } from './builder.ts';
import { BuildOutput } from './output.ts';
import { PACKAGES_TARGET } from './packages.ts';
import { segmentsOf } from './segments.ts';
import type { Segment } from './segments.ts';
import type { Written } from './written.ts';

const GPU_LOOK_EVERY_MS = 2000;
const CA_NAME = '.longshore-ca.pem';
const CA_TARGET = '/usr/local/share/longshore-ca.pem';
/** Variables that name a file of certificates, for pip and other programs. */
const CA_VARIABLES = ['PIP_CERT', 'SSL_CERT_FILE', 'REQUESTS_CA_BUNDLE', 'CURL_CA_BUNDLE', 'NODE_EXTRA_CA_CERTS'];
/** Labels of a layer that is thrown away, by which the engine tells the values of ARG instructions. */
const VALUE_LABEL = `${OWN_LABELS}build.value.`;

export type StagesParts = Pick<
  BuilderParts,
  'runtime' | 'limits' | 'variables' | 'machineId' | 'stepsApart' | 'gpus' | 'caBundle'
>;

/** A build whose images are there. */
export interface Work {
  readonly build: Build;
  /** The name under which the build holds things of this machine. */
  readonly held: string;
  readonly steps: readonly ReadStep[];
  /** Whether a step runs with packages from before and a GPU. */
  readonly isApart: (at: number) => boolean;
  readonly bases: ReadonlyMap<string, Base>;
  /** Labels of every layer. */
  readonly labels: Readonly<Record<string, string>>;
  readonly directory: string | undefined;
  readonly network: string;
  readonly mounts: readonly Mount[];
  readonly written: Pick<Written, 'step' | 'engine' | 'layer'>;
  readonly onContainer: (dockerId: string) => void;
}

interface EngineOptions {
  readonly hasFiles: boolean;
  readonly hasCertificates: boolean;
  readonly mayReuse: boolean;
}

type Failed = { readonly failed: BuildEvent };

/** Runs all steps. @returns the last image, or the failure of a step */
export async function runStages(parts: StagesParts, work: Work): Promise<{ readonly imageId: string } | Failed> {
  const ca = parts.caBundle === undefined ? undefined : await readFile(parts.caBundle, 'utf8');
  return new Stages(parts, work, ca).run();
}

class Stages {
  readonly #parts: StagesParts;
  readonly #work: Work;
  readonly #ca: string | undefined;
  readonly #output: BuildOutput;
  /** Images of the stages, the last one as it is so far. */
  readonly #stages: string[] = [];
  /** Variables of every step, as the operator sets them. */
  readonly #own: Readonly<Record<string, string>>;
  /** ARG instructions before the first stage. */
  #globals: readonly Instruction[] = [];
  /** ARG variables of the stage; without a value: undefined. */
  #declared = new Map<string, string | undefined>();
  #imageId: string | undefined;

  constructor(parts: StagesParts, work: Work, ca: string | undefined) {
    this.#parts = parts;
    this.#work = work;
    this.#ca = ca;
    this.#output = new BuildOutput(work.steps.length, (event) => tell(work.build, event));
    this.#own = {
      ...parts.variables,
      ...(ca === undefined ? {} : Object.fromEntries(CA_VARIABLES.map((name) => [name, CA_TARGET]))),
    };
  }

  async run(): Promise<{ readonly imageId: string } | Failed> {
    for (const segment of segmentsOf(this.#work.steps.map(({ instruction }) => instruction))) {
      const failed = await this.#segment(segment);
      if (failed !== undefined) return { failed };
    }
    return { imageId: this.#imageId ?? '' };
  }

  /** @returns the failure; undefined: the segment is done */
  async #segment(segment: Segment): Promise<BuildEvent | undefined> {
    if (segment.kind === 'run') return this.#run(segment.at);
    if (segment.kind === 'engine') return this.#engine(segment);
    if (this.#imageId !== undefined) return this.#args(segment);
    const steps = this.#work.steps.slice(segment.from, segment.to);
    this.#globals = steps.map(({ instruction }) => instruction);
    for (const { title } of steps) this.#output.stepApart(title);
    return undefined;
  }

  get #known(): Known {
    return { bases: this.#work.bases, stages: this.#stages };
  }

  /** The shell of an image; empty: of none. */
  async #shellOf(imageId: string): Promise<readonly string[]> {
    return shellOr(imageId === '' ? [] : ((await this.#parts.runtime.imageConfig(imageId))?.shell ?? []));
  }

  /** Instructions of the engine's builder: a stage's first ones, or ones that go on from the image before. */
  async #engine({ from, to }: { readonly from: number; readonly to: number }): Promise<BuildEvent | undefined> {
    const steps = this.#work.steps.slice(from, to);
    const first = steps[0];
    const isStage = first?.instruction.name === 'FROM';
    if (isStage) this.#declared = new Map();
    const onto = isStage ? imageIdOf(first, this.#known) : (this.#imageId ?? '');
    const shell = await this.#shellOf(onto);
    const some = forEngine(steps, this.#known, shell);
    const titles = steps.map(({ title }) => title);
    const assembled = assemble(some, titles, this.#surroundings(isStage));
    const hasFiles = some.some(({ name }) => name === 'COPY' || name === 'ADD');
    const built = await this.#build(assembled, { hasFiles, hasCertificates: isStage, mayReuse: onto !== '' });
    if ('failed' in built) return built.failed;
    const problem = await this.#layerProblem(built.imageId);
    if (problem !== undefined) return failure(`the image of these steps ${problem}`);
    if (isStage) this.#stages.push('');
    this.#goesOnFrom(built.imageId);
    return undefined;
  }

  /**
   * Looks at a layer of the engine's builder. One that has too much, or that the engine cannot show, goes at once:
   * the engine reads it for each list of images.
   * @throws EngineError
   */
  async #layerProblem(imageId: string): Promise<string | undefined> {
    const { runtime } = this.#parts;
    let problem: string | undefined;
    let isShown = false;
    try {
      problem = (await runtime.imageConfig(imageId))?.configProblem;
      isShown = true;
      return problem;
    } finally {
      if (problem !== undefined || !isShown) await runtime.removeImage(imageId).catch(() => undefined);
    }
  }

  #goesOnFrom(imageId: string): void {
    this.#imageId = imageId;
    this.#stages[this.#stages.length - 1] = imageId;
  }

  /** Has the engine expand ARG instructions, on a layer that is thrown away, and keeps their values. */
  async #args({ from, to }: { readonly from: number; readonly to: number }): Promise<BuildEvent | undefined> {
    const steps = this.#work.steps.slice(from, to);
    const some = steps.map(({ instruction }) => instruction);
    const args = some.flatMap((instruction) => (instruction.name === 'ARG' ? instruction.args : []));
    const { dockerfile, titles } = assemble(
      some,
      steps.map(({ title }) => title),
      this.#surroundings(false),
    );
    const values = args.map(({ key }, at) =>
      textOf({ name: 'LABEL', pairs: [{ key: `${VALUE_LABEL}${at}`, value: [{ name: key }] }] }),
    );
    const globals = this.#globals.map(textOf);
    const built = await this.#build(
      {
        dockerfile: [...globals, dockerfile.trimEnd(), ...values, ''].join('\n'),
        titles: [...globals.map(() => undefined), ...titles, ...values.map(() => undefined)],
      },
      { hasFiles: false, hasCertificates: false, mayReuse: true },
    );
    if ('failed' in built) return built.failed;
    const labels = (await this.#parts.runtime.imageConfig(built.imageId))?.labels ?? {};
    for (const [at, { key, value: given }] of args.entries()) {
      const value = labels[`${VALUE_LABEL}${at}`] ?? '';
      const isGiven = value !== '' || given !== undefined;
      this.#declared.set(key, isGiven ? value : undefined);
    }
    return undefined;
  }

  /** Everything of the stage that instructions behind its first ones need. */
  #surroundings(isStage: boolean): Surroundings {
    return {
      labels: this.#work.labels,
      args: [...new Set([...Object.keys(this.#own), ...this.#declared.keys()])],
      ...(isStage ? {} : { onto: this.#imageId ?? '' }),
      ...(isStage && this.#ca !== undefined ? { certificates: { from: CA_NAME, to: CA_TARGET } } : {}),
    };
  }

  /**
   * Has the engine's builder carry instructions out.
   * @param options - mayReuse: whether the engine may take layers from before. Without an image below (`FROM scratch`)
   * it would look for them among all images, and believe what an image of a registry says of its own making
   */
  async #build(
    { dockerfile, titles }: Assembled,
    { hasFiles, hasCertificates, mayReuse }: EngineOptions,
  ): Promise<{ readonly imageId: string } | Failed> {
    const { runtime, limits } = this.#parts;
    const { build, directory, network, written } = this.#work;
    const texts = [
      { name: 'Dockerfile', text: dockerfile },
      ...(hasCertificates && this.#ca !== undefined ? [{ name: CA_NAME, text: this.#ca }] : []),
    ];
    this.#output.instructions(titles);
    written.engine();
    const result = await runtime.build(
      Readable.from(tarOf(texts, hasFiles ? directory : undefined), { objectMode: false }),
      {
        network,
        memoryBytes: limits.memoryBytes,
        cpuMillicores: limits.cpuMillicores,
        args: { ...this.#given(), ...this.#own },
        noCache: build.order.noCache || !mayReuse,
        signal: build.abort.signal,
        onText: (text) => this.#output.push(text),
        onLayer: (imageId) => written.layer(imageId),
      },
    );
    this.#output.end();
    return result.kind === 'failed' ? { failed: this.#output.failed(result.message) } : { imageId: result.imageId };
  }

  /** ARG variables of the stage that have a value. */
  #given(): Readonly<Record<string, string>> {
    return Object.fromEntries(
      [...this.#declared].flatMap(([name, value]) => (value === undefined ? [] : [[name, value]])),
    );
  }

  async #run(at: number): Promise<BuildEvent | undefined> {
    const { runtime, limits, stepsApart } = this.#parts;
    const { build, steps, isApart, network, mounts, written, onContainer } = this.#work;
    const { order, abort } = build;
    const step = steps[at];
    if (this.#imageId === undefined || step?.instruction.name !== 'RUN')
      return failure('the order of the build begins with a step of ours');
    this.#output.stepApart(step.title);
    const config = await runtime.imageConfig(this.#imageId);
    const withPackages = isApart(at) && mounts.length > 0;
    const hasGpu = isApart(at) && order.gpus.length > 0;
    const result = await stepsApart.run({
      imageId: this.#imageId,
      command: programOf(step.instruction.command, config?.shell ?? []),
      variables: {
        ...withoutNames({ ...this.#given(), ...this.#own }, config?.env ?? []),
        ...(withPackages ? { [PACKAGES_VARIABLE]: PACKAGES_TARGET } : {}),
      },
      isOurs: isApart(at),
      mounts: withPackages ? mounts : [],
      network,
      memoryBytes: limits.memoryBytes,
      cpuMillicores: limits.cpuMillicores,
      pids: limits.pids,
      gpuUuids: hasGpu ? [await this.#gpu()] : [],
      key: hasGpu ? order.gpus.join(',') : '',
      noCache: order.noCache,
      signal: abort.signal,
      onLine: (line) => this.#output.line(line),
      onContainer,
      onEnd: (dockerId) => written.step(dockerId),
    });
    if (result.kind === 'not_started') return this.#output.failed(result.message);
    if (result.kind === 'failed') return this.#output.failed(`the step returned a non-zero code: ${result.exitCode}`);
    if (result.isReused) this.#output.reused();
    this.#goesOnFrom(result.imageId);
    return undefined;
  }

  /** The build's GPU: the one that it has, else the next that is free. */
  async #gpu(): Promise<string> {
    const { gpus } = this.#parts;
    const { build, held } = this.#work;
    const { order, abort } = build;
    for (let round = 0; ; round += 1) {
      await gpus.beforeLease(gpus.freeForBuild(order.gpus));
      const taken = gpus.takeForBuild(held, order.gpus);
      if (taken.kind === 'leased') return taken.uuid;
      if (taken.kind === 'absent')
        throw new AppError('gpu_unavailable', `the machine of the build has no GPU ${order.gpus.join(' or ')}`);
      if (round === 0) tell(build, { note: 'waits for a GPU: containers have all of them' });
      if (!(await sleep(GPU_LOOK_EVERY_MS, abort.signal))) throw new Error('the build was ended');
    }
  }
}

/** As the engine has it: a variable of the image hides an ARG of the same name. */
const withoutNames = (
  variables: Readonly<Record<string, string>>,
  env: readonly string[],
): Readonly<Record<string, string>> => {
  const taken = new Set(env.filter((one) => one.includes('=')).map((one) => one.slice(0, one.indexOf('='))));
  return Object.fromEntries(Object.entries(variables).filter(([name]) => !taken.has(name)));
};
