import { repeat } from '#shared/backoff.ts';
import type { Log } from '#shared/log.ts';
import type { Conditions } from './conditions.ts';
import type { FileSystem } from './disk-limits.ts';
import type { DiskReading, Pressure } from './disks.ts';
import { fullNow, NO_PRESSURE, pressureAfter, readDisk } from './disks.ts';

const LOOK_EVERY_MS = 10_000;

export interface DiskWatchParts {
  /** The engine's directory of images; the agent's own state directory if that is unreadable from here. */
  readonly imagesPath: string;
  readonly statePath: string;
  readonly minFreeRatio: number;
  readonly conditions: Pick<Conditions, 'set'>;
  readonly onFree: (filesystem: 'images' | 'root' | 'state', bytes: number) => void;
  readonly log: Log;
}

/** Watches the disks, has room freed where possible, and sets DiskPressure while there is too little. */
export class DiskWatch {
  readonly #parts: DiskWatchParts;
  readonly #abort = new AbortController();
  #makeRoom: () => Promise<unknown> = () => Promise.resolve();
  #imagesPath: string;
  #pressure: Pressure = NO_PRESSURE;
  #looking: Promise<void> | undefined;
  #reading: DiskReading | undefined;

  constructor(parts: DiskWatchParts) {
    this.#parts = parts;
    this.#imagesPath = parts.imagesPath;
  }

  /** Called when the disk of images has too little room. The handler evicts images as far as that disk requires. */
  onLow(handler: () => Promise<unknown>): void {
    this.#makeRoom = handler;
  }

  /** Free bytes of the images' file system, as of the last look. */
  get freeBytes(): number {
    return this.#reading?.freeBytes ?? 0;
  }

  /** The images' file system, as of the last look; undefined: there was none. */
  get reading(): DiskReading | undefined {
    return this.#reading;
  }

  async start(): Promise<void> {
    await this.readImagesDisk().catch((error: unknown) => {
      this.#parts.log.info({ err: error, path: this.#imagesPath }, "the engine's disk cannot be read from here");
      this.#imagesPath = this.#parts.statePath;
    });
    await this.check();
    this.#looking = repeat(
      LOOK_EVERY_MS,
      this.#abort.signal,
      () => this.check(),
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

  /** Sets the pressure because a pull has found no room. */
  full(): void {
    this.#become(fullNow('a pull found no space left'));
  }

  /** File systems that containers write to: the engine's and the state's. */
  async fileSystems(): Promise<readonly FileSystem[]> {
    const found = await Promise.all([this.readImagesDisk(), readDisk(this.#parts.statePath)]);
    return found.map(({ freeBytes, usableBytes }) => ({
      freeBytes,
      low: freeBytes < usableBytes * this.#parts.minFreeRatio,
    }));
  }

  async check(): Promise<void> {
    const { minFreeRatio, statePath, onFree, log } = this.#parts;
    let images = await this.readImagesDisk();
    if (images.freeBytes < images.usableBytes * minFreeRatio) {
      await this.#makeRoom().catch((error: unknown) => log.warn({ err: error }, 'no room could be made'));
      images = await this.readImagesDisk();
    }
    const [root, state] = await Promise.all([readDisk('/'), readDisk(statePath)]);
    this.#reading = images;
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
