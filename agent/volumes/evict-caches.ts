/**
 * Chooses the cache volumes that leave, and the one whose containers end. Pure. The least recently used leave first,
 * and never one that a container mounts. Where that is not enough for a bound, the containers of the volume that grew
 * last end: whoever passes a bound meets it. A full disk ends no container, since DiskPressure keeps new ones away.
 */

export const CACHE_MARGIN_RATIO = 0.05;
/** A volume used so recently stays: its container may be about to start. */
export const RECENT_MS = 2 * 60_000;

export interface CachedVolume {
  readonly workspaceId: string;
  readonly volumeId: string;
  readonly bytes: number;
  readonly usedAtMs: number;
  /** When a count last found more bytes than the one before; 0: never. */
  readonly grownAtMs: number;
  /** A container mounts the volume. */
  readonly mounted: boolean;
  /** Passed a bound before: the volume leaves as soon as no container mounts it. */
  readonly condemned: boolean;
}

export interface CacheRoom {
  /** Bound on the cache volumes of the machine. */
  readonly machineBytes: number;
  /** Bound on those of each workspace. */
  readonly workspaceBytes: number;
  readonly freeBytes: number;
  readonly usableBytes: number;
  /** Eviction for room begins below this share of free space, and ends at this share and a twentieth more. */
  readonly minFreeRatio: number;
}

/** `bound`: it passed one itself; `empty`: nothing is lost. */
export type EvictionReason = 'workspace' | 'machine' | 'disk' | 'bound' | 'empty';

export interface Eviction {
  readonly volume: CachedVolume;
  readonly reason: EvictionReason;
}

/** A volume that passed a bound with nothing left to evict. */
export interface Excess {
  readonly volume: CachedVolume;
  readonly bound: 'workspace' | 'machine';
  readonly usedBytes: number;
  readonly limitBytes: number;
}

export interface CacheDecision {
  readonly evict: readonly Eviction[];
  readonly excess: readonly Excess[];
}

export function chooseCacheEvictions(volumes: readonly CachedVolume[], room: CacheRoom, nowMs: number): CacheDecision {
  const evict: Eviction[] = [];
  const excess: Excess[] = [];
  let left = [...volumes];
  const leave = (volume: CachedVolume, reason: EvictionReason): void => {
    evict.push({ volume, reason });
    left = left.filter((one) => one !== volume);
  };
  const within = (bound: Excess['bound'], limitBytes: number, isOf: (volume: CachedVolume) => boolean): void => {
    for (const volume of leaving(left.filter(isOf), nowMs)) {
      if (sumOf(left.filter(isOf)) <= limitBytes) return;
      leave(volume, bound);
    }
    const rest = left.filter(isOf);
    // Volumes that are condemned already, or were used a moment ago, leave soon.
    const staying = rest.filter((volume) => volume.mounted && !volume.condemned);
    const usedBytes = sumOf(rest);
    if (sumOf(staying) <= limitBytes) return;
    const [volume] = staying.toSorted((a, b) => b.grownAtMs - a.grownAtMs || b.bytes - a.bytes);
    if (volume !== undefined) excess.push({ volume, bound, usedBytes, limitBytes });
  };

  for (const volume of volumes) {
    if (volume.condemned && !volume.mounted) leave(volume, 'bound');
    else if (volume.bytes === 0 && isUnused(volume, nowMs)) leave(volume, 'empty');
  }
  for (const workspace of new Set(volumes.map(({ workspaceId }) => workspaceId)))
    within('workspace', room.workspaceBytes, ({ workspaceId }) => workspaceId === workspace);
  if (excess.length === 0) within('machine', room.machineBytes, () => true);

  let freeBytes = room.freeBytes + evict.reduce((sum, { volume }) => sum + volume.bytes, 0);
  if (freeBytes >= room.usableBytes * room.minFreeRatio) return { evict, excess };
  const goal = room.usableBytes * Math.min(1, room.minFreeRatio + CACHE_MARGIN_RATIO);
  for (const volume of leaving(left, nowMs)) {
    if (freeBytes >= goal) break;
    leave(volume, 'disk');
    freeBytes += volume.bytes;
  }
  return { evict, excess };
}

const isUnused = ({ mounted, usedAtMs }: CachedVolume, nowMs: number): boolean =>
  !mounted && nowMs - usedAtMs >= RECENT_MS;

/** Volumes that may leave, the least recently used first. */
const leaving = (volumes: readonly CachedVolume[], nowMs: number): readonly CachedVolume[] =>
  volumes
    .filter((volume) => isUnused(volume, nowMs))
    .toSorted((a, b) => a.usedAtMs - b.usedAtMs || (a.volumeId < b.volumeId ? -1 : 1));

const sumOf = (volumes: readonly CachedVolume[]): number => volumes.reduce((sum, { bytes }) => sum + bytes, 0);
