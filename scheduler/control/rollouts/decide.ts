// Decision about one rollout: whether calls of the name go on to the older version, move to the newer one, or stay
// where they are because the newer one does not start. Pure. Source: decision 0230.

/** Containers of one version. */
export interface VersionFacts {
  readonly version: number;
  readonly active: boolean;
  /** Containers that serve calls. */
  readonly ready: number;
  /** Containers that serve calls or are on their way. */
  readonly live: number;
}

/** Start that failed by the app's own fault. */
export interface FailedStart {
  readonly containerId: string;
  readonly reason: string;
  /** Last lines of its output. */
  readonly message: string;
}

export interface RolloutFacts {
  readonly sinceMs: number;
  /** Time that a start may take. */
  readonly limitMs: number;
  /**
   * When a pull of the newer version's image got on last, also one that has ended since. At least when this leader saw
   * the rollout first, because it does not know of pulls before.
   */
  readonly pulledAtMs: number;
  readonly newer: VersionFacts;
  /** First start of the newer version that failed since the rollout began. */
  readonly failed: FailedStart | undefined;
  /** The version that calls reach meanwhile; null: none is left. */
  readonly older: VersionFacts | null;
}

/** Longest time by which pulls of its image extend a rollout. */
const LONGEST_PULL_MS = 4 * 3600_000;

export type RolloutDecision =
  | { readonly kind: 'wait'; readonly untilMs: number }
  | { readonly kind: 'move'; readonly why: 'ready' | 'nothing_serves' | 'start_limit'; readonly text: string }
  | { readonly kind: 'fail'; readonly text: string };

export function decideRollout(
  { sinceMs, limitMs, pulledAtMs, newer, failed, older }: RolloutFacts,
  nowMs: number,
): RolloutDecision {
  if (newer.ready > 0) return { kind: 'move', why: 'ready', text: 'a container of it is ready' };
  if (older === null) return nothingServes('no older version is left');
  if (!older.active) return nothingServes(`v${older.version} was stopped or deleted`);
  if (failed !== undefined) return { kind: 'fail', text: failureText(failed) };
  if (older.live === 0) return nothingServes(`v${older.version} has no containers any more`);
  // A start's time begins when its image is there, and many machines may wait in line for a large one.
  const untilMs = limitMs + Math.min(Math.max(sinceMs, pulledAtMs), sinceMs + LONGEST_PULL_MS);
  if (nowMs < untilMs) return { kind: 'wait', untilMs };
  return {
    kind: 'move',
    why: 'start_limit',
    text: `none of its containers was ready within ${Math.round((untilMs - sinceMs) / 60_000)} minutes, and calls wait for one`,
  };
}

const nothingServes = (text: string): RolloutDecision => ({ kind: 'move', why: 'nothing_serves', text });

/** Most characters of a container's last line in the reason of a failed rollout. */
const MOST_LINE = 500;

function failureText({ containerId, reason, message }: FailedStart): string {
  const line = (message.trimEnd().split('\n').at(-1) ?? '').slice(0, MOST_LINE);
  return `the start of ${containerId} failed (${reason})${line === '' ? '' : `: ${line}`}`;
}
