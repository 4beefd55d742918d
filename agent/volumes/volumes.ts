/**
 * The volumes of this machine's containers. Called by the executor before it creates a container. Must stay true: every
 * mount was checked against the path rules. A driver whose files do not answer is reported as down, by a condition,
 * until they do; no second volume of it is waited for.
 */
import { lstat } from 'node:fs/promises';
import { join } from 'node:path';
import { AppError, messageOf } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import { mountPlaces } from '#shared/domain/mount-paths.ts';
import type { VolumeDriverName } from '#shared/domain/volume-drivers.ts';
import { isVolumeDriver } from '#shared/domain/volume-drivers.ts';
import type { Mount } from '../containers/runtime.ts';
import { EngineError } from '../containers/runtime.ts';
import { hasCode } from '../durable.ts';
import type { AgentMetrics } from '../telemetry/metrics.ts';
import type { VolumeDriver, VolumeId, VolumeSource } from './driver.ts';
import { NoAnswer } from '../child.ts';
import type { WantedVolume } from '../containers/volumes-problem.ts';
import { VOLUME_ID, volumesProblem } from '../containers/volumes-problem.ts';

const PROBE_EVERY_MS = 30_000;
/** Probe interval while a driver is down. */
const PROBE_DOWN_MS = 2_000;

export interface VolumesParts {
  readonly drivers: readonly VolumeDriver[];
  /** Labels of volumes that the engine creates for us. */
  readonly labels: () => Readonly<Record<string, string>>;
  /** Called when a driver stops answering, or answers again. */
  readonly onDown: (driver: VolumeDriverName, down: boolean) => void;
  readonly metrics: Pick<AgentMetrics, 'volumeOperations'>;
  readonly log: Log;
}

export class Volumes {
  readonly #parts: VolumesParts;
  readonly #drivers: ReadonlyMap<VolumeDriverName, VolumeDriver>;
  readonly #down = new Set<VolumeDriverName>();
  readonly #timers = new Map<VolumeDriverName, NodeJS.Timeout>();
  #stopped = false;

  constructor(parts: VolumesParts) {
    this.#parts = parts;
    this.#drivers = new Map(parts.drivers.map((driver) => [driver.name, driver]));
  }

  /** Begins to probe stores on other machines' disks. */
  start(): void {
    if (this.#drivers.has('shared')) this.#probeIn('shared', 0);
  }

  stop(): void {
    this.#stopped = true;
    for (const timer of this.#timers.values()) clearTimeout(timer);
  }

  /** Drivers of this machine's settings besides `local`. */
  get offered(): readonly VolumeDriverName[] {
    return [...this.#drivers.keys()].filter((name) => name !== 'local');
  }

  /** Drivers whose files do not answer. */
  get down(): readonly string[] {
    return [...this.#down];
  }

  /**
   * Creates missing volumes, and returns the mounts.
   * @param code - the unpacked archive below `/mnt/code`, in which a mount point must be free
   * @throws AppError `code_error` where the code has a file or link in the way, `mount_error` when a volume cannot be
   * mounted
   */
  async mounts(workspaceId: string, volumes: readonly WantedVolume[], code: string): Promise<Mount[]> {
    const problem = volumesProblem(workspaceId, volumes);
    if (problem !== undefined) throw new AppError('mount_error', problem);
    const mounts: Mount[] = [];
    for (const { volumeId, mountPath, driver } of volumes) {
      const places = mountPlaces(mountPath);
      if ('problem' in places) continue;
      const source = await this.#source(driver, { workspaceId, volumeId });
      for (const target of places.targets) {
        if (target.startsWith('/mnt/code/')) await mustBeFree(code, target.slice('/mnt/code/'.length), mountPath);
        mounts.push(mountOf(source, target, this.#parts.labels()));
      }
    }
    return mounts;
  }

  /** The mount of one volume for a helper. Creates the volume if missing. @throws AppError `mount_error` */
  async mountAt(volume: VolumeId, driver: string, target: string): Promise<Mount> {
    if (!VOLUME_ID.test(volume.workspaceId) || !VOLUME_ID.test(volume.volumeId))
      throw new AppError('mount_error', 'the ids of a volume are not ids');
    return mountOf(await this.#source(driver, volume), target, this.#parts.labels());
  }

  /** Deletes a volume with all its content. @throws AppError `mount_error` */
  async remove(driver: string, volume: VolumeId): Promise<void> {
    if (!VOLUME_ID.test(volume.workspaceId) || !VOLUME_ID.test(volume.volumeId))
      throw new AppError('mount_error', 'the ids of a volume to delete are not ids');
    await this.#do('remove', this.#driver(driver, volume), (one) => one.remove(volume), volume);
  }

  #source(driver: string, volume: VolumeId): Promise<VolumeSource> {
    return this.#do('mount', this.#driver(driver, volume), (one) => one.mount(volume), volume);
  }

  #driver(text: string, { volumeId }: VolumeId): VolumeDriver {
    const name = text === '' ? 'local' : text;
    const driver = isVolumeDriver(name) ? this.#drivers.get(name) : undefined;
    if (driver === undefined)
      throw new AppError('mount_error', `volume ${volumeId}: this machine has no ${name} volumes (docs/volumes.md)`);
    return driver;
  }

  async #do<T>(
    operation: 'mount' | 'remove',
    driver: VolumeDriver,
    work: (driver: VolumeDriver) => Promise<T>,
    { volumeId }: VolumeId,
  ): Promise<T> {
    const what = `${operation} ${driver.name} volume ${volumeId}`;
    if (this.#down.has(driver.name)) {
      this.#count(operation, 'down');
      throw new AppError('mount_error', `cannot ${what}: the files of ${driver.name} volumes do not answer`);
    }
    try {
      const result = await work(driver);
      this.#count(operation, 'ok');
      return result;
    } catch (error) {
      this.#count(operation, this.#judge(driver, error));
      throw new AppError('mount_error', `cannot ${what}: ${messageOf(error)}`, { cause: error });
    }
  }

  /**
   * Classifies a failure. A driver that does not answer counts as down until it does. @returns whether it failed or
   * timed out
   */
  #judge(driver: VolumeDriver, error: unknown): 'error' | 'timeout' {
    const silent = error instanceof NoAnswer || (error instanceof EngineError && error.failure === 'unavailable');
    if (!silent) return 'error';
    if (!this.#down.has(driver.name)) {
      this.#down.add(driver.name);
      this.#parts.log.error({ err: error, driver: driver.name }, 'files of volumes do not answer');
      this.#parts.onDown(driver.name, true);
    }
    this.#probeIn(driver.name, PROBE_DOWN_MS);
    return 'timeout';
  }

  #probeIn(name: VolumeDriverName, ms: number): void {
    if (this.#stopped) return;
    clearTimeout(this.#timers.get(name));
    const timer = setTimeout(() => void this.#probe(name), ms);
    timer.unref();
    this.#timers.set(name, timer);
  }

  async #probe(name: VolumeDriverName): Promise<void> {
    const driver = this.#drivers.get(name);
    if (driver === undefined) return;
    try {
      await driver.probe();
      this.#count('probe', 'ok');
      if (this.#down.delete(name)) {
        this.#parts.log.info({ driver: name }, 'files of volumes answer again');
        this.#parts.onDown(name, false);
      }
      if (name === 'shared') this.#probeIn(name, PROBE_EVERY_MS);
    } catch (error) {
      const result = this.#judge(driver, error);
      this.#count('probe', result);
      if (result === 'timeout') return;
      // The store answers with a fault: a mount would report it with its reason.
      this.#parts.log.warn({ err: error, driver: name }, 'the files of volumes cannot be written');
      this.#probeIn(name, PROBE_EVERY_MS);
    }
  }

  #count(operation: 'mount' | 'remove' | 'probe', result: 'ok' | 'error' | 'timeout' | 'down'): void {
    this.#parts.metrics.volumeOperations.inc({ operation, result });
  }
}

function mountOf(source: VolumeSource, target: string, labels: Readonly<Record<string, string>>): Mount {
  if (source.kind === 'bind') return { kind: 'bind', target, readOnly: false, source: source.path };
  return {
    kind: 'volume',
    target,
    readOnly: false,
    source: '',
    volume: { name: source.name, ...source.options, labels },
  };
}

/**
 * Checks that a mount point is a directory or absent: a file in the way would be the engine's error, and a link would
 * lead elsewhere.
 */
async function mustBeFree(code: string, relative: string, mountPath: string): Promise<void> {
  let path = code;
  for (const part of relative.split('/')) {
    path = join(path, part);
    let found;
    try {
      found = await lstat(path);
    } catch (error) {
      if (hasCode(error, 'ENOENT', 'ENOTDIR')) return;
      throw error;
    }
    if (found.isDirectory()) continue;
    const what = found.isSymbolicLink() ? 'link' : 'file';
    throw new AppError(
      'code_error',
      `volume at ${mountPath}: the code has a ${what} of that name (${path.slice(code.length + 1)}); rename one of them`,
    );
  }
}
