/**
 * Looks after the cache volumes of this machine: counts their bytes, evicts by the decision of evict-caches.ts, and
 * reports what is here. Must stay true: a volume that any container of the engine mounts is never
 * removed; one look at a time; a volume that cannot be counted keeps its last number. Counting takes at most a tenth of
 * the time.
 */
import { realpath } from 'node:fs/promises';
import { join } from 'node:path';
import { repeat } from '#shared/backoff.ts';
import { Listeners } from '#shared/listeners.ts';
import type { Log } from '#shared/log.ts';
import type { CachedVolume as FilledVolume } from '#shared/protocol/generated/messages.ts';
import type { BindMount, ContainerRuntime } from '../containers/runtime.ts';
import { countHere } from '../telemetry/count-blocks.ts';
import type { DiskReading } from '../telemetry/disks.ts';
import type { AgentMetrics } from '../telemetry/metrics.ts';
import type { CacheDirectories } from './cache-directories.ts';
import type { VolumeId } from './driver.ts';
import type { CacheDecision, CachedVolume, Excess } from './evict-caches.ts';
import { chooseCacheEvictions } from './evict-caches.ts';
import { HomeMissing } from './home.ts';

export const LOOK_EVERY_MS = 15_000;
/** Reports are repeated, so that the scheduler names volumes that were deleted meanwhile. */
const TELL_EVERY_MS = 10 * 60_000;
const WALK_MS = 60_000;
/** Rest after each count, as a multiple of its duration. */
const REST = 9;
/** Bound on reported volumes, the largest first. */
const MOST = 1_000;
const MIB = 1024 * 1024;

export interface CachesParts {
  readonly root: string;
  /** This machine has cache volumes. */
  readonly enabled: boolean;
  readonly directories: Pick<CacheDirectories, 'list' | 'touch' | 'removeIf'>;
  readonly runtime: Pick<ContainerRuntime, 'bindMounts'>;
  /** Counts folders that this user may not read. */
  readonly countByHelper: (paths: readonly string[]) => Promise<number>;
  readonly readDisk: () => Promise<DiskReading>;
  /** Bounds of the settings; undefined: half of the disk, and none of a workspace's own. */
  readonly machineBytes: number | undefined;
  readonly workspaceBytes: number | undefined;
  readonly minFreeRatio: number;
  readonly tell: (volumes: readonly FilledVolume[]) => void;
  readonly metrics: Pick<AgentMetrics, 'cacheBytes' | 'cacheLimitBytes' | 'cacheMounts' | 'cacheEvictions'>;
  readonly log: Log;
}

type Known = { -readonly [K in keyof CachedVolume]: CachedVolume[K] } & { counted: boolean; nextCountMs: number };

export class Caches {
  readonly #parts: CachesParts;
  readonly #abort = new AbortController();
  readonly #known = new Map<string, Known>();
  #root: string;
  /** The volumes of earlier runs are known. */
  #isOpen = false;
  #running: Promise<void> | undefined;
  #looking: Promise<void> | undefined;
  readonly #excess = new Listeners<[string, string]>();
  #hasLooked = false;
  #told: { readonly text: string; readonly atMs: number } | undefined;

  constructor(parts: CachesParts) {
    this.#parts = parts;
    this.#root = parts.root;
  }

  /** Told of a container, by its engine's id, whose cache volume passed a bound, with the reason for its author. */
  onExcess(listener: (dockerId: string, message: string) => void): void {
    this.#excess.add(listener);
  }

  /** Finds the volumes of earlier runs of this agent, and begins to look. */
  async start(): Promise<void> {
    if (!this.#parts.enabled) return;
    await this.#open().catch((error: unknown) =>
      this.#parts.log.warn({ err: error, root: this.#parts.root }, 'cache volumes cannot be reached'),
    );
    this.#running = repeat(
      LOOK_EVERY_MS,
      this.#abort.signal,
      () => this.look(),
      (error) => {
        // The condition CacheVolumesDown says so.
        if (!(error instanceof HomeMissing))
          this.#parts.log.warn({ err: error }, 'cache volumes could not be looked through');
      },
    );
  }

  /** Finds the volumes of earlier runs, as soon as their disk is there. */
  async #open(): Promise<void> {
    if (this.#isOpen) return;
    const listed = await this.#parts.directories.list();
    this.#root = await realpath(this.#parts.root);
    for (const { usedAtMs, ...volume } of listed) {
      const known = this.#volume(volume);
      known.usedAtMs = Math.max(known.usedAtMs, Math.min(usedAtMs, Date.now()));
    }
    this.#isOpen = true;
  }

  async stop(): Promise<void> {
    this.#abort.abort();
    await this.#running;
    await this.#looking?.catch(() => undefined);
  }

  /** Notes a mount. */
  mounted(volume: VolumeId): void {
    const known = this.#volume(volume);
    known.usedAtMs = Date.now();
    known.nextCountMs = 0;
    this.#parts.metrics.cacheMounts.inc({ result: known.bytes > 0 ? 'filled' : 'empty' });
  }

  /** @returns why the volume may not be mounted now */
  refusal(volume: VolumeId): string | undefined {
    return this.#known.get(keyOf(volume))?.condemned === true
      ? 'it passed the bound of cache volumes on this machine, and is being emptied'
      : undefined;
  }

  /** Repeats the report to a new session. */
  tellAgain(): void {
    this.#told = undefined;
    this.#tell();
  }

  /** Counts, evicts and reports; joins a look that is under way. */
  look(): Promise<void> {
    this.#looking ??= this.#look().finally(() => {
      this.#looking = undefined;
    });
    return this.#looking;
  }

  /** Removes volumes that were deleted, except those that a container mounts. */
  async remove(volumeIds: readonly string[]): Promise<void> {
    const wanted = new Set(volumeIds);
    const mounts = await this.#mounts();
    for (const volume of [...this.#known.values()].filter((one) => wanted.has(one.volumeId))) {
      if (mounts.has(this.#pathOf(volume))) continue;
      await this.#evict(volume, 'deleted');
    }
    this.#tell();
  }

  async #look(): Promise<void> {
    await this.#open();
    if (this.#known.size === 0) return this.#looked();
    const mounts = await this.#mounts();
    for (const volume of this.#known.values()) {
      if (this.#abort.signal.aborted) return;
      await this.#count(volume, mounts.has(this.#pathOf(volume)));
    }
    const { evict, excess } = await this.#decide();
    for (const { volume, reason } of evict) {
      if (this.#abort.signal.aborted) return;
      await this.#evict(volume, reason);
    }
    for (const one of excess) this.#condemn(one, mounts.get(this.#pathOf(one.volume)) ?? []);
    this.#looked();
  }

  #looked(): void {
    this.#hasLooked = true;
    this.#tell();
  }

  async #count(volume: Known, mounted: boolean): Promise<void> {
    const { directories, log } = this.#parts;
    const wasMounted = volume.mounted;
    volume.mounted = mounted;
    const nowMs = Date.now();
    if (mounted || wasMounted) {
      volume.usedAtMs = nowMs;
      await directories.touch(volume);
    }
    // A volume that nobody mounts does not change after its last count.
    if (nowMs < volume.nextCountMs) return;
    const from = performance.now();
    const path = this.#pathOf(volume);
    try {
      const bytes = (await countHere([path], WALK_MS)) ?? (await this.#parts.countByHelper([path]));
      if (bytes > volume.bytes && volume.mounted) volume.grownAtMs = nowMs;
      volume.bytes = bytes <= EMPTY_BYTES ? 0 : bytes;
      volume.counted = true;
    } catch (error) {
      log.info({ err: error, volumeId: volume.volumeId }, 'a cache volume could not be counted');
    }
    const tookMs = performance.now() - from;
    volume.nextCountMs = mounted || wasMounted ? Date.now() + REST * tookMs : Number.POSITIVE_INFINITY;
  }

  async #decide(): Promise<CacheDecision> {
    const { readDisk, minFreeRatio, metrics } = this.#parts;
    const { freeBytes, usableBytes, totalBytes } = await readDisk();
    const machineBytes = this.#parts.machineBytes ?? Math.floor(totalBytes / 2);
    const workspaceBytes = this.#parts.workspaceBytes ?? Number.POSITIVE_INFINITY;
    metrics.cacheLimitBytes.set(machineBytes);
    const room = { machineBytes, workspaceBytes, freeBytes, usableBytes, minFreeRatio };
    return chooseCacheEvictions(
      [...this.#known.values()].filter(({ counted }) => counted),
      room,
      Date.now(),
    );
  }

  async #evict(volume: CachedVolume, reason: string): Promise<void> {
    const { directories, metrics, log } = this.#parts;
    const key = keyOf(volume);
    const { workspaceId, volumeId, bytes, usedAtMs } = volume;
    const isUnused = (): boolean => this.#known.get(key)?.usedAtMs === usedAtMs;
    try {
      if (!(await directories.removeIf({ workspaceId, volumeId }, isUnused))) return;
    } catch (error) {
      log.warn({ err: error, workspaceId, volumeId }, 'a cache volume could not be removed, trying again');
      return;
    }
    if (isUnused()) this.#known.delete(key);
    metrics.cacheEvictions.inc({ reason });
    log.info({ workspaceId, volumeId, bytes, reason }, 'cache volume removed');
  }

  #condemn({ volume, bound, usedBytes, limitBytes }: Excess, mounts: readonly BindMount[]): void {
    const { metrics, log } = this.#parts;
    const { workspaceId, volumeId } = volume;
    const known = this.#known.get(keyOf(volume));
    if (known === undefined) return;
    known.condemned = true;
    metrics.cacheEvictions.inc({ reason: 'bound' });
    log.warn({ workspaceId, volumeId, bound, usedBytes, limitBytes }, 'a cache volume passed the bound');
    // An absolute path has a second mount below /volumes: its author knows the shorter one.
    const targets = new Map(
      mounts.toSorted((a, b) => b.target.length - a.target.length).map(({ dockerId, target }) => [dockerId, target]),
    );
    for (const [dockerId, target] of targets)
      this.#excess.tell(dockerId, excessText(target, volume.bytes, { bound, usedBytes, limitBytes }));
  }

  #tell(): void {
    const { tell, metrics } = this.#parts;
    const volumes = [...this.#known.values()];
    metrics.cacheBytes.set(volumes.reduce((sum, { bytes }) => sum + bytes, 0));
    if (!this.#hasLooked) return;
    const largest = volumes.toSorted((a, b) => b.bytes - a.bytes).slice(0, MOST);
    const text = largest.map((one) => `${keyOf(one)} ${roughly(one.bytes)}`).join();
    const nowMs = performance.now();
    const isOld = text !== '' && nowMs - (this.#told?.atMs ?? 0) >= TELL_EVERY_MS;
    if (text === this.#told?.text && !isOld) return;
    this.#told = { text, atMs: nowMs };
    tell(largest.map(({ workspaceId, volumeId, bytes }) => ({ workspaceId, volumeId, bytes })));
  }

  #volume(volume: VolumeId): Known {
    const key = keyOf(volume);
    const known = this.#known.get(key) ?? aVolume(volume);
    this.#known.set(key, known);
    return known;
  }

  /** Bind mounts of all containers of the engine, by their paths on this machine. */
  async #mounts(): Promise<ReadonlyMap<string, readonly BindMount[]>> {
    return Map.groupBy(await this.#parts.runtime.bindMounts(), ({ source }) => source);
  }

  #pathOf({ workspaceId, volumeId }: VolumeId): string {
    return join(this.#root, workspaceId, volumeId);
  }
}

/** Blocks of a directory that holds next to nothing, such as locks of fillers. */
const EMPTY_BYTES = 64 * 1024;

const keyOf = ({ workspaceId, volumeId }: VolumeId): string => `${workspaceId}/${volumeId}`;

const aVolume = ({ workspaceId, volumeId }: VolumeId): Known => ({
  workspaceId,
  volumeId,
  bytes: 0,
  usedAtMs: 0,
  grownAtMs: 0,
  mounted: false,
  condemned: false,
  counted: false,
  nextCountMs: 0,
});

/** A number that changes when bytes change by a few percent. */
const roughly = (bytes: number): number => Math.round(Math.log2(bytes + 1) * 16);

/** The reason of a container's end, for its author. */
export function excessText(
  target: string,
  bytes: number,
  { bound, usedBytes, limitBytes }: Pick<Excess, 'bound' | 'usedBytes' | 'limitBytes'>,
): string {
  const [whose, setting] =
    bound === 'workspace'
      ? ['of the workspace', 'LONGSHORE_AGENT_CACHE_WORKSPACE_MIB']
      : ['of all workspaces', 'LONGSHORE_AGENT_CACHE_MIB'];
  return `its cache volume at ${target} takes ${Math.ceil(bytes / MIB)} MiB. Cache volumes ${whose} take ${Math.ceil(usedBytes / MIB)} MiB on this machine and may take ${Math.floor(limitBytes / MIB)} MiB (${setting} of the machine). Keep less in it, or use a local volume`;
}
