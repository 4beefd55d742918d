// Rules for which tasks may wait in a local queue, and which replica handles an entry of a local queue in Redis. Pure.

export interface LocalQueueFacts {
  readonly sync: boolean;
  /** Whether older jobs are in the queue, as far as is known. */
  readonly jobsWait: boolean;
  /** Whether a container linked here serves the queue. */
  readonly hasReady: boolean;
  /** Whether no container linked elsewhere serves the queue. */
  readonly isOursAlone: boolean;
  readonly freeSlots: number;
  /** Tasks of the queue that wait in this local queue. */
  readonly waiting: number;
}

/**
 * Whether a task may enter the local queue. Where another replica could
 * serve it, it takes a slot that is free here, and does not wait.
 */
export function mayEnter({ sync, jobsWait, hasReady, isOursAlone, freeSlots, waiting }: LocalQueueFacts): boolean {
  return sync && !jobsWait && hasReady && (isOursAlone || freeSlots > waiting);
}

/**
 * Whether a task may be forwarded to a replica with room for it, as far as is known: where no slot here is free for it.
 */
export function mayForward({
  sync,
  jobsWait,
  isOursAlone,
}: Pick<LocalQueueFacts, 'sync' | 'jobsWait' | 'isOursAlone'>): boolean {
  return sync && !jobsWait && !isOursAlone;
}

/**
 * Whether a task may be received. A received task takes a free
 * slot and does not wait: tasks that wait here are served first.
 */
export function mayReceive({
  hasReady,
  freeSlots,
  waiting,
}: Pick<LocalQueueFacts, 'hasReady' | 'freeSlots' | 'waiting'>): boolean {
  return hasReady && freeSlots > waiting;
}

/** Whether waiting tasks may go on waiting here; else they move to the queue. */
export function mayStay({
  hasReady,
  isOursAlone,
  freeSlots,
  waiting,
}: Omit<LocalQueueFacts, 'sync' | 'jobsWait'>): boolean {
  return isOursAlone || (hasReady && freeSlots >= waiting);
}

export interface EntryFacts {
  readonly isOwn: boolean;
  /** Whether this local queue has the task; asked of its own entries. */
  readonly isKnown: boolean;
  /** Whether the entry is so old that a task on its way in or out is known again. */
  readonly isOld: boolean;
  readonly ownerLives: boolean;
  readonly isLeader: boolean;
}

/**
 * Decision on an entry. `drop`: nobody has the task any more, and its end is recorded or never
 * will be. `end`: its replica died, and its caller with it. Neither touches a task that was sent.
 */
export function entryDecision({ isOwn, isKnown, isOld, ownerLives, isLeader }: EntryFacts): 'leave' | 'drop' | 'end' {
  if (isOwn) return isKnown || !isOld ? 'leave' : 'drop';
  return isLeader && !ownerLives ? 'end' : 'leave';
}
