// State of a container that waits for a place, as data for the log, for a metric, and for explanations. Pure.
import type { Rejections } from '../plan/place.ts';

/** Milliseconds after which a waiting container is FAILED, for the reason that `giveUpReason` names. */
export const GIVE_UP_MS = 20 * 60_000;

/** The same for a container that a machine on its way will take. */
export const AWAITED_MS = 60 * 60_000;

export const GIVE_UP_REASONS = [
  'no_capacity',
  'gpu_unavailable',
  'quota',
  'volume_unavailable',
  'image_unavailable',
  'machine_rejected',
  'no_matching_pool',
  'provisioning_limit',
] as const;
export type GiveUpReason = (typeof GIVE_UP_REASONS)[number];

/** Wait of a PENDING container. */
export interface PlacementWait {
  /** Number of machines that refused it, by reason, at the last try; null: not tried yet. */
  readonly rejections: Rejections | null;
  /** Reason most given by machines that could serve it at all; `no_machine`: there is none. null: not tried yet. */
  readonly mainReason: string | null;
  /** Number of times that machines sent it back. */
  readonly timesReturned: number;
  /** Time before which it is not tried (epoch milliseconds); null: at the next change, at the latest with the sweep. */
  readonly notBeforeMs: number | null;
  readonly waitingSinceMs: number;
  readonly givesUpAtMs: number;
  /** Reason with which it fails if nothing changes until then. */
  readonly givesUpWith: GiveUpReason;
}

/** Part of pools with a provider in a container's wait. */
export interface Growth {
  /** Whether a machine on its way will take it. */
  readonly isAwaited: boolean;
  /** Whether a pool could make a machine for it, and is kept from it by a bound of its settings. */
  readonly isLimited: boolean;
}
export const NO_GROWTH: Growth = { isAwaited: false, isLimited: false };

export function placementWait(facts: {
  readonly rejections: Readonly<Record<string, number>> | null;
  readonly timesReturned: number;
  readonly notBeforeMs: number | null;
  readonly createdAtMs: number;
  readonly growth?: Growth;
}): PlacementWait {
  const { rejections, timesReturned, notBeforeMs, createdAtMs, growth = NO_GROWTH } = facts;
  return {
    rejections,
    mainReason: rejections === null ? null : commonest(rejections),
    timesReturned,
    notBeforeMs,
    waitingSinceMs: createdAtMs,
    givesUpAtMs: createdAtMs + (growth.isAwaited ? AWAITED_MS : GIVE_UP_MS),
    givesUpWith: giveUpReason(rejections ?? {}, timesReturned, growth),
  };
}

/**
 * Reasons why a machine can never serve it. A reason of a machine that could serve it (full, away, cordoned) says more.
 */
const LASTING: ReadonlySet<string> = new Set([
  'no_matching_pool',
  'label',
  'arch',
  'gpu_model',
  'gpu_fact_unknown',
  'gpu_link',
  'gpu_driver',
  'volume',
  'image_unavailable',
  'base_python',
  'too_small',
]);

/**
 * Reason given by most of the machines that could serve the container at all. Without such machines,
 * the reason of those in pools it may use; else `no_matching_pool`. `no_machine` where there was none.
 */
export function commonest(rejections: Readonly<Record<string, number>>): string {
  const given = Object.entries(rejections).filter(([, count]) => count > 0);
  const passing = given.filter(([reason]) => !LASTING.has(reason));
  const usable = given.filter(([reason]) => reason !== 'no_matching_pool');
  const counted = [passing, usable, given].find((some) => some.length > 0) ?? [];
  return counted.toSorted((a, b) => b[1] - a[1])[0]?.[0] ?? 'no_machine';
}

/** Times a container is sent back before the machines count as the cause. */
export const RETURNED_OFTEN = 3;

/** Failure reason for each main reason. Where suitable machines are only away, another missing thing comes first. */
const BY_REASON: Readonly<Record<string, GiveUpReason>> = {
  no_machine: 'no_matching_pool',
  no_matching_pool: 'no_matching_pool',
  gpu_model: 'gpu_unavailable',
  gpu_fact_unknown: 'gpu_unavailable',
  gpu_link: 'gpu_unavailable',
  gpu_driver: 'gpu_unavailable',
  gpu_count: 'gpu_unavailable',
  volume: 'volume_unavailable',
  image_unavailable: 'image_unavailable',
  base_python: 'image_unavailable',
  anti_affinity: 'machine_rejected',
  quota: 'quota',
};
const AWAY: ReadonlySet<string> = new Set(['machine_not_ready', 'cordoned', 'condition']);

/** Reason with which a container fails that waited too long. */
export function giveUpReason(
  rejections: Readonly<Record<string, number>>,
  timesReturned: number,
  { isLimited }: Pick<Growth, 'isLimited'> = NO_GROWTH,
): GiveUpReason {
  if (isLimited) return 'provisioning_limit';
  if (timesReturned >= RETURNED_OFTEN) return 'machine_rejected';
  const main = commonest(rejections);
  const missing = [
    'volume',
    'image_unavailable',
    'base_python',
    'gpu_count',
    'gpu_driver',
    'gpu_link',
    'gpu_fact_unknown',
    'gpu_model',
  ].find((one) => (rejections[one] ?? 0) > 0);
  return BY_REASON[AWAY.has(main) ? (missing ?? main) : main] ?? 'no_capacity';
}
