// Place of a synchronous task, as the replica of its caller knows it. That replica owns the task while it waits. A task
// that was offered or sent has another owner, and only that owner can give it back (R1). A task that may have been sent
// or ended meanwhile is sent again only after its row was read (R4). All rules are pure.
import type { InstanceId } from '#shared/domain/ids.ts';

/** `attempt`: number of the attempt that is under way; while the task waits, number of the last one. */
export type Place =
  /** The task waits here, and may be sent or offered. */
  | { readonly kind: 'waiting'; readonly attempt: number }
  /** The task came back, but it may have been sent or ended meanwhile: its row is read first. */
  | { readonly kind: 'unsure'; readonly attempt: number }
  /** This replica sent the task to a machine that is linked here. */
  | { readonly kind: 'here'; readonly attempt: number }
  /** The task was offered, and nothing was heard of the offer. */
  | ({ readonly kind: 'offered'; readonly attempt: number; readonly to: InstanceId } & Asked)
  /** Another replica said that it has the task. */
  | ({ readonly kind: 'away'; readonly attempt: number; readonly to: InstanceId } & Asked)
  /**
   * The replica that had the task seems dead. `settledAtMs`: since when its machines are linked elsewhere or LOST;
   * null: not all of them are.
   */
  | {
      readonly kind: 'orphaned';
      readonly attempt: number;
      readonly of: InstanceId;
      readonly sinceMs: number;
      readonly settledAtMs: number | null;
      /** When the replica was asked that has the task by its row; null: none was asked. */
      readonly askedAtMs: number | null;
    }
  /** This replica ends the task: the end is being written, and then the caller is told. */
  | { readonly kind: 'ending'; readonly attempt: number };

interface Asked {
  /** Time when the attempt left this replica; monotonic milliseconds. */
  readonly sinceMs: number;
  /** Time of the last message about it that was sent or heard. */
  readonly heardAtMs: number;
}

export const NEW: Place = { kind: 'waiting', attempt: 0 };

/** Milliseconds of silence after which the owner of an offered task is asked. */
export const OFFER_SILENT_MS = 1_000;
/** Milliseconds of silence after which the owner of a sent task is asked, because its answer may be lost. */
export const AWAY_SILENT_MS = 5_000;
/** Milliseconds that another replica has to adopt the attempt of a dead one. */
export const ADOPTION_MS = 10_000;

export const sentHere = (place: Place): Place => ({ kind: 'here', attempt: place.attempt + 1 });

export const offeredTo = (place: Place, to: InstanceId, nowMs: number): Place => ({
  kind: 'offered',
  attempt: place.attempt + 1,
  to,
  sinceMs: nowMs,
  heardAtMs: nowMs,
});

/** Message of an owner about one attempt. */
export type Word =
  /** The offer was not taken, or never arrived and will not be taken any more. */
  | { readonly kind: 'refused'; readonly attempt: number }
  /** `wasSent`: an order was sent, and its agent never had it. */
  | { readonly kind: 'returned'; readonly attempt: number; readonly wasSent: boolean }
  /** `owner` has the task: it was sent, or counts as sent. */
  | { readonly kind: 'has'; readonly attempt: number; readonly owner: InstanceId };

/**
 * Place after a message from that replica. A message about an earlier attempt changes nothing.
 * @param stalledAtMs - when this process last went on after it stood still: the leader may have ended a task that left
 * before
 */
export function heard(
  place: Place,
  word: Word,
  from: InstanceId,
  { nowMs, stalledAtMs }: { readonly nowMs: number; readonly stalledAtMs: number },
): Place {
  const { attempt } = place;
  if (word.attempt !== attempt) return place;
  // A task that was away for long may have been stopped meanwhile: nobody could act on it, so its row was ended.
  const isLong = 'heardAtMs' in place && place.heardAtMs !== place.sinceMs;
  const isStale = isLong || ('sinceMs' in place && place.sinceMs <= stalledAtMs);
  switch (word.kind) {
    case 'refused':
      return place.kind === 'offered' && place.to === from ? { kind: isStale ? 'unsure' : 'waiting', attempt } : place;
    case 'returned':
      return isOut(place) ? { kind: word.wasSent || isStale ? 'unsure' : 'waiting', attempt } : place;
    case 'has':
      // A replica may have handed the task over to the one that is dead.
      if (!isOut(place) || (place.kind === 'orphaned' && place.of === word.owner)) return place;
      return {
        kind: 'away',
        attempt,
        to: word.owner,
        sinceMs: 'sinceMs' in place ? place.sinceMs : nowMs,
        heardAtMs: nowMs,
      };
  }
}

/** Whether an attempt of the task is under way. */
export const isOut = ({ kind }: Place): boolean =>
  kind === 'here' || kind === 'offered' || kind === 'away' || kind === 'orphaned';

/** Facts about the replica that has a task. */
export interface OwnerFacts {
  readonly nowMs: number;
  readonly isPresent: (replica: InstanceId) => boolean;
  /** Whether each machine of that dead replica is linked elsewhere or LOST. */
  readonly isSettled: (replica: InstanceId) => boolean;
}

export type Check =
  | { readonly kind: 'wait'; readonly place: Place }
  /** Ask the owner whether it has the attempt. */
  | { readonly kind: 'recall'; readonly place: Place; readonly to: InstanceId; readonly ageMs: number }
  /** Read the row: a final one is the answer; else see {@link afterRow}. */
  | { readonly kind: 'read_row'; readonly place: Place };

/** Next step for a task, judged again every second and after gaps in the messages. */
export function check(place: Place, { nowMs, isPresent, isSettled }: OwnerFacts): Check {
  switch (place.kind) {
    case 'offered':
    case 'away': {
      const { attempt, to, sinceMs, heardAtMs } = place;
      if (!isPresent(to))
        return {
          kind: 'wait',
          place: { kind: 'orphaned', attempt, of: to, sinceMs, settledAtMs: null, askedAtMs: null },
        };
      const silentMs = place.kind === 'offered' ? OFFER_SILENT_MS : AWAY_SILENT_MS;
      if (nowMs - heardAtMs < silentMs) return { kind: 'wait', place };
      return { kind: 'recall', place: { ...place, heardAtMs: nowMs }, to, ageMs: nowMs - sinceMs };
    }
    case 'orphaned': {
      const { attempt, of, sinceMs } = place;
      // The replica stood still, and can be asked again.
      if (isPresent(of))
        return { kind: 'wait', place: { kind: 'offered', attempt, to: of, sinceMs, heardAtMs: sinceMs } };
      if (!isSettled(of)) return { kind: 'wait', place: { ...place, settledAtMs: null } };
      const next = { ...place, settledAtMs: place.settledAtMs ?? nowMs };
      const dueMs = place.askedAtMs === null ? next.settledAtMs + ADOPTION_MS : place.askedAtMs + OFFER_SILENT_MS;
      return { kind: nowMs < dueMs ? 'wait' : 'read_row', place: next };
    }
    case 'unsure':
      return { kind: 'read_row', place };
    case 'waiting':
    case 'here':
    case 'ending':
      return { kind: 'wait', place };
  }
}

/** Facts of a row of a task that may have been sent. */
export interface RowFacts {
  readonly isFinal: boolean;
  /** The replica at which the task runs, as its row says; null: it does not run, or it has no row. */
  readonly runsAt: InstanceId | null;
  /** Whether every record that was acknowledged to an agent is in the rows: none is in the spill. */
  readonly isComplete: boolean;
}

export type AfterRow =
  /** The row is the end. */
  | { readonly kind: 'answer' }
  /** Nobody has the attempt of the dead replica: the task ends as lost. */
  | { readonly kind: 'lost' }
  | { readonly kind: 'place'; readonly place: Place }
  /** Ask the replica that has the task by its row, and that may have handed it over. */
  | { readonly kind: 'recall'; readonly place: Place; readonly to: InstanceId; readonly ageMs: number };

/** Next step after a row that was read for a task. */
export function afterRow(
  place: Place,
  row: RowFacts,
  { nowMs, self, isPresent }: Pick<OwnerFacts, 'nowMs' | 'isPresent'> & { readonly self: InstanceId },
): AfterRow {
  if (row.isFinal) return { kind: 'answer' };
  if (!row.isComplete) return { kind: 'place', place };
  if (place.kind === 'unsure') return { kind: 'place', place: { kind: 'waiting', attempt: place.attempt } };
  if (place.kind !== 'orphaned') return { kind: 'place', place };
  const { of, sinceMs, askedAtMs } = place;
  const { runsAt } = row;
  if (askedAtMs !== null || runsAt === null || runsAt === of || runsAt === self || !isPresent(runsAt))
    return { kind: 'lost' };
  return { kind: 'recall', place: { ...place, askedAtMs: nowMs }, to: runsAt, ageMs: nowMs - sinceMs };
}

/**
 * Place after this process stood still for longer than its presence lasts: the leader may have ended the task, so its
 * row is read before it is sent.
 */
export const afterStall = (place: Place): Place =>
  place.kind === 'waiting' ? { kind: 'unsure', attempt: place.attempt } : place;
