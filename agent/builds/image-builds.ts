/**
 * Orders of the scheduler to build images, and the turns of the builds. Each build has a connection for its events; the
 * end of that connection ends the build. Must stay true: a machine runs few builds at once; the end of this agent
 * leaves no container, and layers without a name for a day at most.
 */
import type { Socket } from 'node:net';
import { repeat } from '#shared/backoff.ts';
import { BUILD_LABEL, isBuiltImage } from '#shared/domain/built-images.ts';
import { AppError, messageOf } from '#shared/errors.ts';
import type { BuildEvent } from '#shared/protocol/build-events.ts';
import type { BuildImage__Output } from '#shared/protocol/generated/messages.ts';
import type { OpenBytes } from '../slots/streams.ts';
import { failure, finish, tell } from './build.ts';
import type { Build } from './build.ts';
import { Builder } from './builder.ts';
import type { BuilderParts } from './builder.ts';
import type { BuildMetrics } from './metrics.ts';
import type { ImagePushes } from './pushes.ts';
import type { StepsApart } from './steps-apart.ts';
import { nextBuild } from './turns.ts';

export interface ImageBuildsParts extends BuilderParts {
  readonly pushes: Pick<ImagePushes, 'take'>;
  /** Whether this agent pulled an image. */
  readonly isPulled: (image: string) => boolean;
  readonly stepsApart: Pick<StepsApart, 'run' | 'left'>;
  readonly open: OpenBytes;
  readonly metrics: BuildMetrics;
}

const MOST_WAITING = 64;
const STOP_MS = 10_000;
const PRUNE_EVERY_MS = 3_600_000;
/** Hours for which the layers of a failed build wait for the next try. */
const LAYERS_HOURS = 24;

export class ImageBuilds {
  readonly #parts: ImageBuildsParts;
  readonly #builder: Builder;
  readonly #waiting: Build[] = [];
  readonly #running = new Map<Build, Promise<void>>();
  readonly #beganAt = new Map<string, number>();
  readonly #closing = new AbortController();
  readonly #recovering: Promise<void>[] = [];
  #pruning: Promise<void> | undefined;
  #isPruning = false;

  constructor(parts: ImageBuildsParts) {
    this.#parts = parts;
    this.#builder = new Builder(parts);
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
      last = await this.#builder.build(build);
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
