/**
 * A build from its images to its end. Must stay true: its steps have the network of a container and no more; its end
 * leaves no container.
 */
import { repeat } from '#shared/backoff.ts';
import {
  BASE_IMAGE,
  BUILD_LABEL,
  BUILD_STEP_LABEL,
  BUILD_WORKSPACE_LABEL,
  isBuiltImage,
} from '#shared/domain/built-images.ts';
import { expansionProblem } from '#shared/domain/dockerfile/expansion.ts';
import { imagesIn } from '#shared/domain/dockerfile/stages.ts';
import { AppError, messageOf } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import type { BuildEvent } from '#shared/protocol/build-events.ts';
import { unpackedName } from '../code/archives.ts';
import type { Archives } from '../code/archives.ts';
import type { PauseContainers } from '../containers/pause-containers.ts';
import type { ContainerRuntime } from '../containers/runtime.ts';
import type { Images } from '../images/images.ts';
import { readOrder } from './assemble.ts';
import type { Base, ReadStep } from './assemble.ts';
import { failure, tell } from './build.ts';
import type { Build } from './build.ts';
import type { Packages } from './packages.ts';
import { takenLabel, wrongLabel } from './own-labels.ts';
import { runStages } from './stages.ts';
import type { StepsApart } from './steps-apart.ts';
import { Written } from './written.ts';

export interface BuildLimits {
  /** Builds at once; 0: none. */
  readonly atOnce: number;
  readonly memoryBytes: number;
  readonly cpuMillicores: number;
  /** Processes and threads of a step. */
  readonly pids: number;
  /** Bytes that the steps of one build may write together. */
  readonly diskBytes: number;
  readonly timeMs: number;
}

/** Leases of GPUs; `devices/` has them. */
export interface BuildGpus {
  takeForBuild(
    buildId: string,
    models: readonly string[],
  ): { readonly kind: 'leased'; readonly uuid: string } | { readonly kind: 'busy' | 'absent' };
  beforeLease(gpuUuids: readonly string[]): Promise<void>;
  /** Free devices of these models, which a build may get. */
  freeForBuild(models: readonly string[]): readonly string[];
  holdForBuild(buildId: string, gpuUuids: readonly string[]): void;
  releaseFromBuild(buildId: string, dockerIds: readonly string[]): Promise<void>;
}

export interface BuilderParts {
  readonly runtime: ContainerRuntime;
  readonly images: Pick<Images, 'ensure'>;
  readonly archives: Pick<Archives, 'acquire' | 'release'>;
  readonly pauseContainers: Pick<PauseContainers, 'takeForBuild' | 'release'>;
  readonly stepsApart: Pick<StepsApart, 'run'>;
  readonly packages: Packages;
  readonly gpus: BuildGpus;
  /** The base image of a Python version. */
  readonly baseImageOf: (pythonVersion: string) => string;
  readonly machineId: () => string;
  /** Counts blocks of each of these folders, past their permissions, as far as it can. */
  readonly countVolumes: (folders: readonly string[]) => Promise<ReadonlyMap<string, number>>;
  /** Whether the disk of images is too full to take more. */
  readonly isDiskFull: () => boolean;
  readonly limits: BuildLimits;
  /** Variables that pip reads, as the operator sets them. */
  readonly variables: Readonly<Record<string, string>>;
  /** A file of certificates that programs in builds trust. */
  readonly caBundle: string | undefined;
  readonly log: Log;
}

interface BuildBase extends Base {
  /** Variables of the image: `NAME=value`. */
  readonly env: readonly string[];
}

type Labels = Readonly<Record<string, string>>;

const WATCH_EVERY_MS = 3000;
/** A look at the packages takes a container of its own. */
const PACKAGES_EVERY_ROUNDS = 3;

export class Builder {
  readonly #parts: BuilderParts;

  constructor(parts: BuilderParts) {
    this.#parts = parts;
  }

  /** @returns the last event */
  async build(build: Build): Promise<BuildEvent> {
    const { pauseContainers, archives, limits, packages, machineId } = this.#parts;
    const { order, abort } = build;
    const { context, workspaceId, image } = order;
    const read = readOrder(order.steps);
    if (read.kind === 'problem') return failure(`the order of the build cannot be read: ${read.problem}`);
    const { steps } = read;
    if (!isBuiltImage(image) || workspaceId === '') return failure('the order of the build cannot be read');
    const held = `build-${build.id}`;
    let why: string | undefined;
    const end = (text: string): void => {
      why ??= text;
      abort.abort();
    };
    const late = setTimeout(() => end(`the build took longer than ${limits.timeMs / 60_000} minutes`), limits.timeMs);
    const watch = new AbortController();
    let watching: Promise<void> | undefined;
    const hasApart = order.steps.some(({ apart }) => apart) && (packages.isKept || order.gpus.length > 0);
    const keepsPackages = hasApart && packages.isKept;
    const ended: string[] = [];
    const written = new Written({
      ...this.#parts,
      mostBytes: limits.diskBytes,
      onUncounted: () =>
        end('what the steps wrote to volumes (VOLUME) could not be counted in time: write fewer files there'),
      onOver: () => end(`the steps wrote more than ${Math.round(limits.diskBytes / 1024 ** 2)} MiB`),
    });
    let hasPackages = false;
    try {
      const bases = await this.#bases(build, imagesIn(steps.map(({ source }) => source)));
      const grown = this.#expansionProblem(steps, bases);
      if (grown !== undefined) return failure(grown);
      // They come first in every layer: no layer is ever used again for another workspace.
      const labels = { [BUILD_LABEL]: machineId(), [BUILD_WORKSPACE_LABEL]: workspaceId, [BUILD_STEP_LABEL]: '' };
      const directory = context === null ? undefined : await archives.acquire(context, held, 'build');
      const { network } = await pauseContainers.takeForBuild(held).catch((error: unknown) => {
        throw new AppError('network_error', `${messageOf(error)}; builds need Linux 5.16 or newer on the machine`, {
          cause: error,
        });
      });
      // The folder is counted by now: the watch begins with these bytes.
      hasPackages = keepsPackages;
      const mounts = keepsPackages ? [await packages.take(workspaceId)] : [];
      watching = this.#watch(build, { network, keepsPackages, written }, watch.signal, end);
      const built = await runStages(this.#parts, {
        build,
        held,
        steps,
        isApart: (at) => hasApart && order.steps[at]?.apart === true,
        bases,
        labels,
        directory,
        network,
        mounts,
        written,
        onContainer: (dockerId) => ended.push(dockerId),
      });
      await written.settled();
      if (why !== undefined) return failure(why);
      if ('failed' in built) return built.failed;
      const last = steps.findLast(({ instruction }) => instruction.name !== 'ARG');
      return await this.#named(image, built.imageId, labels, last?.instruction.name === 'RUN');
    } catch (error) {
      if (why !== undefined) return failure(why);
      throw error;
    } finally {
      clearTimeout(late);
      watch.abort();
      await watching;
      pauseContainers.release(held, 0);
      if (context !== null) archives.release(unpackedName(context.sha256, 'build'), held);
      if (hasPackages) packages.release(workspaceId);
      await this.#parts.gpus.releaseFromBuild(held, ended).catch((error: unknown) => {
        this.#parts.log.warn({ err: error }, 'the GPU of a build was not seen to be free');
      });
    }
  }

  /**
   * Names the image, if it has the labels that the build meant.
   * @param endsInStep - its last layer is that of a RUN
   */
  async #named(image: string, imageId: string, labels: Labels, endsInStep: boolean): Promise<BuildEvent> {
    const { runtime, log } = this.#parts;
    const config = await runtime.imageConfig(imageId);
    const wrong = wrongLabel(config?.labels ?? {}, labels, endsInStep);
    if (wrong !== undefined || config?.onBuild.length !== 0) {
      log.error({ image, imageId, label: wrong }, 'a build made an image with labels or triggers that it did not mean');
      await runtime.removeImage(imageId).catch((error: unknown) => {
        log.warn({ err: error, imageId }, 'an image without a name stays until the next removal of layers');
      });
      return failure(
        wrong === undefined
          ? 'the image has ONBUILD instructions, which no step of the build has: it was removed'
          : `the image has another label ${wrong} than its build gave it: it was removed`,
      );
    }
    await runtime.tagImage(imageId, image);
    const facts = await runtime.image(image);
    return { built: facts?.id ?? imageId, bytes: facts?.bytes ?? 0 };
  }

  /** The scheduler has looked at the steps as well, and knew no variables of bases. */
  #expansionProblem(steps: readonly ReadStep[], bases: ReadonlyMap<string, BuildBase>): string | undefined {
    const problem = expansionProblem(
      steps.map(({ instruction }) => instruction),
      steps.map(({ source }) => source),
      { bases: new Map([...bases].map(([name, { env }]) => [name, env])), variables: this.#parts.variables },
    );
    if (problem === undefined) return undefined;
    return `${steps[problem.at]?.title.slice(0, 80)}: ${problem.problem}; variables of the base image count`;
  }

  /** Has the images that the steps name. */
  async #bases(build: Build, names: readonly string[]): Promise<ReadonlyMap<string, BuildBase>> {
    const { runtime, images, baseImageOf } = this.#parts;
    const { workspaceId, pythonVersion } = build.order;
    const bases = new Map<string, BuildBase>();
    for (const name of names) {
      const isOwn = name === BASE_IMAGE;
      if (!isOwn && isBuiltImage(name)) throw new AppError('image_error', `${name} is not a base of builds`);
      const reference = isOwn ? baseImageOf(pythonVersion) : name;
      let told = '';
      const onProgress = (text: string): void => {
        if (text !== told) tell(build, { note: text });
        told = text;
      };
      // The operator's base image is for all; every other one only for who may pull it.
      const { id } = await images.ensure(reference, onProgress, isOwn ? '' : workspaceId);
      const config = await runtime.imageConfig(id);
      if (config === undefined) throw new AppError('image_error', `image ${reference} has left this machine`);
      // Labels and triggers of a base act in the build, past the check of its steps.
      const [trigger] = config.onBuild;
      if (trigger !== undefined)
        throw new AppError(
          'image_error',
          `image ${reference} has ONBUILD instructions (${trigger.slice(0, 60)}), which no build runs: take a base without them, and write them into the Dockerfile`,
        );
      const label = isOwn ? undefined : takenLabel(config.labels);
      if (label !== undefined)
        throw new AppError('image_error', `image ${reference} has the label ${label}, which is Longshore's own`);
      bases.set(name, { id, architecture: config.architecture, env: config.env });
      if (build.abort.signal.aborted) throw new Error('the build was ended');
    }
    return bases;
  }

  /** Ends a build that fills the disk. Steps have no limit of the engine's. */
  async #watch(
    { order: { workspaceId } }: Build,
    { network, keepsPackages, written }: { network: string; keepsPackages: boolean; written: Written },
    signal: AbortSignal,
    end: (why: string) => void,
  ): Promise<void> {
    const { runtime, packages, isDiskFull, log } = this.#parts;
    const packagesAtFirst = keepsPackages ? packages.countedOf(workspaceId) : 0;
    let round = 0;
    const look = async (): Promise<void> => {
      if (isDiskFull()) end('the disk of the machine is full');
      for (const dockerId of await runtime.containersOn(network)) await written.step(dockerId);
      round += 1;
      // A count of packages takes a container, so it comes less often, and not in a short build.
      if (keepsPackages && round % PACKAGES_EVERY_ROUNDS === 0)
        written.set('packages', Math.max(0, (await packages.bytesOf(workspaceId)) - packagesAtFirst));
    };
    await repeat(WATCH_EVERY_MS, signal, look, (error) => log.info({ err: error }, 'a build could not be measured'));
  }
}
