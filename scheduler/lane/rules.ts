// Who may wait in a lane, and who sees to an entry of a lane that Redis has. Pure.

export interface LaneFacts {
  readonly sync: boolean;
  /** Older jobs are in the queue, as far as is known. */
  readonly jobsWait: boolean;
  /** A container linked here serves the queue. */
  readonly hasReady: boolean;
  /** No container linked elsewhere does. */
  readonly isOursAlone: boolean;
  readonly freeSlots: number;
  /** In this lane, for this queue. */
  readonly waiting: number;
}

/** Where another replica could serve it, a task takes a slot that is free here, and does not wait. */
export function mayEnter({ sync, jobsWait, hasReady, isOursAlone, freeSlots, waiting }: LaneFacts): boolean {
  return sync && !jobsWait && hasReady && (isOursAlone || freeSlots > waiting);
}

/** Whether a task may be lent to a replica that has room for it, as far as is known: where none of the slots here is free for it. */
export function mayLend({
  sync,
  jobsWait,
  isOursAlone,
}: Pick<LaneFacts, 'sync' | 'jobsWait' | 'isOursAlone'>): boolean {
  return sync && !jobsWait && !isOursAlone;
}

/** A borrowed task takes a slot that is free, and does not wait: those that wait here are served first. */
export function mayBorrow({
  hasReady,
  freeSlots,
  waiting,
}: Pick<LaneFacts, 'hasReady' | 'freeSlots' | 'waiting'>): boolean {
  return hasReady && freeSlots > waiting;
}

/** Whether those that wait may go on waiting here; else they move to the queue. */
export function mayStay({ hasReady, isOursAlone, freeSlots, waiting }: Omit<LaneFacts, 'sync' | 'jobsWait'>): boolean {
  return isOursAlone || (hasReady && freeSlots >= waiting);
}

export interface EntryFacts {
  readonly isOwn: boolean;
  /** This lane has the task; asked of its own entries. */
  readonly isKnown: boolean;
  /** Long enough that one on its way in or out is known again. */
  readonly isOld: boolean;
  readonly ownerLives: boolean;
  readonly isLeader: boolean;
}

/** `drop`: nobody has it any more, and its end is recorded or never will be. `end`: its replica died, and its caller with it. What was sent is left alone by either. */
export function entryVerdict({ isOwn, isKnown, isOld, ownerLives, isLeader }: EntryFacts): 'leave' | 'drop' | 'end' {
  if (isOwn) return isKnown || !isOld ? 'leave' : 'drop';
  return isLeader && !ownerLives ? 'end' : 'leave';
}
