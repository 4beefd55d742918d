// How full the disks are that the agent depends on, and whether that sets the condition. The reading is here; the
// decision is pure.
import { statfs } from 'node:fs/promises';

export interface DiskReading {
  /** Bytes that may still be written, without root's reserve. */
  readonly freeBytes: number;
  /** Free and used bytes together, the base of `df`'s shares. */
  readonly usableBytes: number;
  readonly totalBytes: number;
  /** Share of free inodes; 1 where the file system does not count them. */
  readonly freeInodesRatio: number;
}

export async function readDisk(path: string): Promise<DiskReading> {
  const { bsize, blocks, bfree, bavail, files, ffree } = await statfs(path);
  return {
    freeBytes: bsize * bavail,
    usableBytes: bsize * (blocks - bfree + bavail),
    totalBytes: bsize * blocks,
    freeInodesRatio: files === 0 ? 1 : ffree / files,
  };
}

/** Time with enough room after which pressure is over. */
export const CLEAR_AFTER_MS = 5 * 60_000;
export const MIN_FREE_INODES_RATIO = 0.05;
/** All other disks need less room than the images' one. */
export const MAX_OTHER_MIN_FREE_RATIO = 0.1;

/** Disks beside the images' one that the agent or its containers write to. `volumes`: the local volumes. */
export const OTHER_DISKS = ['root', 'state', 'volumes', 'cache'] as const;
export type OtherDisk = (typeof OTHER_DISKS)[number];

/** Share of a disk that must be free, by the share for the images' one. */
export const otherMinFreeRatio = (minFreeRatio: number): number => Math.min(minFreeRatio, MAX_OTHER_MIN_FREE_RATIO);

export interface Pressure {
  readonly holds: boolean;
  /** Since when there is enough room again; 0: there is not. */
  readonly roomSinceMs: number;
  /** The disk that was too full, for the log. */
  readonly why: string;
}

export const NO_PRESSURE: Pressure = { holds: false, roomSinceMs: 0, why: '' };

/** A disk that is missing here does not exist, or does not answer: other conditions say so. */
export type Disks = { readonly images: DiskReading } & { readonly [K in OtherDisk]?: DiskReading | undefined };

/** @param minFreeRatio - required free share of the images' file system */
export function pressureAfter(before: Pressure, disks: Disks, minFreeRatio: number, nowMs: number): Pressure {
  const why = shortageOf(disks, minFreeRatio);
  if (why !== '') return { holds: true, roomSinceMs: 0, why };
  if (!before.holds) return NO_PRESSURE;
  const roomSinceMs = before.roomSinceMs === 0 ? nowMs : before.roomSinceMs;
  return nowMs - roomSinceMs >= CLEAR_AFTER_MS ? NO_PRESSURE : { holds: true, roomSinceMs, why: before.why };
}

/** Pressure after a pull that found no room, in spite of the measured numbers. */
export const fullNow = (why: string): Pressure => ({ holds: true, roomSinceMs: 0, why });

function shortageOf({ images, ...others }: Disks, minFreeRatio: number): string {
  const asked: readonly (readonly [string, DiskReading | undefined, number])[] = [
    ['images', images, minFreeRatio],
    ...OTHER_DISKS.map((name) => [name, others[name], otherMinFreeRatio(minFreeRatio)] as const),
  ];
  const found = asked.flatMap(([name, reading, share]) => (reading === undefined ? [] : [{ name, reading, share }]));
  const full = found.find(({ reading, share }) => reading.freeBytes < reading.usableBytes * share);
  if (full !== undefined)
    return `${full.name}: ${percent(full.reading.freeBytes / full.reading.usableBytes)} free, ${percent(full.share)} wanted`;
  const crowded = found.find(({ reading }) => reading.freeInodesRatio < MIN_FREE_INODES_RATIO);
  if (crowded === undefined) return '';
  return `${crowded.name}: ${percent(crowded.reading.freeInodesRatio)} of the inodes free, ${percent(MIN_FREE_INODES_RATIO)} wanted`;
}

const percent = (ratio: number): string => `${Math.floor(ratio * 1000) / 10} %`;
