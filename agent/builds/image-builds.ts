/**
 * Builds images that the scheduler orders. Each build has a connection for its events; the end of that connection ends
 * the build. Must stay true: a build's steps have the network of a container and no more; a machine runs few builds at
 * once; the end of a build, or of this agent, leaves no container, and layers without a name for a day at most.
 */
import { readFile } from 'node:fs/promises';
import type { Socket } from 'node:net';
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
import { cut, encodeEvent } from '#shared/protocol/build-events.ts';
import type { BuildEvent } from '#shared/protocol/build-events.ts';
import type { BuildImage__Output } from '#shared/protocol/generated/messages.ts';
import type { Archives } from '../code/archives.ts';
import type { PauseContainers } from '../containers/pause-containers.ts';
import { LABELS } from '../containers/runtime.ts';
import type { ContainerRuntime, Mount } from '../containers/runtime.ts';
import type { Images } from '../images/images.ts';
import type { OpenBytes } from '../slots/streams.ts';
import { assemble, basesOf, instructionsOf, titleOf } from './assemble.ts';
import type { BuildMetrics } from './metrics.ts';
import { BuildOutput } from './output.ts';
import type { ImagePushes } from './pushes.ts';
import { PACKAGES_TARGET } from './packages.ts';
import type { Packages } from './packages.ts';
import { segmentsOf } from './segments.ts';
import type { Segment } from './segments.ts';
import type { StepsApart } from './steps-apart.ts';
import { tarOf } from './tar.ts';
import { nextBuild } from './turns.ts';

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

export interface ImageBuildsParts {
  readonly runtime: ContainerRuntime;
  readonly images: Pick<Images, 'ensure'>;
  readonly pushes: Pick<ImagePushes, 'take'>;
  /** Whether this agent pulled an image. */
  readonly isPulled: (image: string) => boolean;
  readonly archives: Pick<Archives, 'acquire' | 'release'>;
  readonly pauseContainers: Pick<PauseContainers, 'takeForBuild' | 'release'>;
  readonly stepsApart: Pick<StepsApart, 'run' | 'left'>;
  readonly packages: Packages;
  readonly gpus: BuildGpus;
  readonly open: OpenBytes;
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
  readonly metrics: BuildMetrics;
  readonly log: Log;
}

interface Build {
  readonly id: string;
  readonly workspaceId: string;
  readonly order: BuildImage__Output;
  readonly link: Socket;
  readonly abort: AbortController;
  readonly orderedAtMs: number;
}

/** Labels by which agents know what is theirs. */
const TAKEN_LABELS = new Set<string>([...Object.values(LABELS), BUILD_LABEL, BUILD_WORKSPACE_LABEL, BUILD_STEP_LABEL]);
const MOST_WAITING = 64;
const MOST_UNREAD_BYTES = 8 * 1024 * 1024;
const WATCH_EVERY_MS = 3000;
/** A look at the packages takes a container of its own. */
const PACKAGES_EVERY_ROUNDS = 3;
const GPU_LOOK_EVERY_MS = 2000;
const STOP_MS = 10_000;
const PRUNE_EVERY_MS = 3_600_000;
/** Hours for which the layers of a failed build wait for the next try. */
const LAYERS_HOURS = 24;
const CA_NAME = '.longshore-ca.pem';
const CA_TARGET = '/usr/local/share/longshore-ca.pem';
/** Variables that name a file of certificates, for pip and other programs. */
const CA_VARIABLES = ['PIP_CERT', 'SSL_CERT_FILE', 'REQUESTS_CA_BUNDLE', 'CURL_CA_BUNDLE', 'NODE_EXTRA_CA_CERTS'];

export class ImageBuilds {
  readonly #parts: ImageBuildsParts;
  readonly #waiting: Build[] = [];
  readonly #running = new Map<Build, Promise<void>>();
  readonly #beganAt = new Map<string, number>();
  readonly #closing = new AbortController();
  readonly #recovering: Promise<void>[] = [];
  #pruning: Promise<void> | undefined;
  #isPruning = false;

  constructor(parts: ImageBuildsParts) {
    this.#parts = parts;
    parts.metrics.onCollect(() => ({
      running: this.#running.size,
      waiting: this.#waiting.length,
      packagesBytes: parts.packages.bytes,
    }));
  }

  /**
   * Begins to remove the steps that an agent before this one left running. Must end before containers get GPUs: such a
   * step may have one.
   */
  async recover(): Promise<void> {
    const { stepsApart, runtime, gpus, log } = this.#parts;
    for (const { dockerId, gpuUuids } of await stepsApart.left()) {
      if (gpuUuids.length > 0) gpus.holdForBuild(dockerId, gpuUuids);
      log.info({ dockerId }, 'the step of a build that nobody follows any more is removed');
      this.#recovering.push(
        runtime
          .remove(dockerId)
          .then(() => gpus.releaseFromBuild(dockerId, [dockerId]))
          .catch((error: unknown) =>
            log.warn({ err: error, dockerId }, 'the step of a build stays until the next start'),
          ),
      );
    }
  }

  /** Removes what builds of an agent that was killed have left, and begins to remove old layers. */
  start(): void {
    const onFailed = (error: unknown): void =>
      this.#parts.log.info({ err: error }, 'layers of builds could not be removed');
    this.#parts.packages.settle();
    this.#pruning = Promise.all(this.#recovering)
      .then(() => this.#prune(0))
      .catch(onFailed)
      .then(() => repeat(PRUNE_EVERY_MS, this.#closing.signal, () => this.#prune(LAYERS_HOURS), onFailed));
  }

  async stop(): Promise<void> {
    this.#closing.abort();
    for (const build of [...this.#waiting, ...this.#running.keys()]) build.abort.abort();
    await Promise.race([Promise.all(this.#running.values()), new Promise((done) => setTimeout(done, STOP_MS).unref())]);
    await this.#pruning;
    await this.#parts.packages.idle();
  }

  /** Carries an order out, in turn. */
  take(order: BuildImage__Output): void {
    const opening = this.#closing.signal.aborted ? undefined : this.#parts.open({ streamId: order.streamId });
    opening?.then(
      (link) => {
        if (order.push === null) this.#queue(order, link);
        else void this.#parts.pushes.take(order, order.push, link);
      },
      // The scheduler waits for the connection in vain, and says so to its caller.
      (error: unknown) => this.#parts.log.warn({ err: error }, 'the connection of a build could not be opened'),
    );
  }

  /** Names of images that this agent built and that are here. @throws EngineError */
  async present(): Promise<readonly string[]> {
    const { runtime, machineId } = this.#parts;
    const names = await runtime.imagesWithLabel(`${BUILD_LABEL}=${machineId()}`);
    return names.map((name) => name.replace(/:latest$/, '')).filter(isBuiltImage);
  }

  /** Removes images that this agent built or pulled; agents of other installations may use the same engine. */
  async remove(images: readonly string[]): Promise<void> {
    const own = new Set([...(await this.present()), ...images.filter(this.#parts.isPulled)]);
    for (const image of images) if (own.has(image)) await this.#parts.runtime.removeImage(image);
  }

  #queue(order: BuildImage__Output, link: Socket): void {
    const { streamId: id, workspaceId } = order;
    const build = { id, workspaceId, order, link, abort: new AbortController(), orderedAtMs: performance.now() };
    link.on('error', () => undefined);
    link.once('close', () => build.abort.abort());
    // The scheduler sends nothing on it, except for its end.
    link.once('end', () => build.abort.abort());
    link.resume();
    if (this.#closing.signal.aborted || link.destroyed) return void link.destroy();
    if (this.#waiting.length >= MOST_WAITING)
      return finish(link, failure(`${MOST_WAITING} builds wait on this machine`));
    this.#waiting.push(build);
    build.abort.signal.addEventListener('abort', () => this.#forget(build), { once: true });
    this.#next();
    if (this.#waiting.includes(build)) tell(build, { note: 'waits for other builds of this machine' });
  }

  #forget(build: Build): void {
    const at = this.#waiting.indexOf(build);
    if (at === -1) return;
    this.#waiting.splice(at, 1);
    build.link.destroy();
  }

  #next(): void {
    // A removal of layers could take those that a build is about to use again.
    while (!this.#isPruning) {
      const chosen = nextBuild({
        waiting: this.#waiting,
        running: [...this.#running.keys()],
        beganAt: this.#beganAt,
        atOnce: this.#parts.limits.atOnce,
      });
      const build = this.#waiting.find((one) => one === chosen);
      if (build === undefined) return;
      this.#waiting.splice(this.#waiting.indexOf(build), 1);
      this.#beganAt.delete(build.workspaceId);
      this.#beganAt.set(build.workspaceId, performance.now());
      for (const [workspaceId] of this.#beganAt) {
        if (this.#beganAt.size <= 1000) break;
        this.#beganAt.delete(workspaceId);
      }
      const running = this.#run(build).finally(() => {
        this.#running.delete(build);
        this.#next();
      });
      this.#running.set(build, running);
    }
  }

  async #run(build: Build): Promise<void> {
    const { log, metrics } = this.#parts;
    const { image, workspaceId } = build.order;
    const from = performance.now();
    metrics.began(from - build.orderedAtMs);
    let last: BuildEvent;
    try {
      last = await this.#build(build);
    } catch (error) {
      const isOurs = error instanceof AppError;
      if (!isOurs && !build.abort.signal.aborted) log.warn({ err: error, image }, 'an image could not be built');
      last = failure(isOurs ? messageOf(error) : `the machine could not build the image: ${messageOf(error)}`);
    }
    const result = 'built' in last ? 'built' : build.abort.signal.aborted ? 'ended' : 'failed';
    const durationMs = performance.now() - from;
    metrics.ended(result, durationMs);
    log.info({ image, workspaceId, result, durationMs: Math.round(durationMs) }, 'build ended');
    finish(build.link, last);
  }

  /** @returns the last event */
  async #build(build: Build): Promise<BuildEvent> {
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

  async #prune(olderHours: number): Promise<void> {
    const { runtime, machineId } = this.#parts;
    if (this.#running.size > 0) return;
    this.#isPruning = true;
    try {
      await runtime.pruneImages(`${BUILD_LABEL}=${machineId()}`, olderHours);
    } finally {
      this.#isPruning = false;
      this.#next();
    }
  }
}

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

const failure = (text: string): BuildEvent => ({ failed: cut(text), step: '' });

function tell({ link, abort }: Build, event: BuildEvent): void {
  if (!link.writable) return;
  link.write(encodeEvent(event));
  // The scheduler reads all the time: one that does not is gone.
  if (link.writableLength > MOST_UNREAD_BYTES) abort.abort();
}

function finish(link: Socket, last: BuildEvent): void {
  if (link.writable) link.end(encodeEvent(last));
  setTimeout(() => link.destroy(), STOP_MS).unref();
}
