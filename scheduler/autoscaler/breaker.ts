import type { ContainerId } from '#shared/domain/ids.ts';

/**
 * Starts of one queue that failed in a row. Closed: `opened` is 0. Open: nothing is started before `coolsUntilMs`; after it one container probes, and nothing else starts before that one
 * works or fails. What counts as a failure is decided by who sees the container end; causes of a host never do.
 */
export interface Breaker {
  readonly failures: number;
  /** How often it opened since something last worked: each time cools twice as long. */
  readonly opened: number;
  /** Epoch milliseconds; 0: it never opened. */
  readonly coolsUntilMs: number;
  /** When the first container of the row was made (epoch milliseconds): only what was made since proves anything. */
  readonly sinceMs: number;
  readonly probe: ContainerId | null;
  /** The last one, for whoever asks why. */
  readonly last: StartFailure | null;
}

/** One container that did not start, or fell within a minute of being ready with nothing done. */
export interface StartFailure {
  readonly containerId: ContainerId;
  /** Of the container, epoch milliseconds. */
  readonly createdAtMs: number;
  readonly atMs: number;
  readonly reason: string;
  /** Its last lines. */
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
/** Containers of one round are made one after another. */
const SAME_ROUND_MS = 10_000;

export type BreakerPhase = 'closed' | 'cooling' | 'probing';

export function breakerPhase(breaker: Breaker, nowMs: number): BreakerPhase {
  if (breaker.opened === 0) return 'closed';
  return nowMs < breaker.coolsUntilMs ? 'cooling' : 'probing';
}

/**
 * One more failure. The third in a row opens the breaker, and so does a probe that fails. What was started before it opened and fails while it cools says nothing new.
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

/** A container completed a task, or stayed up for a minute: does that end the row? One that ran before the row began proves nothing about starting. */
export function provesStarts(breaker: Breaker, container: { readonly createdAtMs: number }): boolean {
  return container.createdAtMs >= breaker.sinceMs - SAME_ROUND_MS;
}
