import type { ContainerId } from '#shared/domain/ids.ts';
import type { ContainerState } from '#shared/domain/status.ts';

/** A container that counts, as the decision sees it. */
export interface ScaleContainer {
  readonly id: ContainerId;
  readonly state: ContainerState;
  /** Tasks it works on now. */
  readonly attempts: number;
  /** When it last became idle (ready, or a completion); for what is not ready yet, when it was made. */
  readonly idleSinceMs: number;
  readonly createdAtMs: number;
  /** Longer than the queue's, when a task's end asked for it. */
  readonly keepWarmMs: number;
  /** Asked for by a warm-up: spared until it is ready, then kept for its keep-warm like any other. */
  readonly warmUp: boolean;
}

export interface ScaleInput {
  readonly active: boolean;
  /** waiting + prioritized + running + delayed due within 10 s; undefined: the sample failed. */
  readonly inFlight: number | undefined;
  /** Of those, the ones nobody works on yet. */
  readonly waiting: number;
  readonly tasksPerContainer: number;
  readonly minContainers: number;
  readonly maxContainers: number;
  /** Infinity: never stopped for want of work. */
  readonly keepWarmMs: number;
  readonly containers: readonly ScaleContainer[];
  readonly breaker: Breaker;
  /** Within the grace after a scheduler start nothing is stopped for want of work. */
  readonly scaleInAllowed: boolean;
}

export type ScaleDecision =
  | {
      readonly kind: 'hold';
      readonly why: 'at_target' | 'busy_or_warm' | 'bad_sample' | 'cooling_down' | 'after_restart';
      readonly againAtMs?: number;
    }
  | { readonly kind: 'start'; readonly count: number; readonly wanted: number }
  | {
      readonly kind: 'stop';
      readonly containers: readonly ContainerId[];
      readonly wanted: number;
      readonly againAtMs?: number;
    };

/** Start failures in a row, and until when nothing is started. */
export interface Breaker {
  readonly failures: number;
  readonly opened: number;
  readonly closedAtMs: number;
}
export const CLOSED_BREAKER: Breaker = { failures: 0, opened: 0, closedAtMs: 0 };
const FAILURES_TO_OPEN = 3;
const COOLDOWN_MS = 60_000;
const LONGEST_COOLDOWN_MS = 15 * 60_000;

/** One more start failure (or exit within 60 s of ready with nothing completed); the third opens the breaker, and each failed probe after it. */
export function breakerAfterFailure(before: Breaker, nowMs: number): Breaker {
  const failures = before.failures + 1;
  if (failures < FAILURES_TO_OPEN) return { ...before, failures };
  const cooldown = Math.min(COOLDOWN_MS * 2 ** before.opened, LONGEST_COOLDOWN_MS);
  return { failures: FAILURES_TO_OPEN - 1, opened: before.opened + 1, closedAtMs: nowMs + cooldown };
}

const COUNTS: ReadonlySet<ContainerState> = new Set(['PENDING', 'ASSIGNED', 'STARTING', 'RUNNING']);

/** How many containers the queue asks for, before what lives is looked at. */
export function wantedContainers(
  input: Pick<ScaleInput, 'active' | 'tasksPerContainer' | 'minContainers' | 'maxContainers'>,
  inFlight: number,
): number {
  if (!input.active) return 0;
  const raw = Math.ceil(inFlight / Math.max(1, input.tasksPerContainer));
  return Math.max(input.minContainers, Math.min(raw, Math.max(input.maxContainers, input.minContainers)));
}

/**
 * What to do for one queue now: start at once what is missing, stop what is too much once it was idle for its keep-warm.
 * A failed sample changes nothing; a container with a running attempt is never chosen.
 */
export function decideScale(input: ScaleInput, nowMs: number): ScaleDecision {
  if (input.inFlight === undefined) return { kind: 'hold', why: 'bad_sample', againAtMs: nowMs + 1000 };
  const live = input.containers.filter((container) => COUNTS.has(container.state));
  const wanted = wantedContainers(input, input.inFlight);
  if (wanted > live.length) {
    if (nowMs < input.breaker.closedAtMs)
      return { kind: 'hold', why: 'cooling_down', againAtMs: input.breaker.closedAtMs };
    const missing = wanted - live.length;
    const probing = input.breaker.opened > 0;
    if (probing && live.length > 0) return { kind: 'hold', why: 'cooling_down' };
    return { kind: 'start', count: probing ? 1 : missing, wanted };
  }
  const surplus = live.length - wanted;
  if (surplus <= 0) return { kind: 'hold', why: 'at_target' };
  if (!input.scaleInAllowed && input.active) return { kind: 'hold', why: 'after_restart', againAtMs: nowMs + 5000 };
  const leaving = live
    .filter((container) => mayLeave(container, input, nowMs))
    .sort(byRemovalOrder)
    .slice(0, surplus)
    .map((container) => container.id);
  const againAtMs = nextExpiry(live, input.keepWarmMs, nowMs);
  const again = againAtMs === undefined ? {} : { againAtMs };
  return leaving.length > 0
    ? { kind: 'stop', containers: leaving, wanted, ...again }
    : { kind: 'hold', why: 'busy_or_warm', ...again };
}

function mayLeave(container: ScaleContainer, input: ScaleInput, nowMs: number): boolean {
  if (container.warmUp && container.state !== 'RUNNING') return !input.active;
  if (container.state === 'PENDING') return true;
  // What only starts may be what a waiting task gets; where nothing is wanted at all, nothing is kept for it.
  if (container.state !== 'RUNNING') return !input.active || input.waiting === 0;
  if (container.attempts > 0) return false;
  return !input.active || nowMs - container.idleSinceMs >= Math.max(input.keepWarmMs, container.keepWarmMs);
}

/** Pending newest first, then what starts, then the idle, longest first. */
function byRemovalOrder(a: ScaleContainer, b: ScaleContainer): number {
  const rank = removalRank(a) - removalRank(b);
  if (rank !== 0) return rank;
  return a.state === 'RUNNING' ? a.idleSinceMs - b.idleSinceMs : b.createdAtMs - a.createdAtMs;
}

function removalRank(container: ScaleContainer): number {
  if (container.state === 'PENDING') return 0;
  return container.state === 'RUNNING' ? 2 : 1;
}

function nextExpiry(live: readonly ScaleContainer[], keepWarmMs: number, nowMs: number): number | undefined {
  if (!Number.isFinite(keepWarmMs)) return undefined;
  let next: number | undefined;
  for (const container of live) {
    if (container.state !== 'RUNNING' || container.attempts > 0) continue;
    const at = container.idleSinceMs + Math.max(keepWarmMs, container.keepWarmMs);
    if (at > nowMs && (next === undefined || at < next)) next = at;
  }
  return next;
}
