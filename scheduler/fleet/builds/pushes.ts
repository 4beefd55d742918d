/**
 * Has machines push the images that they built to the managed registry: after a build, and later where that failed or
 * the registry is new. Must stay true: a failed push loses no image; it stays on its machine, and its row says why.
 */
import { builtRepository } from '#shared/domain/built-images.ts';
import type { MachineId, WorkspaceId } from '#shared/domain/ids.ts';
import { messageOf } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import type { Db } from '../../stores/store/db.ts';
import { endPush, unpushedImages } from '../../stores/store/queries/images.ts';
import type { PushEnd } from '../../stores/store/queries/images.ts';
import type { Machine } from '../machine.ts';
import type { OrderedStreams } from '../ordered-streams.ts';
import type { RegistryAccess } from '../registry/access.ts';
import type { RegistryClient } from '../registry/client.ts';
import type { RegistryMetrics } from '../registry/metrics.ts';
import type { OrderedBuild } from './builds.ts';
import { followEvents } from './events.ts';
import type { Transcript } from './transcript.ts';

export interface PushesParts {
  readonly db: Db;
  readonly machines: { all(): Iterable<Machine> };
  readonly streams: Pick<OrderedStreams<OrderedBuild>, 'open'>;
  readonly access: Pick<RegistryAccess, 'toPush'>;
  readonly client: Pick<RegistryClient, 'image'>;
  readonly metrics: RegistryMetrics;
  readonly log: Log;
}

/** A machine's image. */
export interface PushedImage {
  readonly id: string;
  readonly workspaceId: WorkspaceId;
  readonly machineId: MachineId;
}

/** Pushes of a round, one after the other. */
const MOST_OF_ROUND = 8;
const TRY_AGAIN_MINUTES = 10;
const QUIET: Pick<Transcript, 'add'> = { add: () => undefined };

export class Pushes {
  readonly #parts: PushesParts;

  constructor(parts: PushesParts) {
    this.#parts = parts;
  }

  /** Pushes images that are on a machine alone. */
  async round(signal: AbortSignal = new AbortController().signal): Promise<void> {
    const { db, machines } = this.#parts;
    const there = [...machines.all()].filter(
      ({ health, inventory }) => health === 'READY' && inventory?.registry === true,
    );
    const ids = there.map(({ row }) => row.id);
    for (const image of await unpushedImages(db, ids, TRY_AGAIN_MINUTES, MOST_OF_ROUND)) {
      const end = await this.push(image, QUIET, signal);
      if (signal.aborted) return;
      if (end !== undefined) await endPush(db, image, end);
    }
  }

  /** @returns where the image is now, or why it is not there; undefined: its agent cannot push */
  async push(
    image: PushedImage,
    transcript: Pick<Transcript, 'add'>,
    signal: AbortSignal,
  ): Promise<PushEnd | undefined> {
    const { machines, metrics, log } = this.#parts;
    const machine = [...machines.all()].find(({ row }) => row.id === image.machineId);
    if (machine?.inventory?.registry !== true) return undefined;
    const from = performance.now();
    let end: PushEnd;
    try {
      end = await this.#push(image, transcript, signal);
    } catch (error) {
      end = { error: messageOf(error) };
    }
    const result = 'error' in end ? 'failed' : 'ok';
    metrics.pushes.inc({ result });
    if ('error' in end)
      transcript.add(`the image stays on machine ${image.machineId}, because it was not pushed: ${end.error}`, true);
    log.info(
      { image: image.id, machineId: image.machineId, result, durationMs: Math.round(performance.now() - from), ...end },
      'image push ended',
    );
    return end;
  }

  async #push(image: PushedImage, transcript: Pick<Transcript, 'add'>, signal: AbortSignal): Promise<PushEnd> {
    const { access, client, streams } = this.#parts;
    const { id, workspaceId, machineId } = image;
    const push = await access.toPush(machineId, workspaceId, id);
    if (typeof push === 'string') return { error: push };
    transcript.add('pushing the image to the registry', true);
    const bytes = await streams.open(machineId, { image: id, workspaceId, push }, signal);
    const last = await followEvents(bytes, transcript, signal);
    if (last === undefined) return { error: 'the connection to the machine ended' };
    if ('failed' in last) return { error: last.failed };
    if (!('pushed' in last)) return { error: 'the agent did not push it' };
    // The registry's own word counts: a row that names what is not there would send machines in vain.
    const stored = await client.image(builtRepository(workspaceId), last.pushed);
    if (stored === undefined) return { error: `the registry has no image ${last.pushed}` };
    return { digest: last.pushed };
  }
}
