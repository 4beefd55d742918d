// What a container without a place waits for, as data: for the log, for a metric, and for whoever asks why. Pure.
import type { Rejections } from './place.ts';

/** After this it is FAILED, for the reason that `giveUpReason` names. */
export const GIVE_UP_MS = 20 * 60_000;

export const GIVE_UP_REASONS = [
  'no_capacity',
  'gpu_unavailable',
  'quota',
  'volume_unavailable',
  'image_unavailable',
  'machine_rejected',
  'no_matching_pool',
] as const;
export type GiveUpReason = (typeof GIVE_UP_REASONS)[number];

/** A container that is PENDING. */
export interface PlacementWait {
  /** How many machines said no for which reason, when it was last tried; null: not tried yet. */
  readonly rejections: Rejections | null;
  /** The reason most of the machines gave that could serve it at all; `no_machine`: there is none. null: not tried yet. */
  readonly mainReason: string | null;
  /** Machines sent it back so often. */
  readonly timesReturned: number;
  /** It is not tried before (epoch milliseconds); null: at the next change, at the latest with the sweep. */
  readonly notBeforeMs: number | null;
  readonly waitingSinceMs: number;
  readonly givesUpAtMs: number;
  /** What it fails with if nothing changes until then. */
  readonly givesUpWith: GiveUpReason;
}

export function placementWait(facts: {
  readonly rejections: Readonly<Record<string, number>> | null;
  readonly timesReturned: number;
  readonly notBeforeMs: number | null;
  readonly createdAtMs: number;
}): PlacementWait {
  const { rejections, timesReturned, notBeforeMs, createdAtMs } = facts;
  return {
    rejections,
    mainReason: rejections === null ? null : commonest(rejections),
    timesReturned,
    notBeforeMs,
    waitingSinceMs: createdAtMs,
    givesUpAtMs: createdAtMs + GIVE_UP_MS,
    givesUpWith: giveUpReason(rejections ?? {}, timesReturned),
  };
}

/** Why a machine can never serve it. What one that could serve it says (full, away, cordoned) is worth more than these. */
const LASTING: ReadonlySet<string> = new Set([
  'no_matching_pool',
  'arch',
  'gpu_model',
  'volume',
  'image_unavailable',
  'too_small',
]);

/**
 * The reason most machines gave of those that could serve it at all; without such, of those of pools it may use; else `no_matching_pool`.
 * `no_machine` where there was none.
 */
export function commonest(rejections: Readonly<Record<string, number>>): string {
  const given = Object.entries(rejections).filter(([, count]) => count > 0);
  const passing = given.filter(([reason]) => !LASTING.has(reason));
  const usable = given.filter(([reason]) => reason !== 'no_matching_pool');
  const counted = [passing, usable, given].find((some) => some.length > 0) ?? [];
  return counted.toSorted((a, b) => b[1] - a[1])[0]?.[0] ?? 'no_machine';
}

/** Sent back by machines so often, it is them. */
const RETURNED_OFTEN = 3;

/** By the main reason; what the machines it could go to lack, where those are only away. */
const BY_REASON: Readonly<Record<string, GiveUpReason>> = {
  no_machine: 'no_matching_pool',
  no_matching_pool: 'no_matching_pool',
  gpu_model: 'gpu_unavailable',
  gpu_count: 'gpu_unavailable',
  volume: 'volume_unavailable',
  image_unavailable: 'image_unavailable',
  anti_affinity: 'machine_rejected',
  quota: 'quota',
};
const AWAY: ReadonlySet<string> = new Set(['machine_not_ready', 'cordoned', 'condition']);

/** What a container that waited too long fails with. */
export function giveUpReason(rejections: Readonly<Record<string, number>>, timesReturned: number): GiveUpReason {
  if (timesReturned >= RETURNED_OFTEN) return 'machine_rejected';
  const main = commonest(rejections);
  const missing = ['volume', 'image_unavailable', 'gpu_count', 'gpu_model'].find((one) => (rejections[one] ?? 0) > 0);
  return BY_REASON[AWAY.has(main) ? (missing ?? main) : main] ?? 'no_capacity';
}
