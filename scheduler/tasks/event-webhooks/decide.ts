// Consequence of one try to deliver an event. Pure; sending.ts and lane.ts carry it out.
import type { Outcome } from '../webhooks/decide.ts';

/** Milliseconds between the end of a try and the next one, where a webhook has `retry`. */
export const PAUSES_MS: readonly number[] = [5_000, 300_000, 1_800_000, 7_200_000, 18_000_000, 36_000_000];
/** Longest pause that a receiver may ask for. */
const LONGEST_PAUSE_MS = 24 * 3600_000;
/** Milliseconds until an event is taken up again for which there was no place. */
export const POSTPONED_MS = 2_000;

/** Answer of a receiver that takes nothing any more, to an event as to a test. */
const RECEIVER_IS_GONE = 410;

export const isGone = (outcome: Outcome): boolean => outcome.kind === 'answered' && outcome.status === RECEIVER_IS_GONE;

export type EventVerdict =
  | { readonly kind: 'delivered' }
  /** Tried again after that time. */
  | { readonly kind: 'again'; readonly afterMs: number }
  | { readonly kind: 'failed' }
  /** The receiver is gone for good: the webhook ends. */
  | { readonly kind: 'gone' }
  /** No try was made, and none is counted. */
  | { readonly kind: 'postpone'; readonly afterMs: number };

/**
 * Decides what follows a try.
 * @param attempts - tries that ended, this one included
 */
export function afterEventTry(outcome: Outcome, attempts: number, retry: boolean, nowMs: number): EventVerdict {
  if (outcome.kind === 'no_place') return { kind: 'postpone', afterMs: POSTPONED_MS };
  if (outcome.kind === 'answered' && outcome.status >= 200 && outcome.status < 300) return { kind: 'delivered' };
  if (isGone(outcome)) return { kind: 'gone' };
  const pauseMs = PAUSES_MS[attempts - 1];
  if (!retry || pauseMs === undefined) return { kind: 'failed' };
  const askedMs = outcome.kind === 'answered' ? retryAfterMs(outcome.retryAfter, nowMs) : 0;
  return { kind: 'again', afterMs: Math.max(pauseMs, Math.min(askedMs, LONGEST_PAUSE_MS)) };
}

/** Milliseconds that a `Retry-After` asks for; 0: none, or one that cannot be read. */
export function retryAfterMs(text: string | undefined, nowMs: number): number {
  if (text === undefined) return 0;
  if (/^[0-9]{1,9}$/.test(text)) return Number(text) * 1000;
  const at = Date.parse(text);
  return Number.isNaN(at) ? 0 : Math.max(0, at - nowMs);
}

/** Outcome as a person reads it; empty: delivered. */
export function errorOf(outcome: Outcome): string {
  switch (outcome.kind) {
    case 'answered':
      if (outcome.status >= 200 && outcome.status < 300) return '';
      if (outcome.status === RECEIVER_IS_GONE) return 'answered 410, which ends the webhook';
      return outcome.status >= 300 && outcome.status < 400
        ? `answered ${outcome.status}; redirects are not followed`
        : `answered ${outcome.status}`;
    case 'connection_failed':
      return outcome.why === undefined ? 'the connection failed' : `the connection failed (${outcome.why})`;
    case 'timed_out':
      return 'no answer in 10 s';
    case 'blocked':
      return 'no address of the host may be dialled';
    case 'no_place':
      return 'too many names were being looked up';
  }
}
