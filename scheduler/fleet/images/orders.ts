/**
 * Images across the fleet: the meaning of a reference at deployment, the machines that get an image ahead, the line of
 * machines that pull an image, and the credentials for a pull. Deploying and the links of machines call it.
 * Invariant: credentials go only to a machine that has a container of that image of that
 * workspace, or was told to pull it. The operator's credentials go to the operator's own
 * machines alone. A machine that does not answer delays a deploy by seconds and never fails it.
 */
import { createHash, randomUUID } from 'node:crypto';
import { isBuiltImage } from '#shared/domain/built-images.ts';
import { mayRunCuda } from '#shared/domain/cuda.ts';
import { labelsFit } from '#shared/domain/labels.ts';
import type { MachineId, WorkspaceId } from '#shared/domain/ids.ts';
import { mirrorOf } from '#shared/domain/registry-mirror.ts';
import { digestOf, isDigest, pinnedTo, registryOf } from '#shared/domain/image-reference.ts';
import type { Log } from '#shared/log.ts';
import type {
  ImagePrepared__Output,
  PrepareImage,
  PullImageRequest__Output,
  PullImageResponse,
} from '#shared/protocol/generated/messages.ts';
import type { ContainerRegistry } from '../containers/container-registry.ts';
import type { StubConfig, Target } from '../../domain/stub-config.ts';
import type { Machine } from '../machine.ts';
import { isSchedulable, labelsOf } from '../machine.ts';
import { canHavePython, wantedPython } from '../../domain/base-pythons.ts';
import { basePythonsOf } from '../host-facts.ts';
import { mayHost } from './hosts.ts';
import type { PullLines } from './pull-line.ts';
import type { RegistryAccess } from '../registry/access.ts';
import type { ImageCredentials } from './workspace-credentials.ts';
import { poolNameOf } from '../../domain/pools.ts';
import type { Resolution } from '../../workspaces/deployments/needs.ts';

/** Longest time for which an agent's question is held. */
const MOST_HELD_MS = 30_000;
/** Pause before an agent asks again that cannot wait for its answer, or whose line is not known now. */
const ASK_AGAIN_MS = 2000;
const RESOLVE_MS = 10_000;
/** Most machines that one deploy asks to have its image. */
const PREPARED_MACHINES = 32;
/** Time in which a machine that was asked to have an image may request credentials for it. */
const HINT_MS = 60 * 60_000;
/** Bound on that time for a machine that goes on asking; a line has a bound of four hours. */
const LONGEST_HINT_MS = 6 * 60 * 60_000;
const MAX_HINTS = 2000;

interface Hint {
  readonly need: 'waits' | 'ahead';
  readonly untilMs: number;
  readonly endMs: number;
}

/** Failures that every machine would have: the deploy is refused. */
const FINAL: ReadonlySet<string> = new Set(['not_found', 'unauthorized', 'bad_manifest', 'closed']);

export interface ImageOrdersParts {
  readonly machines: { all(): Iterable<Machine>; get(machineId: MachineId): Machine | undefined };
  readonly containers: Pick<ContainerRegistry, 'ofMachine'>;
  readonly credentials: Pick<ImageCredentials, 'of'>;
  readonly lines: Pick<PullLines, 'ask' | 'hold' | 'keep' | 'leave'>;
  /** Absent: built images are in no registry. */
  readonly registry?: Pick<RegistryAccess, 'toPull'> | undefined;
  /** Whether work without a GPU may go to GPU machines of a pool that does not set it. */
  readonly cpuWorkAllowed: (poolName: string) => boolean;
  readonly log: Log;
}

export class ImageOrders {
  readonly #parts: ImageOrdersParts;
  readonly #asked = new Map<string, (answer: ImagePrepared__Output) => void>();
  #send: (machineId: MachineId, order: PrepareImage) => boolean = () => false;
  /** Hints by `machine workspace image`; the one that was not renewed for longest goes first. */
  readonly #hints = new Map<string, Hint>();

  constructor(parts: ImageOrdersParts) {
    this.#parts = parts;
  }

  /** Called with an order for a machine. The handler sends it. @returns false: the machine is not linked here */
  onOrder(handler: (machineId: MachineId, order: PrepareImage) => boolean): void {
    this.#send = handler;
  }

  /**
   * Resolves the image of a stub as it is now. Asks one machine,
   * whose engine knows its registries, proxies and certificates.
   */
  async resolve(workspaceId: WorkspaceId, config: StubConfig): Promise<Resolution> {
    const image = config.imageId;
    if (image === '' || isBuiltImage(image)) return { kind: 'resolved', digest: '', warning: '' };
    const candidates = this.#candidates(workspaceId, config);
    // A machine that has the image answers at once if the image exists on machines alone.
    const first = candidates.find(({ inventory }) => inventory?.images.includes(image) === true) ?? candidates[0];
    if (first === undefined) return unasked(image, 'no machine that may run it is connected');
    const answer = await this.#ask(first.row.id, workspaceId, image);
    if (answer === undefined) return unasked(image, `machine ${first.row.id} did not answer in time`);
    if (FINAL.has(answer.failure)) return { kind: 'refused', text: answer.message };
    if (answer.failure !== '') {
      const { failure, message } = answer;
      this.#parts.log.warn({ image, failure, machineId: first.row.id }, 'image deployed without its digest');
      // The sentence names the image already.
      const why = message.replace(`image ${image}: `, '').replace(`cannot ask the registry for image ${image}: `, '');
      return unasked(image, `asked through machine ${first.row.id}: ${why}`);
    }
    const isPinned = digestOf(image) !== '';
    return { kind: 'resolved', digest: !isPinned && isDigest(answer.digest) ? answer.digest : '', warning: '' };
  }

  /** Has the machines of its pools, as far as they are linked here, pull the image of a deployment. */
  prepare(target: Target): void {
    const { config, workspaceId, imageDigest } = target;
    if (config.imageId === '' && target.active) this.#makeBases(workspaceId, config);
    const isBuilt = isBuiltImage(config.imageId);
    if (config.imageId === '' || (isBuilt && this.#parts.registry === undefined) || !target.active) return;
    const image = pinnedTo(config.imageId, imageDigest);
    for (const machine of this.#candidates(workspaceId, config).slice(0, PREPARED_MACHINES)) {
      if (machine.inventory?.images.includes(image) === true) continue;
      // An agent that has a built image, or built it, finds it there at once.
      if (isBuilt && machine.inventory?.registry !== true) continue;
      this.#hint(machine.row.id, workspaceId, image, 'ahead');
      const order = {
        requestId: '',
        image: config.imageId,
        pythonVersion: '',
        pull: true,
        digest: imageDigest,
        workspaceId,
      };
      this.#send(machine.row.id, order);
    }
  }

  /** Has machines that make base images begin with that of the deployment. One that pulls is not known to lack it. */
  #makeBases(workspaceId: WorkspaceId, config: StubConfig): void {
    const wanted = wantedPython(config.pythonVersion);
    const order = {
      requestId: '',
      image: '',
      pythonVersion: config.pythonVersion,
      pull: true,
      digest: '',
      workspaceId,
    };
    const lacking = this.#candidates(workspaceId, config).filter(({ inventory }) => {
      const there = basePythonsOf(inventory);
      return there !== null && canHavePython(there, wanted) && !canHavePython(inventory?.basePythonsHere ?? [], wanted);
    });
    for (const { row } of lacking.slice(0, PREPARED_MACHINES)) this.#send(row.id, order);
  }

  /**
   * An agent asks before it pulls, and every 20 s while it does.
   * @param signal - aborted when the agent does not wait for the answer any more
   */
  async pull(
    machineId: MachineId,
    request: PullImageRequest__Output,
    signal?: AbortSignal,
  ): Promise<PullImageResponse> {
    const { lines, credentials } = this.#parts;
    const { image } = request;
    const workspaceId = request.workspaceId as WorkspaceId | '';
    const key = this.#lineKeyOf(machineId, image);
    if (request.done) {
      const how = request.pulled ? 'pulled' : request.again ? 'again' : 'done';
      await lines.leave(key, machineId, how).catch(() => undefined);
      return { waitMs: 0 };
    }
    const need = this.#needOf(machineId, workspaceId, image);
    if (need === undefined) {
      // The pull goes on until its agent has heard of it, and counts as long.
      if (request.pulling) await lines.keep(key, machineId).catch(() => undefined);
      // The container of a machine that waited has gone: if all of them pulled now, the line would have been in vain.
      else if (request.hasWaited) {
        await lines.leave(key, machineId, 'done').catch(() => undefined);
        return { waitMs: 0, unwanted: true };
      }
      // A machine that was not meant to have the image pulls it at
      // its own risk: no place that others wait for, no credentials.
      return { waitMs: 0 };
    }
    if (request.pulling) await lines.hold(key, machineId).catch(() => undefined);
    else if (!request.check) {
      this.#renew(machineId, workspaceId, image);
      const waitMs = Math.min(request.maxWaitMs, MOST_HELD_MS);
      const turn = await lines.ask(key, machineId, waitMs, { isAhead: need === 'ahead', signal });
      if (turn.kind === 'wait') {
        const { place, waiting } = turn;
        // An agent whose question was held asks again at once, with its place kept.
        const waitMs = request.maxWaitMs > 0 && place > 0 ? 1 : ASK_AGAIN_MS * (0.75 + Math.random() / 2);
        return { waitMs, place, waiting };
      }
    }
    if (isBuiltImage(image))
      return {
        waitMs: 0,
        ...(workspaceId === '' ? {} : await this.#parts.registry?.toPull(machineId, workspaceId, image)),
      };
    const auth = await credentials.of(workspaceId, image, this.#ownerOf(machineId));
    return { waitMs: 0, ...this.#mirrorOf(machineId, image), ...(auth === undefined ? {} : { auth }) };
  }

  #mirrorOf(machineId: MachineId, image: string): Pick<PullImageResponse, 'mirror' | 'mirrorAuth'> {
    const settings = this.#parts.machines.get(machineId)?.row.poolSettings;
    const mirror = mirrorOf(settings?.registryMirror ?? null, registryOf(image));
    return mirror === '' ? {} : { mirror, mirrorAuth: settings?.registryMirrorAuth ?? false };
  }

  /** Handles an agent's answer. */
  prepared(answer: ImagePrepared__Output): void {
    this.#asked.get(answer.requestId)?.(answer);
  }

  async #ask(
    machineId: MachineId,
    workspaceId: WorkspaceId,
    image: string,
  ): Promise<ImagePrepared__Output | undefined> {
    const auth = await this.#parts.credentials.of(workspaceId, image, this.#ownerOf(machineId));
    const requestId = randomUUID();
    let timer: NodeJS.Timeout | undefined;
    const answered = new Promise<ImagePrepared__Output | undefined>((resolve) => {
      this.#asked.set(requestId, resolve);
      timer = setTimeout(() => resolve(undefined), RESOLVE_MS);
    });
    try {
      const order = { requestId, image, pythonVersion: '', resolve: true, ...(auth === undefined ? {} : { auth }) };
      return this.#send(machineId, order) ? await answered : undefined;
    } finally {
      clearTimeout(timer);
      this.#asked.delete(requestId);
    }
  }

  /** Machines linked here that may get containers of the configuration. */
  #candidates(workspaceId: WorkspaceId, config: StubConfig): readonly Machine[] {
    const work = { workspaceId, poolName: poolNameOf(config.extra), gpu: config.gpuCount > 0 ? config.gpu : [] };
    return [...this.#parts.machines.all()].filter(
      (machine) =>
        machine.sessionId !== undefined &&
        isSchedulable(machine) &&
        mayHost(machine, work, this.#parts.cpuWorkAllowed) &&
        (config.labels === undefined || labelsFit(labelsOf(machine), config.labels)) &&
        mayRunCuda(machine.inventory?.gpuDriver ?? '', config.minCuda ?? ''),
    );
  }

  /** Owner of a machine; null: the operator; undefined: no such machine. */
  #ownerOf(machineId: MachineId): WorkspaceId | null | undefined {
    return this.#parts.machines.get(machineId)?.row.poolWorkspaceId;
  }

  /**
   * The key of an image's line. Machines of one owner share
   * it, so that one owner's machines keep no other's waiting.
   */
  #lineKeyOf(machineId: MachineId, image: string): string {
    const owner = this.#ownerOf(machineId) ?? '';
    return createHash('sha256').update(`${owner} ${image}`).digest('hex').slice(0, 32);
  }

  /**
   * How a machine needs the image: a container or a build waits for it, or a deploy had it sent ahead. Undefined: it
   * does not.
   * @param workspaceId - of the container; empty: any
   */
  #needOf(machineId: MachineId, workspaceId: WorkspaceId | '', image: string): 'waits' | 'ahead' | undefined {
    for (const { row, spec } of this.#parts.containers.ofMachine(machineId)) {
      if (workspaceId !== '' && row.workspaceId !== workspaceId) continue;
      if (pinnedTo(spec.wire.image ?? '', spec.wire.imageDigest ?? '') === image) return 'waits';
    }
    const hint = this.#hints.get(`${machineId} ${workspaceId} ${image}`);
    return hint !== undefined && hint.untilMs > Date.now() ? hint.need : undefined;
  }

  /** Lets a machine have credentials for images that a build needs. */
  expect(machineId: MachineId, workspaceId: WorkspaceId, images: readonly string[]): void {
    for (const image of images) this.#hint(machineId, workspaceId, image, 'waits');
  }

  #hint(machineId: MachineId, workspaceId: WorkspaceId, image: string, need: Hint['need']): void {
    const endMs = Date.now() + LONGEST_HINT_MS;
    const key = `${machineId} ${workspaceId} ${image}`;
    const before = this.#hints.get(key);
    const waits = before !== undefined && before.untilMs > Date.now() && before.need === 'waits';
    this.#remember(key, { need: waits ? 'waits' : need, endMs });
  }

  /** Keeps the hint of a machine that stands in line: the line may take longer than a hint lives. */
  #renew(machineId: MachineId, workspaceId: WorkspaceId | '', image: string): void {
    const key = `${machineId} ${workspaceId} ${image}`;
    const hint = this.#hints.get(key);
    if (hint !== undefined && hint.untilMs > Date.now()) this.#remember(key, hint);
  }

  #remember(key: string, { need, endMs }: Omit<Hint, 'untilMs'>): void {
    this.#hints.delete(key);
    this.#hints.set(key, { need, endMs, untilMs: Math.min(Date.now() + HINT_MS, endMs) });
    const [oldest] = this.#hints.keys();
    if (this.#hints.size > MAX_HINTS && oldest !== undefined) this.#hints.delete(oldest);
  }
}

/** The deployment goes on without an answer: the first start will show whether the image exists. */
const unasked = (image: string, why: string): Resolution => ({
  kind: 'resolved',
  digest: '',
  warning: `Nobody could say what image ${image} means now (${why}). It is deployed, and looked for when a container starts.`,
});
