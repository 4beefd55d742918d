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
import { AppError, messageOf } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import type { BuildEvent } from '#shared/protocol/build-events.ts';
import type { Archives } from '../code/archives.ts';
import type { PauseContainers } from '../containers/pause-containers.ts';
import { LABELS } from '../containers/runtime.ts';
import type { ContainerRuntime } from '../containers/runtime.ts';
import type { Images } from '../images/images.ts';
import { basesOf, instructionsOf } from './assemble.ts';
import { failure, tell } from './build.ts';
import type { Build } from './build.ts';
import type { Packages } from './packages.ts';
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
  /** Counts blocks below these folders, past their permissions. */
  readonly countByHelper: (paths: readonly string[]) => Promise<number>;
  /** Whether the disk of images is too full to take more. */
  readonly isDiskFull: () => boolean;
  readonly limits: BuildLimits;
  /** Variables that pip reads, as the operator sets them. */
  readonly variables: Readonly<Record<string, string>>;
  /** A file of certificates that programs in builds trust. */
  readonly caBundle: string | undefined;
  readonly log: Log;
}

/** Labels by which agents know what is theirs. */
const TAKEN_LABELS = new Set<string>([...Object.values(LABELS), BUILD_LABEL, BUILD_WORKSPACE_LABEL, BUILD_STEP_LABEL]);
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
    const { pauseContainers, archives, limits, packages } = this.#parts;
    const { order, abort } = build;
    const { steps, context, workspaceId, image } = order;
    const instructions = instructionsOf(steps);
    if (instructions === undefined || !isBuiltImage(image) || workspaceId === '')
      return failure('the order of the build cannot be read');
    const held = `build-${build.id}`;
    let why: string | undefined;
    const end = (text: string): void => {
      why ??= text;
      abort.abort();
    };
    const late = setTimeout(() => end(`the build took longer than ${limits.timeMs / 60_000} minutes`), limits.timeMs);
    const watch = new AbortController();
    let watching: Promise<void> | undefined;
    const hasApart = steps.some(({ apart }) => apart) && (packages.isKept || order.gpus.length > 0);
    const keepsPackages = hasApart && packages.isKept;
    const ended: string[] = [];
    const written = new Written({
      ...this.#parts,
      mostBytes: limits.diskBytes,
      onOver: () => end(`the steps wrote more than ${Math.round(limits.diskBytes / 1024 ** 2)} MiB`),
    });
    let hasPackages = false;
    try {
      const ids = await this.#bases(build, basesOf(instructions));
      const directory = context === null ? undefined : await archives.acquire(context, held);
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
        instructions,
        isApart: (at) => hasApart && steps[at]?.apart === true,
        ids,
        directory,
        network,
        mounts,
        written,
        onContainer: (dockerId) => ended.push(dockerId),
      });
      await written.settled();
      if (why !== undefined) return failure(why);
      return 'failed' in built ? built.failed : await this.#named(image, built.imageId);
    } catch (error) {
      if (why !== undefined) return failure(why);
      throw error;
    } finally {
      clearTimeout(late);
      watch.abort();
      await watching;
      pauseContainers.release(held, 0);
      if (context !== null) archives.release(context.sha256, held);
      if (hasPackages) packages.release(workspaceId);
      await this.#parts.gpus.releaseFromBuild(held, ended).catch((error: unknown) => {
        this.#parts.log.warn({ err: error }, 'the GPU of a build was not seen to be free');
      });
    }
  }

  async #named(image: string, imageId: string): Promise<BuildEvent> {
    const { runtime } = this.#parts;
    await runtime.tagImage(imageId, image);
    const facts = await runtime.image(image);
    return { built: facts?.id ?? imageId, bytes: facts?.bytes ?? 0 };
  }

  /** Has the images that the steps name. @returns the engine's id of each */
  async #bases(build: Build, bases: readonly string[]): Promise<ReadonlyMap<string, string>> {
    const { runtime, images, baseImageOf } = this.#parts;
    const { workspaceId, pythonVersion } = build.order;
    const ids = new Map<string, string>();
    for (const base of bases) {
      const isOwn = base === BASE_IMAGE;
      if (!isOwn && isBuiltImage(base)) throw new AppError('image_error', `${base} is not a base of builds`);
      const reference = isOwn ? baseImageOf(pythonVersion) : base;
      let told = '';
      const onProgress = (text: string): void => {
        if (text !== told) tell(build, { note: text });
        told = text;
      };
      // The operator's base image is for all; every other one only for who may pull it.
      const { id } = await images.ensure(reference, onProgress, isOwn ? '' : workspaceId);
      const config = await runtime.imageConfig(id);
      // Labels and triggers of a base act in the build, past the check of its steps.
      const label = Object.keys(config?.labels ?? {}).find((name) => TAKEN_LABELS.has(name));
      if (!isOwn && label !== undefined)
        throw new AppError('image_error', `image ${base} has the label ${label}, which is Longshore's own`);
      if (!isOwn && config?.onBuild.some((trigger) => /--from|^\s*FROM\b/i.test(trigger)) === true)
        throw new AppError('image_error', `image ${base} has ONBUILD instructions that name other images`);
      // The engine's builder would run them itself, without a bound on processes.
      if (config?.onBuild.some((trigger) => /^\s*RUN\b/i.test(trigger)) === true)
        throw new AppError(
          'image_error',
          `image ${base} has ONBUILD RUN instructions: write them into the Dockerfile, on an image without them`,
        );
      ids.set(base, id);
      if (build.abort.signal.aborted) throw new Error('the build was ended');
    }
    return ids;
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
