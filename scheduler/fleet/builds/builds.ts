/**
 * Builds of images: begun for a definition, followed by any number of callers, and remembered in SQL with the machines
 * that have the image. Operations call it. Invariant: an image has one build at a time, in one process; a process that
 * died frees its builds after 30 s. A caller who leaves ends no build.
 */
import type { Duplex } from 'node:stream';
import { repeat, sleep } from '#shared/backoff.ts';
import type { BuildImageRequest, VerifyImageBuildRequest } from '#shared/api/images.ts';
import { BASE_IMAGE, basePythonOf, isBuiltImage } from '#shared/domain/built-images.ts';
import { gpuTextsOf } from '#shared/domain/gpu-terms.ts';
import { imageProblem } from '#shared/domain/image-reference.ts';
import { isUuid, sha256Hex } from '#shared/domain/ids.ts';
import type { InstanceId, MachineId, WorkspaceId } from '#shared/domain/ids.ts';
import { AppError, messageOf } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import type { Registry } from '#shared/metrics.ts';
import type { BuildImage, CodeArchive } from '#shared/protocol/generated/messages.ts';
import type { Db } from '../../stores/store/db.ts';
import type { Objects } from '../../stores/objects/service.ts';
import {
  claimBuild,
  endBuild,
  forceImage,
  imageById,
  imageOutput,
  imagePlaces,
  renewBuild,
  touchImage,
} from '../../stores/store/queries/images.ts';
import type { BuildEnd } from '../../stores/store/queries/images.ts';
import { canHavePython, wantedPython } from '../../domain/base-pythons.ts';
import { basePythonsOf } from '../host-facts.ts';
import type { HostedWork } from '../images/hosts.ts';
import { mayHost } from '../images/hosts.ts';
import type { Machine } from '../machine.ts';
import { isSchedulable } from '../machine.ts';
import type { OrderedStreams } from '../ordered-streams.ts';
import { imageNameOf, readDefinition } from './definition.ts';
import type { Definition, ImageRequest, ReadDefinition } from './definition.ts';
import { followEvents } from './events.ts';
import type { Pushes } from './pushes.ts';
import { BuildMetrics } from './metrics.ts';
import { Transcript } from './transcript.ts';
import type { BuildLine, BuildOutcome } from './transcript.ts';

export type OrderedBuild = Omit<BuildImage, 'streamId'>;

export interface BuildsParts {
  readonly db: Db;
  readonly instance: InstanceId;
  readonly machines: { all(): Iterable<Machine> };
  readonly streams: Pick<OrderedStreams<OrderedBuild>, 'open'>;
  readonly objects: Pick<Objects, 'use'>;
  readonly cpuWorkAllowed: (poolName: string) => boolean;
  /** Why no machine can have the base image of that Python for the work; undefined: one can. */
  readonly pythonProblem: (work: HostedWork, pythonVersion: string) => string | undefined;
  /** Absent: no registry has built images. */
  readonly pushes?: Pick<Pushes, 'push'> | undefined;
  readonly registry: Registry;
  readonly log: Log;
}

/** An image that a request describes, for the workspace. */
export type Verified =
  | { readonly kind: 'refused'; readonly errMsg: string }
  | { readonly kind: 'image'; readonly imageId: string; readonly exists: boolean; readonly steps: readonly string[] };

export type BuildMessage =
  | ({ readonly kind: 'line' } & BuildLine)
  /** Nothing happened for a while. */
  | { readonly kind: 'waiting' }
  | { readonly kind: 'done'; readonly imageId: string; readonly errMsg: string };

/** Builds that one workspace may have at once, in all replicas. */
export const MOST_OF_WORKSPACE = 4;
/** Images of a workspace, failed ones included. */
export const MOST_IMAGES = 500;
const RENEW_EVERY_MS = 2000;
const LOOK_EVERY_MS = 1000;
/** Silence after which a follower is told that the build goes on: proxies close idle connections. */
const STILL_EVERY_MS = 15_000;
const NO_SECOND_SNAPSHOT =
  'it is a snapshot of files, which cannot be built again: no machine that is connected has it, and no registry';
/** Machines that are tried before a build is given up. */
const MOST_TRIED = 3;

export class Builds {
  readonly name = 'builds';
  readonly #parts: BuildsParts;
  /** Builds of this process, by image. */
  readonly #live = new Map<string, { readonly transcript: Transcript; readonly running: Promise<void> }>();
  readonly #closing = new AbortController();
  readonly #metrics: BuildMetrics;

  constructor(parts: BuildsParts) {
    this.#parts = parts;
    this.#metrics = new BuildMetrics(parts.registry, () => this.#live.size);
  }

  start(): void {
    // Builds begin with requests.
  }

  /** Ends the builds of this process; others may begin them again at once. */
  async stop(): Promise<void> {
    this.#closing.abort();
    await Promise.all([...this.#live.values()].map(({ running }) => running));
  }

  /** Says whether the image of a definition exists where the work may run. */
  async verify(workspaceId: WorkspaceId, request: VerifyImageBuildRequest): Promise<Verified> {
    const { db } = this.#parts;
    if (request.imageId !== '') {
      const python = basePythonOf(request.imageId);
      const problem =
        (python === undefined ? undefined : this.#parts.pythonProblem(workOf(workspaceId, request), python)) ??
        (await this.problemOf(workspaceId, request.imageId));
      if (problem !== undefined) return { kind: 'refused', errMsg: problem };
      return { kind: 'image', imageId: request.imageId, exists: true, steps: [] };
    }
    const read = this.#read(workspaceId, request);
    if (read.kind === 'refused') return read;
    if (read.kind === 'as_is') return { kind: 'image', imageId: read.image, exists: true, steps: [] };
    const imageId = imageNameOf(workspaceId, read.definition);
    if (request.forceRebuild) await forceImage(db, workspaceId, imageId);
    const exists = await this.#exists(workspaceId, imageId, workOf(workspaceId, request));
    this.#metrics.asked(exists);
    return { kind: 'image', imageId, exists, steps: read.definition.steps.map(({ title, text }) => title || text) };
  }

  /** Reads a definition, and refuses a base image that no machine can have. */
  #read(workspaceId: WorkspaceId, request: ImageRequest & Parameters<typeof workOf>[1]): ReadDefinition {
    const read = readDefinition(request);
    if (read.kind === 'refused') return read;
    const ofBase = read.kind === 'build' && read.definition.bases.includes(BASE_IMAGE);
    const python =
      read.kind === 'as_is' ? basePythonOf(read.image) : ofBase ? read.definition.pythonVersion : undefined;
    const errMsg = python === undefined ? undefined : this.#parts.pythonProblem(workOf(workspaceId, request), python);
    return errMsg === undefined ? read : { kind: 'refused', errMsg };
  }

  /** Why a stub of the workspace cannot have that image; undefined: it can, as far as is known here. */
  async problemOf(workspaceId: WorkspaceId, imageId: string): Promise<string | undefined> {
    const why = imageId === '' ? undefined : imageProblem(imageId);
    if (why !== undefined) return `imageId ${why}`;
    if (!isBuiltImage(imageId) || basePythonOf(imageId) !== undefined) return undefined;
    const row = await imageById(this.#parts.db, workspaceId, imageId);
    const quoted = JSON.stringify(imageId.slice(0, 80));
    if (row === undefined) return `imageId ${quoted} is not an image of this workspace`;
    // An image that was there is built again where a container wants it.
    if (row.builtAtMs === null) return `imageId ${quoted} was never built: build it first`;
    await touchImage(this.#parts.db, workspaceId, imageId);
    return undefined;
  }

  /** Builds an image, or follows the build that is under way. The last message is `done`. */
  async *build(
    workspaceId: WorkspaceId,
    request: BuildImageRequest,
    signal: AbortSignal,
  ): AsyncGenerator<BuildMessage, void> {
    const done = (imageId: string, errMsg: string): BuildMessage => ({ kind: 'done', imageId, errMsg });
    const read = this.#read(workspaceId, request);
    if (read.kind === 'refused') return void (yield done('', read.errMsg));
    if (read.kind === 'as_is') return void (yield done(read.image, ''));
    const { db, instance } = this.#parts;
    const { definition } = read;
    const imageId = imageNameOf(workspaceId, definition);
    const work = workOf(workspaceId, request);
    if (request.forceRebuild) await forceImage(db, workspaceId, imageId);
    while (!signal.aborted && !this.#closing.signal.aborted) {
      const here = this.#live.get(imageId);
      if (here !== undefined) {
        const outcome = yield* stillAlive(here.transcript.read(signal), signal);
        if (outcome !== undefined) yield done(outcome.errMsg === '' ? imageId : '', outcome.errMsg);
        return;
      }
      if (await this.#exists(workspaceId, imageId, work)) return void (yield done(imageId, ''));
      const context = await this.#context(workspaceId, definition);
      if (typeof context === 'string') return void (yield done('', context));
      const image = {
        id: imageId,
        workspaceId,
        definition,
        owner: instance,
        most: MOST_OF_WORKSPACE,
        mostImages: MOST_IMAGES,
        forced: request.forceRebuild,
      };
      const claim = await claimBuild(db, image);
      if (claim === 'full' || claim === 'too_many') this.#metrics.refused(claim === 'full' ? 'images' : 'builds');
      if (claim === 'full')
        return void (yield done(
          '',
          `this workspace has ${MOST_IMAGES} images: delete some (\`longshore image list\`)`,
        ));
      if (claim === 'too_many')
        return void (yield done('', `this workspace has ${MOST_OF_WORKSPACE} builds at once: wait for one of them`));
      if (claim === 'claimed') this.#begin({ workspaceId, imageId, definition, context, work });
      else if (yield* this.#elsewhere(workspaceId, imageId, signal)) return;
    }
  }

  /**
   * Builds an image again from its kept definition, for work that wants it.
   * @param only - the machine that must have it; absent: any that may run the work
   * @returns why there is no image; empty: there is one; undefined: another process is building it
   */
  async again(
    workspaceId: WorkspaceId,
    imageId: string,
    work: HostedWork,
    only?: MachineId,
  ): Promise<string | undefined> {
    const { db, instance } = this.#parts;
    const row = await imageById(db, workspaceId, imageId);
    if (row === undefined) return 'the workspace has no such image any more';
    const definition = row.definition as Definition;
    if (definition.snapshotOf !== undefined) return NO_SECOND_SNAPSHOT;
    const context = await this.#context(workspaceId, definition);
    if (typeof context === 'string') return context;
    const owner = { owner: instance, most: MOST_OF_WORKSPACE, mostImages: MOST_IMAGES, forced: row.forced };
    const claim = await claimBuild(db, { id: imageId, workspaceId, definition, ...owner });
    if (claim !== 'claimed')
      return claim === 'owned' ? undefined : `the workspace has ${MOST_OF_WORKSPACE} builds at once`;
    const transcript = this.#begin({ workspaceId, imageId, definition, context, work, only });
    await this.#live.get(imageId)?.running;
    return transcript.outcome?.errMsg ?? '';
  }

  /** Whether a machine that may run the work has the image. */
  async #exists(workspaceId: WorkspaceId, imageId: string, work: HostedWork): Promise<boolean> {
    const { db, machines, cpuWorkAllowed } = this.#parts;
    const row = await imageById(db, workspaceId, imageId);
    if (row === undefined || row.state === 'BUILDING' || row.forced) return false;
    const has = new Set((await imagePlaces(db, [imageId])).map(({ machineId }) => machineId));
    const isPulled = this.#parts.pushes !== undefined && row.digest !== '';
    for (const machine of machines.all())
      if (
        (has.has(machine.row.id) || (isPulled && machine.inventory?.registry === true)) &&
        isThere(machine) &&
        mayHost(machine, work, cpuWorkAllowed)
      ) {
        await touchImage(db, workspaceId, imageId);
        return true;
      }
    return false;
  }

  /** The object with the files of a build. A text is a refusal. */
  async #context(workspaceId: WorkspaceId, { contextObjectId }: Definition): Promise<CodeArchive | null | string> {
    if (contextObjectId === '') return null;
    const objectId = contextObjectId.toLowerCase();
    const row = isUuid(objectId) ? await this.#parts.objects.use(objectId) : undefined;
    const quoted = JSON.stringify(contextObjectId.slice(0, 60));
    if (row?.workspaceId !== workspaceId) return `buildCtxObject ${quoted} is not an object of this workspace`;
    if (row.sha256 === null) return `buildCtxObject ${quoted} has no content yet: upload it first`;
    return { objectId: row.id, sha256: row.sha256, size: row.size };
  }

  #begin(build: Begun): Transcript {
    const transcript = new Transcript();
    const running = this.#run(build, transcript).finally(() => this.#live.delete(build.imageId));
    this.#live.set(build.imageId, { transcript, running });
    return transcript;
  }

  async #run(build: Begun, transcript: Transcript): Promise<void> {
    const { db, instance, log } = this.#parts;
    const { imageId, workspaceId } = build;
    const from = performance.now();
    const abort = new AbortController();
    const signal = AbortSignal.any([abort.signal, this.#closing.signal]);
    const renewing = repeat(
      RENEW_EVERY_MS,
      signal,
      async () => {
        if (!(await renewBuild(db, imageId, instance, transcript.text))) abort.abort();
      },
      (error) => log.warn({ err: error, imageId }, 'a build was not renewed, trying again'),
    );
    let end: Omit<BuildEnd, 'id' | 'owner' | 'output'>;
    try {
      end = await this.#onMachines(build, transcript, signal);
    } catch (error) {
      if (!(error instanceof AppError) && !signal.aborted) log.error({ err: error, imageId }, 'an image was not built');
      const isEnded = signal.aborted;
      end = {
        state: isEnded ? 'PENDING' : 'FAILED',
        error: isEnded ? 'the build was cut off: begin it again' : messageOf(error),
      };
    }
    abort.abort();
    await renewing;
    try {
      await endBuild(db, { id: imageId, owner: instance, output: transcript.text, ...end });
      log.info({ imageId, workspaceId, state: end.state, machineId: end.place?.machineId }, 'build ended');
    } catch (error) {
      log.error({ err: error, imageId }, 'the end of a build was not written');
      end = { state: 'FAILED', error: 'the end of the build could not be written: begin it again' };
    }
    const result = end.state === 'READY' ? 'ready' : end.state === 'PENDING' ? 'cut_off' : 'failed';
    this.#metrics.ended(result, performance.now() - from);
    transcript.end({ errMsg: end.error });
  }

  async #onMachines(
    build: Begun,
    transcript: Transcript,
    signal: AbortSignal,
  ): Promise<Omit<BuildEnd, 'id' | 'owner' | 'output'>> {
    const machines = this.#candidates(build).slice(0, MOST_TRIED);
    if (machines.length === 0) return { state: 'FAILED', error: noMachine(build.work, build.only) };
    const { db, streams } = this.#parts;
    const { workspaceId, imageId: image, definition, context } = build;
    const row = await imageById(db, workspaceId, image);
    const order: OrderedBuild = {
      image,
      workspaceId,
      pythonVersion: definition.pythonVersion,
      steps: definition.steps.map(({ text, title, apart = false }) => ({ text, title, apart })),
      context,
      noCache: row?.forced === true,
      gpus: [...(definition.gpu ?? [])],
    };
    for (const [index, { row: machine }] of machines.entries()) {
      let bytes: Duplex;
      try {
        bytes = await streams.open(machine.id, order, signal);
      } catch (error) {
        if (signal.aborted || index === machines.length - 1) throw error;
        transcript.add(`machine ${machine.id} did not answer, trying another`, true);
        continue;
      }
      transcript.add(`building on machine ${machine.id}`, true);
      const last = await followEvents(bytes, transcript, signal);
      if (last === undefined || 'pushed' in last)
        return {
          state: 'FAILED',
          error: `the build was cut off: machine ${machine.id} is gone or its agent ended; begin it again`,
        };
      if ('failed' in last) return { state: 'FAILED', error: last.failed };
      const place = { machineId: machine.id, sizeBytes: last.bytes };
      // An image that cannot be pushed stays on its machine.
      const push = await this.#parts.pushes?.push(
        { id: image, workspaceId, machineId: machine.id },
        transcript,
        signal,
      );
      return { state: 'READY', error: '', place, ...(push === undefined ? {} : { push }) };
    }
    throw new AppError('machine_silent', 'no machine answered');
  }

  /** Machines for a build. A workspace's builds stay together, because its layers are there. */
  #candidates({ workspaceId, work, only, definition: { bases, pythonVersion } }: Begun): readonly Machine[] {
    const { machines, cpuWorkAllowed } = this.#parts;
    const wanted = bases.includes(BASE_IMAGE) ? wantedPython(pythonVersion) : '';
    const rank = new Map<MachineId, string>();
    const found = [...machines.all()].filter(
      (machine) =>
        (only === undefined || machine.row.id === only) &&
        machine.inventory?.builds === true &&
        isSchedulable(machine) &&
        canHavePython(basePythonsOf(machine.inventory), wanted) &&
        mayHost(machine, work, cpuWorkAllowed),
    );
    for (const { row } of found) rank.set(row.id, sha256Hex(`${workspaceId} ${row.id}`));
    return found.toSorted((a, b) => ((rank.get(a.row.id) ?? '') < (rank.get(b.row.id) ?? '') ? -1 : 1));
  }

  /** Follows a build of another process by its row, until it ends or the process dies. @returns whether it failed */
  async *#elsewhere(
    workspaceId: WorkspaceId,
    imageId: string,
    signal: AbortSignal,
  ): AsyncGenerator<BuildMessage, boolean> {
    const { db } = this.#parts;
    let told = '';
    while (await sleep(LOOK_EVERY_MS, signal)) {
      const [row, output = ''] = await Promise.all([
        imageById(db, workspaceId, imageId),
        imageOutput(db, workspaceId, imageId),
      ]);
      // The start of a long output is cut while it grows; then what is kept comes once more.
      const rest = output.startsWith(told) ? output.slice(told.length) : output;
      told = output;
      for (const text of rest.split('\n')) if (text !== '') yield { kind: 'line', text, isNote: false };
      if (rest === '') yield { kind: 'waiting' };
      if (row?.isOwned === true) continue;
      if (row?.state !== 'FAILED') return false;
      yield { kind: 'done', imageId: '', errMsg: row.error };
      return true;
    }
    return true;
  }
}

/** A build that this process has claimed. */
interface Begun {
  readonly workspaceId: WorkspaceId;
  readonly imageId: string;
  readonly definition: Definition;
  readonly context: CodeArchive | null;
  readonly work: HostedWork;
  /** The machine that must have the image; absent: any that may run the work. */
  readonly only?: MachineId | undefined;
}

const workOf = (
  workspaceId: WorkspaceId,
  { gpu, machineGpu, pool }: Pick<BuildImageRequest, 'gpu' | 'machineGpu' | 'pool'>,
): HostedWork => ({ workspaceId, poolName: pool, gpu: gpuTextsOf(gpu || machineGpu) });

/** Whether a machine may still serve what it has. */
const isThere = ({ health }: Machine): boolean =>
  health === 'READY' || health === 'RECONCILING' || health === 'SUSPECT';

function noMachine({ gpu, poolName }: HostedWork, only?: MachineId): string {
  if (only !== undefined) return `machine ${only}, where the app's volume is, cannot build images now`;
  const where = poolName === '' ? '' : ` in pool ${poolName}`;
  const which = gpu.length === 0 ? '' : ` with GPU ${gpu.join(' or ')}`;
  return `no machine${which}${where} that this workspace may use can build images now: \`longshore machine list\``;
}

/** Passes lines on; a message in between tells that the build goes on. */
async function* stillAlive(
  lines: AsyncGenerator<BuildLine, BuildOutcome | undefined>,
  signal: AbortSignal,
): AsyncGenerator<BuildMessage, BuildOutcome | undefined> {
  let next = lines.next();
  while (!signal.aborted) {
    const over = new AbortController();
    const silence = sleep(STILL_EVERY_MS, AbortSignal.any([over.signal, signal]));
    const first = await Promise.race([next, silence]);
    over.abort();
    if (typeof first === 'boolean') {
      if (first) yield { kind: 'waiting' };
      continue;
    }
    if (first.done === true) return first.value;
    yield { kind: 'line', ...first.value };
    next = lines.next();
  }
  return undefined;
}
