// Decision how many containers one queue should have, and what to start or stop. Pure.
import type { ContainerId } from '#shared/domain/ids.ts';
import type { ContainerState } from '#shared/domain/status.ts';
import { isLiveContainer } from '#shared/domain/status.ts';
import type { EngineLoad } from '../../domain/serving.ts';
import type { WarmNow } from '../../domain/warm.ts';
import type { Breaker } from './breaker.ts';
import { breakerPhase } from './breaker.ts';
import type { HostBrake } from './host-brake.ts';
import type { ScaleInHold } from './scale-in-hold.ts';

/** Container of the queue, as the decision sees it. */
export interface ScaleContainer {
  readonly id: ContainerId;
  readonly state: ContainerState;
  /** Number of tasks that it works on now. */
  readonly attempts: number;
  /**
   * Time when it last became idle (ready, or a completion); for a container that is not ready yet, when it was made.
   */
  readonly idleSinceMs: number;
  readonly createdAtMs: number;
  /** Keep-warm that a task's end asked for; applies when longer than the queue's. */
  readonly keepWarmMs: number;
  /**
   * Whether a warm-up asked for it. Such a container is spared
   * until it is ready, then kept for its keep-warm like any other.
   */
  readonly warmUp: boolean;
  /**
   * Whether it came back with its lost machine and has served nothing since. Such a
   * container is surplus as soon as it is idle, because another may have replaced it.
   */
  readonly returned: boolean;
  /**
   * Whether its machine is reserved for a larger request, which waits for the end of this container. Such a
   * container is surplus as soon as it is idle, because warmth is a wish and the request waits. Absent: no.
   */
  readonly isAwaited?: boolean;
  /** Whether a rollout brought it and no call has reached it yet, so that it is kept for the first one. Absent: no. */
  readonly awaitsFirstCall?: boolean;
  /** Whether this process found it when it began to lead: attempts may run in it that no agent has reported yet. */
  readonly found: boolean;
  /**
   * Time at which the agent of its lost machine stops it. Until then it may
   * run there, and must not run anywhere else. Absent: it may be replaced.
   */
  readonly heldUntilMs?: number;
}

/** Bounds on the number of containers of one queue. */
export interface ScaleBounds {
  /** False when the queue is stopped, or its deployment is gone. */
  readonly active: boolean;
  readonly tasksPerContainer: number;
  readonly minContainers: number;
  readonly maxContainers: number;
  /** Whether the limits of the workspace are not known yet, so that these bounds may be too high. */
  readonly limitsUnknown?: boolean;
  /** Containers by schedule, which `minContainers` has in it. Absent: no schedule. */
  readonly warm?: WarmNow;
  /** Tokens that calls to models reserve. Absent: tasks alone count. */
  readonly tokens?: TokenDemand;
  /** Most running containers that end in a minute for want of work. Absent: no bound. */
  readonly scaleInPerMinute?: number;
}

export interface TokenDemand {
  readonly reserved: number;
  /** Tokens that one container holds. */
  readonly perContainer: number;
  /** Requests inside the engines whose metrics are known. Absent: of none. */
  readonly engines?: EngineLoad & { readonly containers: number };
}

export interface ScaleInput extends ScaleBounds {
  /** Sum of waiting, prioritized and running tasks, and delayed ones due within 10 s; undefined: the sample failed. */
  readonly inFlight: number | undefined;
  /** Tasks of those that no container works on yet. */
  readonly waiting: number;
  /** Milliseconds an idle container is kept; Infinity: it never stops for want of work. */
  readonly keepWarmMs: number;
  readonly containers: readonly ScaleContainer[];
  readonly breaker: Breaker;
  /** Starts that failed by causes of hosts. Absent: none. */
  readonly hostBrake?: HostBrake | undefined;
  /** Largest number wanted within the last window, and when that number leaves it. */
  readonly wantedInWindow: number;
  readonly windowEndsMs?: number;
  /** Times of the last ends for want of work, oldest first. Absent: none. */
  readonly endedAtMs?: readonly number[];
  /**
   * Reason not to stop anything for want of work: a scheduler or
   * leader that just started, or machines that went silent together.
   */
  readonly hold?: ScaleInHold | undefined;
}

export type HoldReason =
  | 'at_target'
  | 'busy_or_warm'
  | 'in_window'
  | 'scale_in_rate'
  | 'bad_sample'
  | 'limits_unknown'
  | 'cooling_down'
  | 'probing'
  | 'exclusive_on_lost'
  | 'unplaced'
  | 'host_causes'
  | ScaleInHold['why'];

/**
 * Outcome of a decision. `wanted`: containers that the queue asks for; absent when that is not
 * known. `againAtMs`: when the same question may have another answer although nothing changed.
 */
export type ScaleDecision =
  | { readonly kind: 'hold'; readonly why: HoldReason; readonly wanted?: number; readonly againAtMs?: number }
  | {
      readonly kind: 'start';
      /** Containers that are missing. */
      readonly count: number;
      /** Containers of these that may be written without a place. */
      readonly unplaced: number;
      readonly wanted: number;
      /** Whether the start is the one container that shows whether starts work again. */
      readonly probe: boolean;
    }
  | {
      readonly kind: 'stop';
      readonly containers: readonly ContainerId[];
      readonly wanted: number;
      readonly againAtMs?: number;
    };

/** Interval until the next look when a fact could not be read. */
const READ_AGAIN_MS = 1000;
const GUARD_AGAIN_MS = 5000;
export const MINUTE_MS = 60_000;
/** Most containers of a queue that wait for a place: the others are a number, and follow as these are placed. */
export const MOST_UNPLACED = 16;

/** Numbers of containers that a queue's tasks, its tokens and its engines ask for, before the bounds. */
export function demandsOf(
  { tasksPerContainer, tokens }: Pick<ScaleBounds, 'tasksPerContainer' | 'tokens'>,
  inFlight: number,
): { readonly tasks: number; readonly tokens: number; readonly engines: number } {
  return {
    tasks: Math.ceil(inFlight / Math.max(1, tasksPerContainer)),
    tokens: tokens === undefined ? 0 : Math.ceil(tokens.reserved / Math.max(1, tokens.perContainer)),
    engines: tokens?.engines === undefined ? 0 : enginesWant(tokens.engines),
  };
}

/** Containers that would run what waits inside engines, too; 0 while nothing waits there. */
function enginesWant({ containers, running, waiting }: NonNullable<TokenDemand['engines']>): number {
  if (waiting <= 0) return 0;
  return running > 0 ? Math.ceil((containers * (running + waiting)) / running) : containers + 1;
}

/** Reason of a start, for events and metrics: the number that asked for more. */
export function demandReason(bounds: ScaleBounds, inFlight: number): 'queue_depth' | 'token_pressure' {
  const demands = demandsOf(bounds, inFlight);
  return Math.max(demands.tokens, demands.engines) > demands.tasks ? 'token_pressure' : 'queue_depth';
}

/** Number of containers the queue asks for, regardless of those that exist. */
export function wantedContainers(bounds: ScaleBounds, inFlight: number): number {
  if (!bounds.active) return 0;
  const { tasks, tokens, engines } = demandsOf(bounds, inFlight);
  const raw = Math.max(tasks, tokens, engines);
  return Math.max(bounds.minContainers, Math.min(raw, Math.max(bounds.maxContainers, bounds.minContainers)));
}

/**
 * Decides what to do for one queue now: start missing containers at once, stop surplus ones that were idle
 * for their keep-warm. A failed sample changes nothing; a container with a running attempt is never chosen.
 */
export function decideScale(input: ScaleInput, nowMs: number): ScaleDecision {
  const decision = decidedNow(input, nowMs);
  const changesAtMs = input.warm?.changesAtMs;
  if (decision.kind === 'start' || changesAtMs === undefined) return decision;
  return { ...decision, ...again(Math.min(decision.againAtMs ?? Infinity, changesAtMs), nowMs) };
}

function decidedNow(input: ScaleInput, nowMs: number): ScaleDecision {
  if (input.inFlight === undefined) return { kind: 'hold', why: 'bad_sample', againAtMs: nowMs + READ_AGAIN_MS };
  if (input.limitsUnknown === true && input.active)
    return { kind: 'hold', why: 'limits_unknown', againAtMs: nowMs + READ_AGAIN_MS };
  const live = input.containers.filter((container) => isLiveContainer(container.state));
  const wanted = wantedContainers(input, input.inFlight);
  const phase = breakerPhase(input.breaker, nowMs);
  if (phase === 'cooling' && input.active) return whileCooling(input, live, wanted, nowMs);
  if (wanted > live.length) {
    const heldUntil = irreplaceableUntil(input, nowMs);
    const count = wanted - live.length - heldUntil.length;
    if (count <= 0) return { kind: 'hold', why: 'exclusive_on_lost', wanted, againAtMs: Math.min(...heldUntil) };
    const { hostBrake } = input;
    if (hostBrake !== undefined && nowMs < hostBrake.untilMs)
      return { kind: 'hold', why: 'host_causes', wanted, againAtMs: hostBrake.untilMs };
    // A single container shows whether hosts can start it now.
    if (hostBrake !== undefined && phase === 'closed')
      return live.some(({ state }) => state !== 'RUNNING')
        ? { kind: 'hold', why: 'host_causes', wanted }
        : { kind: 'start', count: 1, unplaced: 1, wanted, probe: false };
    if (phase === 'closed') {
      const unplaced = Math.min(count, MOST_UNPLACED - live.filter(({ state }) => state === 'PENDING').length);
      if (unplaced <= 0) return { kind: 'hold', why: 'unplaced', wanted };
      return { kind: 'start', count, unplaced, wanted, probe: false };
    }
    return live.some((container) => mayProve(container, input.breaker))
      ? { kind: 'hold', why: 'probing', wanted }
      : { kind: 'start', count: 1, unplaced: 1, wanted, probe: true };
  }
  const kept = keptContainers(input, wanted);
  if (live.length <= wanted) return { kind: 'hold', why: 'at_target', wanted };
  if (live.length <= kept) return { kind: 'hold', why: 'in_window', wanted, ...again(input.windowEndsMs, nowMs) };
  if (input.active && input.hold !== undefined)
    return whileHeld(input.hold, live, live.length - kept, input, wanted, nowMs);
  return stopSurplus(live, live.length - kept, input, wanted, nowMs);
}

/**
 * Times at which containers that may not be replaced yet may be.
 * Until then they count as existing capacity that cannot be stopped.
 */
const irreplaceableUntil = (input: ScaleInput, nowMs: number): readonly number[] =>
  input.containers.flatMap(({ heldUntilMs }) =>
    heldUntilMs !== undefined && heldUntilMs > nowMs ? [heldUntilMs] : [],
  );

/**
 * Containers that warmth alone keeps: idle ones beyond those that the queue asks for, its window and its least number.
 * They end first where another container waits for their machine.
 */
export function spareContainers(input: ScaleInput, nowMs: number): readonly ContainerId[] {
  if (!input.active || input.inFlight === undefined || input.limitsUnknown === true || input.hold !== undefined)
    return [];
  if (breakerPhase(input.breaker, nowMs) === 'cooling') return [];
  const live = input.containers.filter((container) => isLiveContainer(container.state));
  const surplus = live.length - keptContainers(input, wantedContainers(input, input.inFlight));
  if (surplus <= 0) return [];
  return live
    .toSorted(byRemovalOrder)
    .slice(0, surplus)
    .filter(({ state, attempts, awaitsFirstCall }) => state === 'RUNNING' && attempts === 0 && awaitsFirstCall !== true)
    .map(({ id }) => id);
}

/**
 * Number of containers to keep. Lowered bounds count at once; the
 * queue's earlier demand counts until it has left the window.
 */
function keptContainers(input: ScaleInput, wanted: number): number {
  if (!input.active) return 0;
  return Math.max(wanted, Math.min(input.wantedInWindow, Math.max(input.maxContainers, input.minContainers)));
}

/**
 * Decision while the breaker cools: nothing is started, and containers that
 * have not started yet go. As many ready containers stay as without failures.
 */
function whileCooling(
  input: ScaleInput,
  live: readonly ScaleContainer[],
  wanted: number,
  nowMs: number,
): ScaleDecision {
  const ready = live.filter((container) => container.state === 'RUNNING');
  const unready = live.filter((container) => container.state !== 'RUNNING');
  const surplus = Math.max(0, ready.length - keptContainers(input, wanted));
  const againAtMs = Math.min(
    input.breaker.coolsUntilMs,
    nextExpiry(ready, input.keepWarmMs, nowMs) ?? Number.POSITIVE_INFINITY,
  );
  const containers =
    input.hold === undefined
      ? [
          ...leaving(unready, unready.length, input, nowMs),
          ...inRate(leaving(ready, surplus, input, nowMs), ready, input, nowMs).containers,
        ]
      : [];
  if (containers.length === 0) return { kind: 'hold', why: 'cooling_down', wanted, againAtMs };
  return { kind: 'stop', containers, wanted, againAtMs };
}

/**
 * Decision while nothing is to be stopped. After a restart that spares the containers which were found: the others are
 * known from their first moment. Source: decisions 0017, 0290.
 */
function whileHeld(
  hold: ScaleInHold,
  live: readonly ScaleContainer[],
  surplus: number,
  input: ScaleInput,
  wanted: number,
  nowMs: number,
): ScaleDecision {
  const rest = held(hold, wanted, nowMs);
  const own = hold.why === 'after_restart' ? live.filter((container) => !container.found) : [];
  const { containers } = inRate(leaving(own, surplus, input, nowMs), own, input, nowMs);
  const againAtMs = Math.min(rest.againAtMs, nextExpiry(own, input.keepWarmMs, nowMs) ?? Number.POSITIVE_INFINITY);
  return containers.length > 0 ? { kind: 'stop', containers, wanted, againAtMs } : { ...rest, againAtMs };
}

type Held = Extract<ScaleDecision, { readonly kind: 'hold' }> & { readonly againAtMs: number };

function held(hold: ScaleInHold, wanted: number, nowMs: number): Held {
  const leftMs = hold.why === 'mass_disconnect' ? GUARD_AGAIN_MS : Math.max(1, hold.leftMs);
  return { kind: 'hold', why: hold.why, wanted, againAtMs: nowMs + leftMs };
}

function stopSurplus(
  live: readonly ScaleContainer[],
  surplus: number,
  input: ScaleInput,
  wanted: number,
  nowMs: number,
): ScaleDecision {
  const all = leaving(live, surplus, input, nowMs);
  const { containers, againAtMs } = inRate(all, live, input, nowMs);
  const next = again(againAtMs ?? nextExpiry(live, input.keepWarmMs, nowMs), nowMs);
  if (all.length > 0 && containers.length === 0) return { kind: 'hold', why: 'scale_in_rate', wanted, ...next };
  return containers.length > 0
    ? { kind: 'stop', containers, wanted, ...next }
    : { kind: 'hold', why: 'busy_or_warm', wanted, ...next };
}

/**
 * Picks the containers that may end now, by the bound on ends in a minute. A container that does not serve, came
 * back with its machine, or is awaited, is under no bound: nobody would miss it.
 * @returns againAtMs: when the next one may end, if some may not
 */
function inRate(
  leaving: readonly ContainerId[],
  live: readonly ScaleContainer[],
  { active, scaleInPerMinute, endedAtMs = [] }: ScaleInput,
  nowMs: number,
): { readonly containers: readonly ContainerId[]; readonly againAtMs?: number } {
  if (scaleInPerMinute === undefined || !active) return { containers: leaving };
  const last = endedAtMs.filter((atMs) => atMs > nowMs - MINUTE_MS);
  let room = scaleInPerMinute - last.length;
  const bound = new Set(live.filter(isUnderRate).map(({ id }) => id));
  const containers = leaving.filter((id) => !bound.has(id) || (room -= 1) >= 0);
  if (containers.length === leaving.length) return { containers };
  // Without earlier ends the minute begins now.
  const oldest = last[Math.max(0, last.length - scaleInPerMinute)] ?? nowMs;
  return { containers, againAtMs: oldest + MINUTE_MS };
}

/** Whether an end of the container counts for the bound on ends in a minute. */
export const isUnderRate = ({ state, returned, isAwaited = false }: ScaleContainer): boolean =>
  state === 'RUNNING' && !returned && !isAwaited;

function leaving(
  live: readonly ScaleContainer[],
  atMost: number,
  input: ScaleInput,
  nowMs: number,
): readonly ContainerId[] {
  return live
    .filter((container) => mayLeave(container, input, nowMs))
    .sort(byRemovalOrder)
    .slice(0, atMost)
    .map((container) => container.id);
}

const again = (atMs: number | undefined, nowMs: number): { readonly againAtMs?: number } =>
  atMs === undefined ? {} : { againAtMs: Math.max(atMs, nowMs + 1) };

/**
 * Whether the container can show that starts work: the probe, or
 * one on its way when the breaker opened. One at a time is enough.
 */
function mayProve(container: ScaleContainer, breaker: Breaker): boolean {
  return container.state !== 'RUNNING' || container.id === breaker.probe;
}

function mayLeave(container: ScaleContainer, input: ScaleInput, nowMs: number): boolean {
  // While starts fail, a warm-up is no reason to start.
  const isCooling = breakerPhase(input.breaker, nowMs) === 'cooling';
  if (container.warmUp && container.state !== 'RUNNING' && !isCooling) return !input.active;
  if (container.state === 'PENDING') return true;
  // A starting container may serve a task that waits; an inactive queue keeps none.
  if (container.state !== 'RUNNING') return !input.active || input.waiting === 0;
  if (container.attempts > 0) return false;
  return (
    !input.active ||
    container.returned ||
    container.isAwaited === true ||
    nowMs >= keepWarmEndsMs(container, input.keepWarmMs)
  );
}

/** Time until which an idle container is kept; Infinity: for ever. */
export const keepWarmEndsMs = (
  container: Pick<ScaleContainer, 'idleSinceMs' | 'keepWarmMs'>,
  keepWarmMs: number,
): number => container.idleSinceMs + Math.max(keepWarmMs, container.keepWarmMs);

/**
 * Order of removal: pending containers, newest first; then starting ones; then idle ones. Among
 * the idle, those that came back with their machine go first, newest first, then those for whose machine a larger
 * request waits, then the longest idle.
 */
function byRemovalOrder(a: ScaleContainer, b: ScaleContainer): number {
  const rank = removalRank(a) - removalRank(b);
  if (rank !== 0) return rank;
  return a.state === 'RUNNING' && !a.returned ? a.idleSinceMs - b.idleSinceMs : b.createdAtMs - a.createdAtMs;
}

function removalRank(container: ScaleContainer): number {
  if (container.state === 'PENDING') return 0;
  if (container.state !== 'RUNNING') return 1;
  if (container.returned) return 2;
  return container.isAwaited === true ? 3 : 4;
}

function nextExpiry(live: readonly ScaleContainer[], keepWarmMs: number, nowMs: number): number | undefined {
  let next: number | undefined;
  for (const container of live) {
    if (container.state !== 'RUNNING' || container.attempts > 0) continue;
    const atMs = keepWarmEndsMs(container, keepWarmMs);
    if (Number.isFinite(atMs) && atMs > nowMs && (next === undefined || atMs < next)) next = atMs;
  }
  return next;
}
