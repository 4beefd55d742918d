import { repeat } from '#shared/backoff.ts';
import type { Log } from '#shared/log.ts';
import type { Conditions } from './conditions.ts';
import type { FileSystem } from './disk-limits.ts';
import type { DiskReading, Pressure } from './disks.ts';
import { fullNow, NO_PRESSURE, pressureAfter, readDisk } from './disks.ts';

const LOOK_EVERY_MS = 10_000;

export interface DiskWatchParts {
  /** Where the engine keeps images; where the agent keeps its state, when that cannot be read from here. */
  readonly imagesPath: string;
  readonly statePath: string;
  readonly minFreeRatio: number;
  /** Evicts images as far as their disk asks for it. */
  readonly makeRoom: () => Promise<unknown>;
  readonly conditions: Pick<Conditions, 'set'>;
  readonly onFree: (filesystem: 'images' | 'root' | 'state', bytes: number) => void;
  readonly log: Log;
}

/** Looks at the disks, has room made where it can be, and says DiskPressure while there is too little. */
export class DiskWatch {
  readonly #parts: DiskWatchParts;
  readonly #abort = new AbortController();
  #imagesPath: string;
  #pressure: Pressure = NO_PRESSURE;
  #looking: Promise<void> | undefined;
  #freeBytes = 0;

  constructor(parts: DiskWatchParts) {
    this.#parts = parts;
    this.#imagesPath = parts.imagesPath;
  }

  /** Of the images' file system, as last seen. */
  get freeBytes(): number {
    return this.#freeBytes;
  }

  async start(): Promise<void> {
    await this.readImagesDisk().catch((error: unknown) => {
      this.#parts.log.info({ err: error, path: this.#imagesPath }, "the engine's disk cannot be read from here");
      this.#imagesPath = this.#parts.statePath;
    });
    await this.look();
    this.#looking = repeat(
      LOOK_EVERY_MS,
      this.#abort.signal,
      () => this.look(),
      (error) => this.#parts.log.warn({ err: error }, 'disks could not be read'),
    );
  }

  async stop(): Promise<void> {
    this.#abort.abort();
    await this.#looking;
  }

  readImagesDisk(): Promise<DiskReading> {
    return readDisk(this.#imagesPath);
  }

  /** A pull has found no room. */
  full(): void {
    this.#become(fullNow('a pull found no space left'));
  }

  /** Where containers write: the engine's file system and the state's. */
  async fileSystems(): Promise<readonly FileSystem[]> {
    const found = await Promise.all([this.readImagesDisk(), readDisk(this.#parts.statePath)]);
    return found.map(({ freeBytes, usableBytes }) => ({
      freeBytes,
      low: freeBytes < usableBytes * this.#parts.minFreeRatio,
    }));
  }

  async look(): Promise<void> {
    const { minFreeRatio, makeRoom, statePath, onFree, log } = this.#parts;
    let images = await this.readImagesDisk();
    if (images.freeBytes < images.usableBytes * minFreeRatio) {
      await makeRoom().catch((error: unknown) => log.warn({ err: error }, 'no room could be made'));
      images = await this.readImagesDisk();
    }
    const [root, state] = await Promise.all([readDisk('/'), readDisk(statePath)]);
    this.#freeBytes = images.freeBytes;
    onFree('images', images.freeBytes);
    onFree('root', root.freeBytes);
    onFree('state', state.freeBytes);
    this.#become(pressureAfter(this.#pressure, { images, root }, minFreeRatio, performance.now()));
  }

  #become(pressure: Pressure): void {
    const { conditions, log } = this.#parts;
    if (pressure.holds && !this.#pressure.holds) log.warn({ why: pressure.why }, 'disk pressure: nothing new is taken');
    if (!pressure.holds && this.#pressure.holds) log.info('disk pressure is over');
    this.#pressure = pressure;
    conditions.set('DiskPressure', pressure.holds);
  }
}
