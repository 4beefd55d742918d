import { repeat, withDeadline } from '#shared/backoff.ts';
import type { Log } from '#shared/log.ts';
import type { Conditions } from './conditions.ts';
import type { FileSystem } from './disk-limits.ts';
import type { DiskReading, OtherDisk, Pressure } from './disks.ts';
import { fullNow, MIN_FREE_INODES_RATIO, NO_PRESSURE, OTHER_DISKS, pressureAfter, readDisk } from './disks.ts';

const LOOK_EVERY_MS = 10_000;
/** Time for one disk: another one may hang. */
const READ_MS = 3_000;
/** The engine may be started again with its images elsewhere. */
const ASK_IMAGES_PATH_EVERY_MS = 60_000;

export interface DiskWatchParts {
  /** The engine's directory of images; the agent's own state directory if that is unreadable from here. */
  readonly imagesPath: string;
  /** Asks the engine for that directory again. */
  readonly askImagesPath: () => Promise<string>;
  readonly statePath: string;
  /** Directories of volumes that have a home here. */
  readonly volumePaths: Readonly<Partial<Record<'volumes' | 'cache', string>>>;
  readonly minFreeRatio: number;
  readonly conditions: Pick<Conditions, 'set'>;
  readonly onFree: (filesystem: 'images' | OtherDisk, bytes: number) => void;
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
  #askedMs = performance.now();
  /** Reads that a hanging disk has not answered: no second one is started. */
  readonly #hanging = new Set<string>();

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

  /** Whether the images' file system has too little room now. */
  async isLow(): Promise<boolean> {
    const { minFreeRatio } = this.#parts;
    return pressureAfter(NO_PRESSURE, { images: await this.readImagesDisk() }, minFreeRatio, 0).holds;
  }

  /** Whether the images' file system has less than half of the room that must be free. Pulls end there. */
  async isFull(): Promise<boolean> {
    const { freeBytes, usableBytes, freeInodesRatio } = await this.readImagesDisk();
    return freeBytes < (usableBytes * this.#parts.minFreeRatio) / 2 || freeInodesRatio < MIN_FREE_INODES_RATIO / 2;
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
    const { minFreeRatio, onFree, log } = this.#parts;
    await this.#followImages();
    let images = await this.readImagesDisk();
    if (images.freeBytes < images.usableBytes * minFreeRatio) {
      await this.#makeRoom().catch((error: unknown) => log.warn({ err: error }, 'no room could be made'));
      images = await this.readImagesDisk();
    }
    this.#reading = images;
    onFree('images', images.freeBytes);
    const others: Partial<Record<OtherDisk, DiskReading>> = {};
    for (const name of OTHER_DISKS) {
      const found = await this.#readIfItAnswers(name);
      if (found === undefined) continue;
      others[name] = found;
      onFree(name, found.freeBytes);
    }
    this.#become(pressureAfter(this.#pressure, { images, ...others }, minFreeRatio, performance.now()));
  }

  /** Asks the engine now and then where its images are. */
  async #followImages(): Promise<void> {
    const { askImagesPath, log } = this.#parts;
    if (performance.now() - this.#askedMs < ASK_IMAGES_PATH_EVERY_MS) return;
    this.#askedMs = performance.now();
    try {
      const path = await askImagesPath();
      if (path === this.#imagesPath) return;
      await readDisk(path);
      log.info({ path, before: this.#imagesPath }, "the engine's images are in another directory now");
      this.#imagesPath = path;
    } catch (error) {
      log.debug({ err: error }, "the engine's disk is not known anew");
    }
  }

  async #readIfItAnswers(name: OtherDisk): Promise<DiskReading | undefined> {
    const { statePath, volumePaths } = this.#parts;
    const path = { root: '/', state: statePath, ...volumePaths }[name];
    if (path === undefined || this.#hanging.has(name)) return undefined;
    this.#hanging.add(name);
    const reading = readDisk(path)
      .catch(() => undefined)
      .finally(() => this.#hanging.delete(name));
    return withDeadline(reading, READ_MS, () => new Error(`the disk of ${path} does not answer`)).catch(
      () => undefined,
    );
  }

  #become(pressure: Pressure): void {
    const { conditions, log } = this.#parts;
    if (pressure.holds && !this.#pressure.holds) log.warn({ why: pressure.why }, 'disk pressure: nothing new is taken');
    if (!pressure.holds && this.#pressure.holds) log.info('disk pressure is over');
    this.#pressure = pressure;
    conditions.set('DiskPressure', pressure.holds);
  }
}
