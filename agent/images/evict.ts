/**
 * Chooses the images that leave when their disk fills up. Pure; runs again after every removal, because shared layers
 * make sizes an estimate.
 */

export const EVICT_MARGIN_RATIO = 0.1;
/** An image younger than this stays: the container that it was pulled for may not exist yet. */
export const YOUNG_MS = 10 * 60_000;

export interface CachedImage {
  readonly reference: string;
  readonly bytes: number;
  readonly pulledAtMs: number;
  readonly usedAtMs: number;
  /** A container of any owner has the image, or is about to get it. */
  readonly inUse: boolean;
  readonly pulling: boolean;
  /** Pulled by this agent; every other image belongs to somebody else. */
  readonly ours: boolean;
}

export interface Room {
  readonly freeBytes: number;
  readonly totalBytes: number;
  /** Eviction begins below this share of free space, and ends at this share and a tenth of the disk more. */
  readonly minFreeRatio: number;
  /** A collection is in progress and continues to its end. */
  readonly going: boolean;
  /** A pull has found no room: one image leaves in spite of the shares. */
  readonly urgent: boolean;
}

export interface EvictInput extends Room {
  readonly images: readonly CachedImage[];
}

/** Whether any image has to leave at all. */
export const isRoomWanted = ({ freeBytes, totalBytes, minFreeRatio, going, urgent }: Room): boolean =>
  going || urgent || freeBytes < totalBytes * minFreeRatio;

/** References to remove, the least recently used first; no more than needed. */
export function chooseEvictions(input: EvictInput, nowMs: number): readonly string[] {
  const { images, freeBytes, totalBytes, minFreeRatio, urgent } = input;
  if (!isRoomWanted(input)) return [];
  const goal = totalBytes * Math.min(1, minFreeRatio + EVICT_MARGIN_RATIO);
  const chosen: string[] = [];
  let free = freeBytes;
  const leaving = images
    .filter((image) => mayLeave(image, nowMs))
    .toSorted((a, b) => a.usedAtMs - b.usedAtMs || (a.reference < b.reference ? -1 : 1));
  for (const image of leaving) {
    if (free >= goal && !(urgent && chosen.length === 0)) break;
    chosen.push(image.reference);
    free += image.bytes;
  }
  return chosen;
}

const mayLeave = (image: CachedImage, nowMs: number): boolean =>
  image.ours && !image.inUse && !image.pulling && nowMs - image.pulledAtMs >= YOUNG_MS;
