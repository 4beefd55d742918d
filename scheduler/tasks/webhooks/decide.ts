// Consequence of one try to deliver a message. Pure; deliveries.ts carries it out.

/** Outcome of one try. */
export type Outcome =
  | { readonly kind: 'answered'; readonly status: number; readonly retryAfter?: string }
  /** No answer: the connection failed, or broke. `why`: the code of the failure. */
  | { readonly kind: 'connection_failed'; readonly why?: string }
  /** No answer in time after connecting: the receiver may be working on the message. */
  | { readonly kind: 'timed_out' }
  /** The guard refused every address of the host. */
  | { readonly kind: 'blocked' }
  /** No try was made: others had all places for looking up names. */
  | { readonly kind: 'no_place' };

/** Number and duration of tries for a kind of message. */
export interface Policy {
  readonly attempts: number;
  /** Milliseconds to wait after the first try; doubled after each. */
  readonly baseMs: number;
  /** Milliseconds after which the message is given up, however many tries are left, and even if it was never sent. */
  readonly lifeMs: number;
}

export type DeliveryVerdict =
  | { readonly kind: 'delivered' }
  | { readonly kind: 'retry'; readonly afterMs: number }
  /** No try is counted. */
  | { readonly kind: 'postpone'; readonly afterMs: number }
  | { readonly kind: 'failed' };

const POSTPONED_MS = 5_000;
const MOST_POSTPONED_MS = 15 * 60_000;
/** Statuses below 500 that mean "later". */
const LATER = [408, 425, 429];

/**
 * Decides what follows a try.
 * @param attempts - tries that ended, this one included
 * @param claim - number of times the message was claimed, for those tries and all others
 */
export function afterTry(outcome: Outcome, attempts: number, policy: Policy, claim = attempts): DeliveryVerdict {
  if (outcome.kind === 'no_place')
    return { kind: 'postpone', afterMs: Math.min(POSTPONED_MS * 2 ** (claim - 1), MOST_POSTPONED_MS) };
  if (outcome.kind === 'answered' && outcome.status >= 200 && outcome.status < 300) return { kind: 'delivered' };
  if (!mayHelp(outcome) || attempts >= policy.attempts) return { kind: 'failed' };
  return { kind: 'retry', afterMs: policy.baseMs * 2 ** (attempts - 1) };
}

function mayHelp(outcome: Exclude<Outcome, { readonly kind: 'no_place' }>): boolean {
  switch (outcome.kind) {
    case 'answered':
      return outcome.status >= 500 || LATER.includes(outcome.status);
    case 'connection_failed':
      return true;
    case 'timed_out':
    case 'blocked':
      return false;
  }
}

export const FIRST_PAUSE_MS = 30_000;
export const LONGEST_PAUSE_MS = 3600_000;

/**
 * Pause of a message that could not even be made, in milliseconds.
 * @param before - earlier starts that did not count as a try
 */
export function pauseMs(before: number): number {
  return Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** Math.max(0, before));
}

/** Outcome in a few words, for metrics, logs and the row. */
export function wordOf(outcome: Outcome): string {
  if (outcome.kind !== 'answered') return outcome.kind;
  const { status } = outcome;
  if (status < 300) return 'accepted';
  if (status < 400) return 'redirected';
  return status < 500 ? 'refused' : 'server_error';
}
