// The next step for a machine that a provider makes, from its row, its machine and the provider's listings. Pure: every
// leader comes to the same step from the same facts, so a crash between two steps loses nothing.
// Invariant: `create` is repeated only with the same request id, and only after listings without the instance.
import type { Instance } from '../../domain/provisioning.ts';
import type { EndWhy, ProvisionedRow } from './states.ts';

const SECOND = 1_000;
const MINUTE = 60 * SECOND;

export const RULES = {
  /** Calls of `create` for one request. */
  mostCreates: 3,
  /** Time from the request in which `create` is tried. The join token must outlive this and `joinWithinMs`. */
  createWithinMs: 10 * MINUTE,
  /** Time from the instance until its machine can take containers. */
  joinWithinMs: 15 * MINUTE,
  /** Complete listings without the instance before `create` is repeated. */
  looksBeforeRepeat: 2,
  /** Complete listings without an instance, over at least `goneAfterMs`, after which it counts as gone. */
  looksBeforeGone: 3,
  goneAfterMs: 2 * MINUTE,
  /** Silence after which a lost machine is terminated. */
  lostAfterMs: 15 * MINUTE,
  /** Time for which this replica must lead before it ends lost machines. */
  lostGraceMs: 3 * MINUTE,
  /** Time for which a machine stays that an operator drained. */
  drainedStaysMs: 10 * MINUTE,
  /** A machine drains at the earliest so long before the provider takes the instance back. */
  noticeLeadMs: 30 * MINUTE,
  /** A drain ends so long before the provider takes the instance back. */
  noticeMarginMs: 20 * SECOND,
  /** Time after a drain's deadline in which its containers stop. */
  drainOverrunMs: 5 * MINUTE,
  /** Time for an instance to stop after `terminate`, before it is called again. */
  stopWithinMs: 2 * MINUTE,
  /** Time without a complete listing after which the row of a deleted machine ends all the same. */
  unlistedMs: 15 * MINUTE,
  /** Longest and shortest wait between failed calls. */
  retryBaseMs: 5 * SECOND,
  retryCapMs: 5 * MINUTE,
} as const;

/** The machine of a row; a deleted machine has none. */
export interface MachineFacts {
  /** Whether the Join call of its agent was answered. Much may still keep containers away. */
  readonly isJoined: boolean;
  /** Whether it can take containers. */
  readonly isReady: boolean;
  /** Conditions that keep containers away. */
  readonly blockedBy: readonly string[];
  /** Whether its agent speaks to a scheduler now. */
  readonly isConnected: boolean;
  readonly isLost: boolean;
  /** How long it has been silent. */
  readonly silentMs: number;
  readonly intent: string;
  /** How long this leader has seen it drained. */
  readonly drainedMs: number;
  /** Whether containers are there, by its rows or by its agent. */
  readonly isOccupied: boolean;
}

/** Complete listings since the last call of `create` or `terminate` for the row ended. */
export interface Seen {
  /** The instance in the last listing; null: it was not there. */
  readonly instance: Instance | null;
  /** Listings in a row without it. */
  readonly absences: number;
  /** Begin of the first of them. */
  readonly absentSinceMs: number;
}
export const UNSEEN: Seen = { instance: null, absences: 0, absentSinceMs: 0 };

export interface Present {
  readonly nowMs: number;
  /** Since when this replica leads. */
  readonly leadingSinceMs: number;
  /** The pool's back-off: no `create` before it. */
  readonly notBeforeMs: number;
  /** Until when a call of another process may still run. */
  readonly callEndsMs: number;
  /** Whether the installation has the row's provider; calls of one that it lacks fail. */
  readonly isProviderKnown: boolean;
}

export type Step =
  | { readonly kind: 'wait'; readonly untilMs: number }
  /** A listing is wanted soon. */
  | { readonly kind: 'look' }
  | { readonly kind: 'create' }
  | { readonly kind: 'made'; readonly instance: Instance }
  | { readonly kind: 'join' }
  | { readonly kind: 'leave'; readonly why: EndWhy; readonly drainUntilMs: number }
  | { readonly kind: 'drain' }
  | { readonly kind: 'end'; readonly why: EndWhy }
  | { readonly kind: 'terminate'; readonly instanceId: string }
  | { readonly kind: 'delete_machine' }
  /** `failure`: the instance may still run. */
  | { readonly kind: 'over'; readonly failure?: string };

const WAIT: Step = { kind: 'wait', untilMs: Infinity };
const LOOK: Step = { kind: 'look' };
const JOIN: Step = { kind: 'join' };
const until = (untilMs: number): Step => ({ kind: 'wait', untilMs });
const end = (why: EndWhy): Step => ({ kind: 'end', why });

export function nextStep(row: ProvisionedRow, machine: MachineFacts | undefined, seen: Seen, now: Present): Step {
  switch (row.state) {
    case 'requested':
      return requested(row, machine, now);
    case 'creating':
      return creating(row, machine, seen, now);
    case 'created':
      return created(row, machine, seen, now);
    case 'joined':
      return joined(row, machine, seen, now);
    case 'leaving':
      return leaving(row, machine, seen, now);
    case 'terminating':
      return terminating(row, machine, seen, now);
    case 'gone':
    case 'failed':
      return WAIT;
  }
}

const lateMs = (row: ProvisionedRow): number => row.requestedAtMs + RULES.createWithinMs;
const isLate = (row: ProvisionedRow, nowMs: number): boolean => nowMs >= lateMs(row);

function requested(row: ProvisionedRow, machine: MachineFacts | undefined, now: Present): Step {
  if (machine === undefined) return end('machine_deleted');
  if (isLate(row, now.nowMs)) return end('not_created');
  if (!now.isProviderKnown) return until(lateMs(row));
  return now.nowMs < now.notBeforeMs ? until(now.notBeforeMs) : { kind: 'create' };
}

function creating(row: ProvisionedRow, machine: MachineFacts | undefined, seen: Seen, now: Present): Step {
  if (machine === undefined) return end('machine_deleted');
  if (machine.isReady) return JOIN;
  if (seen.instance !== null)
    return seen.instance.state === 'gone' ? end('instance_gone') : { kind: 'made', instance: seen.instance };
  if (now.nowMs < now.callEndsMs) return until(now.callEndsMs);
  // The agent proves the instance that no listing shows.
  if (machine.isJoined) return notReady(row, machine, now.nowMs);
  if (!now.isProviderKnown) return isLate(row, now.nowMs) ? end('not_created') : until(lateMs(row));
  if (seen.absences < RULES.looksBeforeRepeat) return LOOK;
  if (row.creates >= RULES.mostCreates || isLate(row, now.nowMs)) return end('not_created');
  return now.nowMs < now.notBeforeMs ? until(now.notBeforeMs) : { kind: 'create' };
}

/** Whether the provider has the instance no more. One that a listing only omits may come back. */
function isGone(seen: Seen, nowMs: number): boolean {
  if (seen.instance !== null) return seen.instance.state === 'gone';
  return seen.absences >= RULES.looksBeforeGone && nowMs - seen.absentSinceMs >= RULES.goneAfterMs;
}

function created(row: ProvisionedRow, machine: MachineFacts | undefined, seen: Seen, { nowMs }: Present): Step {
  if (machine === undefined) return end('machine_deleted');
  if (machine.isReady) return JOIN;
  if (!machine.isConnected && isGone(seen, nowMs)) return end('instance_gone');
  if (row.endsAtMs !== null && nowMs >= row.endsAtMs) return end('spot_notice');
  return notReady(row, machine, nowMs);
}

/** A machine that was ready once has containers, and an earlier leader may not have written it. */
function notReady(row: ProvisionedRow, machine: MachineFacts, nowMs: number): Step {
  const readyByMs = (row.createdAtMs ?? row.calledAtMs ?? row.requestedAtMs) + RULES.joinWithinMs;
  if (nowMs < readyByMs) return until(readyByMs);
  return machine.isOccupied ? JOIN : end('never_joined');
}

function joined(row: ProvisionedRow, machine: MachineFacts | undefined, seen: Seen, now: Present): Step {
  const ended = endOfJoined(machine, seen, now);
  if (ended !== undefined) return ended;
  if (row.endsAtMs === null) return WAIT;
  const fromMs = row.endsAtMs - RULES.noticeLeadMs;
  if (now.nowMs < fromMs) return until(fromMs);
  return {
    kind: 'leave',
    why: 'spot_notice',
    drainUntilMs: Math.max(now.nowMs, row.endsAtMs - RULES.noticeMarginMs),
  };
}

/** Ends of a machine that has joined, and that needs no drain. */
function endOfJoined(machine: MachineFacts | undefined, seen: Seen, now: Present): Step | undefined {
  if (machine === undefined) return end('machine_deleted');
  // A connected agent proves the instance, whatever the provider lists.
  if (machine.isConnected) return machine.drainedMs >= RULES.drainedStaysMs ? end('drained') : undefined;
  if (isGone(seen, now.nowMs)) return end('instance_gone');
  const ledMs = now.nowMs - now.leadingSinceMs;
  const isLost = machine.isLost && machine.silentMs >= RULES.lostAfterMs && ledMs >= RULES.lostGraceMs;
  return isLost ? end('lost') : undefined;
}

function leaving(row: ProvisionedRow, machine: MachineFacts | undefined, seen: Seen, now: Present): Step {
  const why = row.endWhy ?? 'idle';
  if (machine === undefined) return end('machine_deleted');
  if (machine.intent === 'drained' && !machine.isOccupied) return end(why);
  const ended = endOfJoined(machine, seen, now);
  if (ended !== undefined) return ended;
  if (row.endsAtMs !== null && now.nowMs >= row.endsAtMs) return end('spot_notice');
  const longestMs = (row.drainUntilMs ?? now.nowMs) + RULES.drainOverrunMs;
  if (now.nowMs >= longestMs) return end(why);
  if (machine.intent === 'active' || machine.intent === 'cordoned') return { kind: 'drain' };
  return until(longestMs);
}

function terminating(row: ProvisionedRow, machine: MachineFacts | undefined, seen: Seen, now: Present): Step {
  const over: Step = machine === undefined ? { kind: 'over' } : { kind: 'delete_machine' };
  if (row.creates === 0 || seen.instance?.state === 'gone') return over;
  if (now.nowMs < now.callEndsMs) return until(now.callEndsMs);
  // A row that waits for its provider would count for ever. Should the provider return, the sweep ends the instance.
  if (!now.isProviderKnown && !isLate(row, now.nowMs)) return until(lateMs(row));
  // A second instance of the request may be the one that is left.
  const instanceId = seen.instance?.instanceId ?? row.instanceId;
  if (!now.isProviderKnown) {
    if (machine !== undefined || instanceId === null || row.terminatedAtMs !== null) return over;
    return { kind: 'over', failure: `no provider ${row.provider} is configured: ${instanceId} may still run` };
  }
  // No instance was ever seen. A later one has no live row, and the sweep ends it.
  if (instanceId === null) return seen.absences >= RULES.looksBeforeGone ? over : lookOrEnd(row, machine, seen, now);
  const retryMs = Math.max(row.failedAtMs ?? 0, now.callEndsMs) + retryAfterMs(row.failures);
  if (row.terminatedAtMs === null || instanceId !== row.instanceId)
    return row.failures > 0 && now.nowMs < retryMs ? until(retryMs) : { kind: 'terminate', instanceId };
  if (machine !== undefined) return { kind: 'delete_machine' };
  if (seen.absences > 0) return over;
  if (seen.instance === null) return lookOrEnd(row, machine, seen, now);
  const againMs = row.terminatedAtMs + RULES.stopWithinMs;
  return now.nowMs >= againMs ? { kind: 'terminate', instanceId } : until(againMs);
}

/**
 * The row of a deleted machine needs a listing only as a proof. Without any for long it ends, or a provider that lists
 * nothing would fill its pools with rows. The first listing that works finds an instance that is left, for the sweep.
 */
function lookOrEnd(row: ProvisionedRow, machine: MachineFacts | undefined, seen: Seen, now: Present): Step {
  const sinceMs = Math.max(row.calledAtMs ?? 0, row.terminatedAtMs ?? 0, seen.absentSinceMs, now.leadingSinceMs);
  if (machine !== undefined || now.nowMs - sinceMs < RULES.unlistedMs) return LOOK;
  const left = row.instanceId ?? `an instance with the tag ${row.requestId}`;
  return { kind: 'over', failure: `no listing of provider ${row.provider} shows what is left: ${left} may still run` };
}

/** Wait after so many failures in a row: 5 s, doubled each time up to 5 min. */
export const retryAfterMs = (failures: number): number =>
  failures === 0 ? 0 : Math.min(RULES.retryCapMs, RULES.retryBaseMs * 2 ** Math.min(failures - 1, 16));
