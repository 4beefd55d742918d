/**
 * A build from its images to its end: a segment of steps after another, by the engine's builder or in containers of the
 * agent. Must stay true: its steps have the network of a container and no more; its end leaves no container.
 */
import { readFile } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { repeat, sleep } from '#shared/backoff.ts';
import {
  BASE_IMAGE,
  BUILD_LABEL,
  BUILD_STEP_LABEL,
  BUILD_WORKSPACE_LABEL,
  PACKAGES_VARIABLE,
  isBuiltImage,
} from '#shared/domain/built-images.ts';
import type { Instruction } from '#shared/domain/dockerfile.ts';
import { AppError, messageOf } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import type { BuildEvent } from '#shared/protocol/build-events.ts';
import type { Archives } from '../code/archives.ts';
import type { PauseContainers } from '../containers/pause-containers.ts';
import { LABELS } from '../containers/runtime.ts';
import type { ContainerRuntime, Mount } from '../containers/runtime.ts';
import type { Images } from '../images/images.ts';
import { assemble, basesOf, instructionsOf, titleOf } from './assemble.ts';
import { failure, tell } from './build.ts';
import type { Build } from './build.ts';
import { BuildOutput } from './output.ts';
import { PACKAGES_TARGET } from './packages.ts';
import type { Packages } from './packages.ts';
import { segmentsOf } from './segments.ts';
import type { Segment } from './segments.ts';
import type { StepsApart } from './steps-apart.ts';
import { tarOf } from '../containers/tar.ts';

export interface BuildLimits {
  /** Builds at once; 0: none. */
  readonly atOnce: number;
  readonly memoryBytes: number;
  readonly cpuMillicores: number;
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
const GPU_LOOK_EVERY_MS = 2000;
const CA_NAME = '.longshore-ca.pem';
const CA_TARGET = '/usr/local/share/longshore-ca.pem';
/** Variables that name a file of certificates, for pip and other programs. */
const CA_VARIABLES = ['PIP_CERT', 'SSL_CERT_FILE', 'REQUESTS_CA_BUNDLE', 'CURL_CA_BUNDLE', 'NODE_EXTRA_CA_CERTS'];

/** A build whose images are there. */
interface Work {
  readonly build: Build;
  /** The name under which the build holds things of this machine. */
  readonly held: string;
  readonly instructions: readonly Instruction[];
  readonly segments: readonly Segment[];
  readonly ids: ReadonlyMap<string, string>;
  readonly directory: string | undefined;
  readonly network: string;
  readonly mounts: readonly Mount[];
  readonly onContainer: (dockerId: string) => void;
}

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
      watching = this.#watch(build, { network, keepsPackages }, watch.signal, end);
      const built = await this.#steps({
        build,
        held,
        instructions,
        ids,
        directory,
        network,
        mounts,
        segments: segmentsOf(instructions, (at) => hasApart && steps[at]?.apart === true),
        onContainer: (dockerId) => ended.push(dockerId),
      });
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

  /** Runs all steps. @returns the last image, or the failure of a step */
  async #steps(work: Work): Promise<{ readonly imageId: string } | { readonly failed: BuildEvent }> {
    const { runtime, limits, variables, machineId, stepsApart } = this.#parts;
    const { build, held, instructions, ids, directory, network, mounts, segments } = work;
    const { order, abort } = build;
    const { steps, workspaceId } = order;
    const ca = this.#parts.caBundle === undefined ? undefined : await readFile(this.#parts.caBundle, 'utf8');
    const args = {
      ...variables,
      ...(ca === undefined ? {} : Object.fromEntries(CA_VARIABLES.map((name) => [name, CA_TARGET]))),
    };
    const labels = { [BUILD_LABEL]: machineId(), [BUILD_WORKSPACE_LABEL]: workspaceId, [BUILD_STEP_LABEL]: '' };
    const bounds = { network, memoryBytes: limits.memoryBytes, cpuMillicores: limits.cpuMillicores };
    const output = new BuildOutput(instructions.length, (event) => tell(build, event));
    let imageId: string | undefined;
    for (const segment of segments) {
      if (segment.kind === 'apart') {
        if (imageId === undefined) return { failed: failure('the order of the build begins with a step of ours') };
        const instruction = instructions[segment.at];
        if (instruction === undefined) continue;
        output.stepApart(titleOf(steps[segment.at], instruction));
        const result = await stepsApart.run({
          imageId,
          script: segment.script,
          variables: mounts.length > 0 ? { ...args, [PACKAGES_VARIABLE]: PACKAGES_TARGET } : args,
          mounts,
          ...bounds,
          gpuUuids: order.gpus.length > 0 ? [await this.#gpu(build, held)] : [],
          key: order.gpus.join(','),
          noCache: order.noCache,
          signal: abort.signal,
          onLine: (line) => output.line(line),
          onContainer: work.onContainer,
        });
        if (result.kind === 'failed')
          return { failed: output.failed(`the step returned a non-zero code: ${result.exitCode}`) };
        if (result.isReused) output.reused();
        imageId = result.imageId;
        continue;
      }
      const isFirst = imageId === undefined;
      const { dockerfile, titles } = assemble(
        steps.slice(segment.from, segment.to),
        instructions.slice(segment.from, segment.to),
        {
          ids,
          labels,
          args: Object.keys(args),
          ...(imageId === undefined ? {} : { onto: imageId }),
          ...(isFirst && ca !== undefined ? { certificates: { from: CA_NAME, to: CA_TARGET } } : {}),
        },
      );
      const texts = [
        { name: 'Dockerfile', text: dockerfile },
        ...(isFirst && ca !== undefined ? [{ name: CA_NAME, text: ca }] : []),
      ];
      output.instructions(titles);
      const result = await runtime.build(
        Readable.from(tarOf(texts, isFirst ? directory : undefined), { objectMode: false }),
        {
          ...bounds,
          args,
          noCache: order.noCache,
          signal: abort.signal,
          onText: (text) => output.push(text),
        },
      );
      output.end();
      if (result.kind === 'failed') return { failed: output.failed(result.message) };
      imageId = result.imageId;
    }
    return { imageId: imageId ?? '' };
  }

  async #named(image: string, imageId: string): Promise<BuildEvent> {
    const { runtime } = this.#parts;
    await runtime.tagImage(imageId, image);
    const facts = await runtime.image(image);
    return { built: facts?.id ?? imageId, bytes: facts?.bytes ?? 0 };
  }

  /** The build's GPU: the one that it has, else the next that is free. */
  async #gpu(build: Build, held: string): Promise<string> {
    const { gpus } = this.#parts;
    const { order, abort } = build;
    for (let round = 0; ; round += 1) {
      const taken = gpus.takeForBuild(held, order.gpus);
      if (taken.kind === 'leased') return taken.uuid;
      if (taken.kind === 'absent')
        throw new AppError('gpu_unavailable', `the machine of the build has no GPU ${order.gpus.join(' or ')}`);
      if (round === 0) tell(build, { note: 'waits for a GPU: containers have all of them' });
      if (!(await sleep(GPU_LOOK_EVERY_MS, abort.signal))) throw new Error('the build was ended');
    }
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
      ids.set(base, id);
      if (build.abort.signal.aborted) throw new Error('the build was ended');
    }
    return ids;
  }

  /** Ends a build that fills the disk. Steps have no limit of the engine's. */
  async #watch(
    { order: { workspaceId } }: Build,
    { network, keepsPackages }: { readonly network: string; readonly keepsPackages: boolean },
    signal: AbortSignal,
    end: (why: string) => void,
  ): Promise<void> {
    const { runtime, limits, packages, isDiskFull, log } = this.#parts;
    const bytesOf = new Map<string, number>();
    const packagesAtFirst = keepsPackages ? packages.countedOf(workspaceId) : 0;
    let round = 0;
    const look = async (): Promise<void> => {
      if (isDiskFull()) end('the disk of the machine is full');
      for (const dockerId of await runtime.containersOn(network))
        bytesOf.set(dockerId, Math.max(bytesOf.get(dockerId) ?? 0, (await runtime.writtenBytes(dockerId)) ?? 0));
      round += 1;
      // A count of packages takes a container, so it comes less often, and not in a short build.
      if (keepsPackages && round % PACKAGES_EVERY_ROUNDS === 0)
        bytesOf.set('packages', Math.max(0, (await packages.bytesOf(workspaceId)) - packagesAtFirst));
      const bytes = [...bytesOf.values()].reduce((sum, one) => sum + one, 0);
      if (bytes > limits.diskBytes) end(`the steps wrote more than ${Math.round(limits.diskBytes / 1024 ** 2)} MiB`);
    };
    await repeat(WATCH_EVERY_MS, signal, look, (error) => log.info({ err: error }, 'a build could not be measured'));
  }
}
