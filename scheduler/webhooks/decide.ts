// What follows one try to deliver a message. Pure; deliveries.ts carries it out.

/** How a try ended. */
export type Outcome =
  | { readonly kind: 'answered'; readonly status: number }
  /** Nothing was heard: no connection, or one that broke. */
  | { readonly kind: 'connection_failed' }
  /** Connected, and no answer in time: the receiver may be at work on it. */
  | { readonly kind: 'timed_out' }
  /** The guard refused every address of the host. */
  | { readonly kind: 'blocked' }
  /** Nothing was tried: others had the places in which names are looked up. */
  | { readonly kind: 'no_place' };

/** How often and how long a kind of message is tried. */
export interface Policy {
  readonly attempts: number;
  /** The wait after the first try; doubled after each. */
  readonly baseMs: number;
  /** Given up after so long, whatever is left of the tries, and however often it could not even be sent. */
  readonly lifeMs: number;
}

export type Verdict =
  | { readonly kind: 'delivered' }
  | { readonly kind: 'retry'; readonly afterMs: number }
  /** As if this try had not been. */
  | { readonly kind: 'postpone'; readonly afterMs: number }
  | { readonly kind: 'failed' };

const POSTPONED_MS = 5_000;
const MOST_POSTPONED_MS = 15 * 60_000;
/** Statuses below 500 that say "later". */
const LATER = [408, 425, 429];

/** @param attempts - tries that ended, this one included @param claim - how often it has been taken up, those tries and all others */
export function afterTry(outcome: Outcome, attempts: number, policy: Policy, claim = attempts): Verdict {
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

const FIRST_PAUSE_MS = 30_000;
const LONGEST_PAUSE_MS = 3600_000;

/** How long a message rests that could not even be made. @param before - how often it had begun before, without a try that counts */
export function pauseMs(before: number): number {
  return Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** Math.max(0, before));
}

/** For metrics, logs and the row: a few words. */
export function wordOf(outcome: Outcome): string {
  if (outcome.kind !== 'answered') return outcome.kind;
  const { status } = outcome;
  if (status < 300) return 'accepted';
  if (status < 400) return 'redirected';
  return status < 500 ? 'refused' : 'server_error';
}
