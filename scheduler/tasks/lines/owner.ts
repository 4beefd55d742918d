// Memory of a replica about the attempts that others offered to it, and its answers. It remembers an attempt that it
// took, gave back or never had for ten minutes, so that a message that comes late finds the same answer. All rules
// are pure.
import type { InstanceId } from '#shared/domain/ids.ts';
import type { Word } from './offers.ts';

/** An attempt, as far as this replica knows it. */
export interface Known {
  readonly attempt: number;
  readonly what:
    /** The offer was taken, and no order was sent. */
    | { readonly kind: 'taken' }
    /** An order was sent, the attempt was adopted, or it is over. */
    | { readonly kind: 'sent' }
    /** The machine of the attempt dialled that replica, which has it now. */
    | { readonly kind: 'moved'; readonly to: InstanceId }
    /** The attempt was not sent, and will not be sent. `wasSent`: its agent never had the order. */
    | { readonly kind: 'back'; readonly wasSent: boolean };
}

/** Milliseconds for which an attempt is remembered. */
export const KNOWN_MS = 10 * 60_000;
/** Milliseconds by which an attempt may have left its caller's replica earlier than this one heard of it. */
const ON_ITS_WAY_MS = 60_000;
/** Milliseconds after which an offer that was taken and not sent is given back: the caller's replica may give up. */
export const TAKEN_MS = 5_000;

/**
 * Answer to an offer. `take`: a slot is free for it. `ignore`: the offer is older than what is known of the task, or
 * was taken before.
 */
export function judgeOffer(
  known: Known | undefined,
  { attempt, hasSlot }: { readonly attempt: number; readonly hasSlot: boolean },
): 'take' | 'refuse' | 'ignore' {
  if (known !== undefined && known.attempt >= attempt)
    return known.attempt === attempt && known.what.kind === 'back' ? 'refuse' : 'ignore';
  return hasSlot ? 'take' : 'refuse';
}

export interface RecallAnswer {
  readonly word: Word;
  /** Memory of this replica from now on; a taken offer is dropped with it. */
  readonly known: Known | undefined;
}

/**
 * Answer to the question whether this replica has an attempt. One that is not remembered, and may have been forgotten,
 * counts as sent.
 * @param ageMs - since the attempt left its caller's replica
 * @param keptMs - time back from now of which everything is remembered
 * @returns undefined: the question is about an earlier attempt
 */
export function judgeRecall(
  known: Known | undefined,
  {
    attempt,
    ageMs,
    self,
    keptMs = KNOWN_MS,
  }: { readonly attempt: number; readonly ageMs: number; readonly self: InstanceId; readonly keptMs?: number },
): RecallAnswer | undefined {
  if (known !== undefined && known.attempt > attempt) return undefined;
  if (known === undefined || known.attempt < attempt) {
    if (ageMs >= keptMs - Math.min(ON_ITS_WAY_MS, keptMs / 10))
      return { word: { kind: 'has', attempt, owner: self }, known };
    const back = { attempt, what: { kind: 'back', wasSent: false } } as const;
    return { word: { kind: 'refused', attempt }, known: back };
  }
  switch (known.what.kind) {
    case 'taken':
      return {
        word: { kind: 'returned', attempt, wasSent: false },
        known: { attempt, what: { kind: 'back', wasSent: false } },
      };
    case 'sent':
      return { word: { kind: 'has', attempt, owner: self }, known };
    case 'moved':
      return { word: { kind: 'has', attempt, owner: known.what.to }, known };
    case 'back':
      return { word: { kind: 'returned', attempt, wasSent: known.what.wasSent }, known };
  }
}

/**
 * Whether an offer that was taken a while ago may still be sent.
 * @param sinceStallMs - since this process stood still
 */
export const mayStillSend = (takenForMs: number, sinceStallMs: number): boolean =>
  takenForMs < TAKEN_MS && sinceStallMs >= takenForMs;
