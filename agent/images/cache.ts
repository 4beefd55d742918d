/**
 * The images that this agent pulled, and their disk: checked every minute. The least recently used images leave when it
 * fills up. Must stay true: only images of this agent are removed, never one in use, in a pull, or young. Removal is by
 * name and never by force.
 */
import { repeat } from '#shared/backoff.ts';
import type { Log } from '#shared/log.ts';
import type { ContainerRuntime } from '../containers/runtime.ts';
import type { DiskReading } from '../telemetry/disks.ts';
import type { CachedImage, Room } from './evict.ts';
import { chooseEvictions, isRoomWanted } from './evict.ts';
import type { ImageLedger } from './ledger.ts';

const LOOK_EVERY_MS = 60_000;
/** Rounds of one collection: sizes are estimates, so each round measures again. */
const MAX_ROUNDS = 20;

export interface ImageCacheParts {
  readonly runtime: Pick<ContainerRuntime, 'image' | 'imageIdsInUse' | 'removeImage'>;
  readonly ledger: ImageLedger;
  readonly readDisk: () => Promise<DiskReading>;
  readonly minFreeRatio: number;
  readonly pulling: () => ReadonlySet<string>;
  /** Images of containers that are to be created. */
  readonly wanted: () => ReadonlySet<string>;
  readonly onBytes: (bytes: number) => void;
  readonly onFreed: (bytes: number) => void;
  readonly log: Log;
}

export class ImageCache {
  readonly #parts: ImageCacheParts;
  readonly #abort = new AbortController();
  #looking: Promise<void> | undefined;
  #collecting: Promise<number> | undefined;

  constructor(parts: ImageCacheParts) {
    this.#parts = parts;
  }

  start(): void {
    this.#looking = repeat(
      LOOK_EVERY_MS,
      this.#abort.signal,
      () => this.collect(false),
      (error) => this.#parts.log.warn({ err: error }, 'images could not be looked through'),
    );
  }

  async stop(): Promise<void> {
    this.#abort.abort();
    await this.#looking;
    await this.#collecting?.catch(() => undefined);
    await this.#parts.ledger.save().catch(() => undefined);
  }

  /**
   * Evicts as far as the disk requires; one collection at a time.
   * @param urgent - a pull has found no room
   * @returns the number of removed images
   */
  collect(urgent: boolean): Promise<number> {
    this.#collecting ??= this.#collect(urgent).finally(() => {
      this.#collecting = undefined;
    });
    return this.#collecting;
  }

  async #collect(urgent: boolean): Promise<number> {
    const { ledger, readDisk, minFreeRatio, runtime, log, onFreed } = this.#parts;
    let removed = 0;
    const kept = new Set<string>();
    for (let round = 0; round < MAX_ROUNDS && !this.#abort.signal.aborted; round += 1) {
      const disk = await readDisk();
      const room: Room = {
        freeBytes: disk.freeBytes,
        totalBytes: disk.usableBytes,
        minFreeRatio,
        going: removed > 0,
        urgent: urgent && removed === 0,
      };
      const images = await this.#images(kept, isRoomWanted(room));
      const chosen = chooseEvictions({ ...room, images }, Date.now());
      const [reference] = chosen;
      if (reference === undefined) break;
      if (await runtime.removeImage(reference)) {
        removed += 1;
        ledger.forget(reference);
        const freedBytes = Math.max(0, (await readDisk()).freeBytes - disk.freeBytes);
        onFreed(freedBytes);
        log.info({ image: reference, freedBytes }, 'image evicted');
      } else {
        kept.add(reference);
      }
    }
    await ledger.save();
    return removed;
  }

  /**
   * @param mayLeave - an image may have to leave: only then is their use determined, which lists every container of the
   * engine
   */
  async #images(kept: ReadonlySet<string>, mayLeave: boolean): Promise<readonly CachedImage[]> {
    const { runtime, ledger, pulling, wanted, onBytes } = this.#parts;
    const images: CachedImage[] = [];
    const used = mayLeave ? await runtime.imageIdsInUse() : new Set<string>();
    const [flights, soon] = [pulling(), wanted()];
    let bytes = 0;
    for (const [reference, entry] of ledger.all()) {
      const facts = await runtime.image(reference);
      if (facts === undefined) {
        // The image was removed outside the agent. If only its name was, the image still needs its rights.
        const isHere = entry.imageId !== undefined && (await runtime.image(entry.imageId)) !== undefined;
        if (!flights.has(reference) && !isHere) ledger.forget(reference);
        continue;
      }
      bytes += facts.bytes;
      images.push({
        reference,
        bytes: facts.bytes,
        pulledAtMs: entry.pulledAtMs,
        usedAtMs: entry.usedAtMs,
        inUse: used.has(facts.id) || soon.has(reference) || kept.has(reference),
        pulling: flights.has(reference),
        ours: true,
      });
    }
    onBytes(bytes);
    return images;
  }
}
