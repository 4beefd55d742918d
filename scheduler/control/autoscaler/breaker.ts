import type { ContainerId } from '#shared/domain/ids.ts';

/**
 * Breaker of one queue, opened by starts that fail in a row. Closed: `opened` is 0. Open: nothing is started
 * before `coolsUntilMs`. After it one container probes, and nothing else starts before the probe works or
 * fails. The code that sees the container end decides what counts as a failure; host causes never do.
 */
export interface Breaker {
  readonly failures: number;
  /** Number of times the breaker opened since something last worked: each time doubles the cool-down. */
  readonly opened: number;
  /** End of the cool-down, in epoch milliseconds; 0: the breaker never opened. */
  readonly coolsUntilMs: number;
  /**
   * Time when the first failed container of the row was made (epoch
   * milliseconds): only containers made since prove anything.
   */
  readonly sinceMs: number;
  readonly probe: ContainerId | null;
  /** Last failure, shown in explanations. */
  readonly last: StartFailure | null;
}

/** Container that did not start, or ended within a minute of being ready and was never handed a task. */
export interface StartFailure {
  readonly containerId: ContainerId;
  /** Time when the container was made, in epoch milliseconds. */
  readonly createdAtMs: number;
  readonly atMs: number;
  readonly reason: string;
  /** Last lines of the container's output. */
  readonly message: string;
}

export const CLOSED_BREAKER: Breaker = {
  failures: 0,
  opened: 0,
  coolsUntilMs: 0,
  sinceMs: 0,
  probe: null,
  last: null,
};
export const FAILURES_TO_OPEN = 3;
const COOLDOWN_MS = 60_000;
const LONGEST_COOLDOWN_MS = 15 * 60_000;
/** Longest time between containers of one round, which are made one after another. */
const SAME_ROUND_MS = 10_000;

export type BreakerPhase = 'closed' | 'cooling' | 'probing';

export function breakerPhase(breaker: Breaker, nowMs: number): BreakerPhase {
  if (breaker.opened === 0) return 'closed';
  return nowMs < breaker.coolsUntilMs ? 'cooling' : 'probing';
}

/**
 * Breaker after one more failure. The third in a row opens the breaker, and so does a probe that
 * fails. A container that was started before and fails while the breaker cools proves nothing new.
 */
export function breakerAfterFailure(before: Breaker, failure: StartFailure): Breaker {
  const failures = before.failures + 1;
  const sinceMs = before.failures === 0 ? failure.createdAtMs : Math.min(before.sinceMs, failure.createdAtMs);
  const counted = { ...before, failures, sinceMs, last: failure };
  const phase = breakerPhase(before, failure.atMs);
  if (phase === 'closed' && failures < FAILURES_TO_OPEN) return counted;
  if (phase === 'cooling') return counted;
  if (phase === 'probing' && before.probe !== null && before.probe !== failure.containerId) return counted;
  const cooldownMs = Math.min(COOLDOWN_MS * 2 ** before.opened, LONGEST_COOLDOWN_MS);
  return { ...counted, opened: before.opened + 1, coolsUntilMs: failure.atMs + cooldownMs, probe: null };
}

/**
 * Whether a container that was handed a task, or stayed up for a minute, ends the
 * row of failures. A container from before the row proves nothing about starting.
 */
export function provesStarts(breaker: Breaker, container: { readonly createdAtMs: number }): boolean {
  return container.createdAtMs >= breaker.sinceMs - SAME_ROUND_MS;
}
