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
import type { MountDriverName, VolumeDriverName } from '#shared/domain/volume-drivers.ts';
import { isVolumeDriver } from '#shared/domain/volume-drivers.ts';
import type { Mount } from '../containers/runtime.ts';
import { EngineError } from '../containers/runtime.ts';
import { hasCode } from '../durable.ts';
import type { AgentMetrics } from '../telemetry/metrics.ts';
import type { VolumeDriver, VolumeId, VolumeSource } from './driver.ts';
import type { BucketKeys, HelperMounts } from './helper-mounts.ts';
import { HomeMissing } from './home.ts';
import { NoAnswer } from '../child.ts';
import type { WantedBucket, WantedVolume } from '../containers/volumes-problem.ts';
import { VOLUME_ID, volumesProblem } from '../containers/volumes-problem.ts';

const PROBE_EVERY_MS = 30_000;
/** Probe interval while a driver is down. */
const PROBE_DOWN_MS = 2_000;

export interface VolumesParts {
  readonly drivers: readonly VolumeDriver[];
  /** Mounts of the mount helper. */
  readonly helperMounts: Pick<HelperMounts, 'offered' | 'bucket' | 'hold'>;
  /** Labels of volumes that the engine creates for us. */
  readonly labels: () => Readonly<Record<string, string>>;
  /** Called when a driver stops answering, or answers again. */
  readonly onDown: (driver: VolumeDriverName, down: boolean, why: string) => void;
  readonly metrics: Pick<AgentMetrics, 'volumeOperations'>;
  readonly log: Log;
}

/** The container of mounts, with the keys of its buckets by mount path. */
export interface VolumeUser {
  readonly containerId: string;
  readonly bucketKeys: ReadonlyMap<string, BucketKeys>;
}

const NO_KEYS: BucketKeys = { accessKey: '', secretKey: '' };

export class Volumes {
  readonly #parts: VolumesParts;
  readonly #drivers: ReadonlyMap<VolumeDriverName, VolumeDriver>;
  /** Drivers that are down, with the reason for the operator. */
  readonly #down = new Map<VolumeDriverName, string>();
  readonly #timers = new Map<VolumeDriverName, NodeJS.Timeout>();
  #stopped = false;

  constructor(parts: VolumesParts) {
    this.#parts = parts;
    this.#drivers = new Map(parts.drivers.map((driver) => [driver.name, driver]));
  }

  /** Begins to probe stores that may be away. */
  start(): void {
    for (const { name, isWatched } of this.#drivers.values()) if (isWatched === true) this.#probeIn(name, 0);
  }

  stop(): void {
    this.#stopped = true;
    for (const timer of this.#timers.values()) clearTimeout(timer);
  }

  /** Drivers of this machine's settings besides `local`. */
  get offered(): readonly MountDriverName[] {
    const own = [...this.#drivers.keys()].filter((name) => name !== 'local' && name !== 's3');
    return [...own, ...this.#parts.helperMounts.offered];
  }

  /** Drivers whose files do not answer. */
  get down(): readonly string[] {
    return [...this.#down.keys()];
  }

  /**
   * Creates missing volumes, and returns the mounts.
   * @param code - the unpacked archive below `/mnt/code`, in which a mount point must be free
   * @throws AppError `code_error` where the code has a file or link in the way, `mount_error` when a volume cannot be
   * mounted, `bucket_error` when a bucket cannot be what its stub says
   */
  async mounts(
    workspaceId: string,
    volumes: readonly WantedVolume[],
    code: string,
    user: VolumeUser,
  ): Promise<Mount[]> {
    const problem = volumesProblem(workspaceId, volumes);
    if (problem !== undefined) throw new AppError('mount_error', problem);
    const mounts: Mount[] = [];
    for (const { volumeId, mountPath, driver, bucket } of volumes) {
      const places = mountPlaces(mountPath);
      if ('problem' in places) continue;
      const source = bucket
        ? await this.#bucket(workspaceId, bucket, mountPath, user)
        : await this.#source(driver, { workspaceId, volumeId }, user.containerId);
      for (const target of places.targets) {
        if (target.startsWith('/mnt/code/')) await mustBeFree(code, target.slice('/mnt/code/'.length), mountPath);
        mounts.push({ ...mountOf(source, target, this.#parts.labels()), readOnly: bucket?.readOnly === true });
      }
    }
    return mounts;
  }

  /** Mounts a workspace's bucket. Its failure says nothing of any other mount. */
  async #bucket(
    workspaceId: string,
    bucket: WantedBucket,
    mountPath: string,
    { containerId, bucketKeys }: VolumeUser,
  ): Promise<VolumeSource> {
    try {
      const keys = bucketKeys.get(mountPath) ?? NO_KEYS;
      const path = await this.#parts.helperMounts.bucket(containerId, workspaceId, bucket, keys);
      this.#count('mount', 'ok');
      return { kind: 'bind', path };
    } catch (error) {
      const isSilent = error instanceof NoAnswer;
      this.#count('mount', isSilent ? 'timeout' : 'error');
      const text = `cannot mount bucket ${bucket.bucket} at ${mountPath}: ${messageOf(error)}`;
      if (isSilent) throw new AppError('mount_error', text, { cause: error });
      // A bucket that refuses is its workspace's own: another machine would not help.
      throw new AppError('bucket_error', text, { cause: error });
    }
  }

  /**
   * The mount of one volume for a helper container. Creates the volume if missing.
   * @returns the mount, and what gives it back when the container has ended
   * @throws AppError `mount_error`
   */
  async mountAt(
    volume: VolumeId,
    driver: string,
    target: string,
  ): Promise<{ readonly mount: Mount; readonly release: () => void }> {
    if (!VOLUME_ID.test(volume.workspaceId) || !VOLUME_ID.test(volume.volumeId))
      throw new AppError('mount_error', 'the ids of a volume are not ids');
    const holder = `files-${volume.volumeId}`;
    const release = this.#parts.helperMounts.hold(holder);
    try {
      return { mount: mountOf(await this.#source(driver, volume, holder), target, this.#parts.labels()), release };
    } catch (error) {
      release();
      throw error;
    }
  }

  /** Deletes a volume with all its content. @throws AppError `mount_error` */
  async remove(driver: string, volume: VolumeId): Promise<void> {
    if (!VOLUME_ID.test(volume.workspaceId) || !VOLUME_ID.test(volume.volumeId))
      throw new AppError('mount_error', 'the ids of a volume to delete are not ids');
    await this.#do('remove', this.#driver(driver, volume), (one) => one.remove(volume), volume);
  }

  #source(driver: string, volume: VolumeId, holder: string): Promise<VolumeSource> {
    return this.#do('mount', this.#driver(driver, volume), (one) => one.mount(volume, holder), volume);
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
      const why = this.#down.get(driver.name) || `the files of ${driver.name} volumes do not answer`;
      throw new AppError('mount_error', `cannot ${what}: ${why}`);
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
      const why = error instanceof HomeMissing ? error.message : '';
      this.#down.set(driver.name, why);
      this.#parts.log.error({ err: error, driver: driver.name }, 'files of volumes do not answer');
      this.#parts.onDown(driver.name, true, why);
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
        this.#parts.onDown(name, false, '');
      }
      if (driver.isWatched === true) this.#probeIn(name, PROBE_EVERY_MS);
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
    volume: { name: source.name, options: source.options, labels },
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
