import type { TaskStatus } from '#shared/domain/status.ts';
import { CANCELLED, COMPLETED, failureReasonOf, LOST } from '../domain/endings.ts';
import type { Ending, FinalStatus } from '../domain/endings.ts';

// Public statuses of a task as the surfaces show them. CLAIMED is PENDING with an attempt: the
// queue's lock tells, not the record; a hand-over counts as the start. Only a late COMPLETE of the
// last attempt may replace another terminal status. changes.ts checks this table before each write.
export const TASK_TRANSITIONS = {
  PENDING: {
    start: 'RUNNING',
    succeed: 'COMPLETE',
    fail: 'ERROR',
    cancel: 'CANCELLED',
    expire: 'EXPIRED',
    time_out: 'TIMEOUT',
    unclaim: 'PENDING',
  },
  RUNNING: {
    start: 'RUNNING',
    succeed: 'COMPLETE',
    fail: 'ERROR',
    cancel: 'CANCELLED',
    time_out: 'TIMEOUT',
    retry: 'RETRY',
    lose: 'RETRY',
    unclaim: 'PENDING',
  },
  RETRY: {
    start: 'RUNNING',
    due: 'PENDING',
    fail: 'ERROR',
    cancel: 'CANCELLED',
    expire: 'EXPIRED',
    time_out: 'TIMEOUT',
  },
  COMPLETE: {},
  ERROR: { succeed: 'COMPLETE' },
  CANCELLED: { succeed: 'COMPLETE' },
  TIMEOUT: { succeed: 'COMPLETE' },
  EXPIRED: { succeed: 'COMPLETE' },
} as const satisfies Record<TaskStatus, Readonly<Record<string, TaskStatus>>>;

type EventsOf<T> = T extends unknown ? keyof T : never;
/**
 * Event of a task. `unclaim`: its attempt ended before it began; `lose`:
 * an infrastructure cause ended it; `due`: its back-off is over.
 */
export type TaskEvent = EventsOf<(typeof TASK_TRANSITIONS)[TaskStatus]>;

/** Status after an event; undefined: the event must be refused. */
export function moveOf(from: TaskStatus, event: TaskEvent): TaskStatus | undefined {
  const row: Readonly<Partial<Record<TaskEvent, TaskStatus>>> = TASK_TRANSITIONS[from];
  return row[event];
}

/** Event that ends a task with that status. */
export const ENDED_BY = {
  COMPLETE: 'succeed',
  ERROR: 'fail',
  CANCELLED: 'cancel',
  TIMEOUT: 'time_out',
  EXPIRED: 'expire',
} as const satisfies Record<FinalStatus, TaskEvent>;

/** Outcome of one attempt, as the agent reports it (`outcome` of TaskResult). */
export type AttemptOutcome = 'ok' | 'error' | 'invalid' | 'retry' | 'timeout' | 'cancelled' | 'exited' | 'lost';

/** Facts beside the outcome that decide the ending. */
export interface EndingFacts {
  readonly sync: boolean;
  readonly timeoutMs: number;
  /** User retries allowed, and those used. */
  readonly retries: number;
  readonly retriesUsed: number;
  /** Earlier attempts lost to infrastructure causes; attempts that an agent gave back unstarted do not count. */
  readonly losses: number;
  /** Whether the container was told to stop: then an exit is not the handler's fault. */
  readonly stopping: boolean;
  /** Different containers that died on the task, this time included. */
  readonly died: number;
}

export type AttemptVerdict =
  | ({ readonly kind: 'final' } & Ending)
  /** Again after a back-off, on the user's budget. */
  | { readonly kind: 'retry'; readonly failureReason: string }
  /** Again at once and first in the queue, after an infrastructure cause. */
  | { readonly kind: 'again'; readonly failureReason: string };

/**
 * Most times that an asynchronous task is run again after an infrastructure cause; these have a budget of their own.
 */
export const INFRASTRUCTURE_ATTEMPTS = 5;
/** Times that a task is given back with an interruptible container; after these it runs to its end there. */
export const MOST_PREEMPTIONS = 3;
/** Different containers that may die on a task before it is given to no other. */
export const POISONED_CONTAINERS = 3;

/**
 * Verdict on the task after an attempt's outcome. For a synchronous
 * task it is always final: such a task never runs twice.
 */
export function verdictOf(outcome: AttemptOutcome, facts: EndingFacts): AttemptVerdict {
  const cause = outcome === 'exited' && facts.stopping ? 'lost' : outcome;
  const final = endingOf(cause, facts);
  if (facts.sync) return { kind: 'final', ...final };
  if ((cause === 'exited' || cause === 'lost') && facts.died >= POISONED_CONTAINERS) {
    return { kind: 'final', ...final, status: 'ERROR', failureReason: 'poison_task' };
  }
  switch (cause) {
    case 'retry':
    case 'exited':
      return facts.retriesUsed < facts.retries
        ? { kind: 'retry', failureReason: failureReasonOf(final) }
        : { kind: 'final', ...final };
    case 'lost':
      return facts.losses < INFRASTRUCTURE_ATTEMPTS
        ? { kind: 'again', failureReason: failureReasonOf(final) }
        : { kind: 'final', ...final, failureReason: 'infrastructure_limit' };
    case 'ok':
    case 'error':
    case 'invalid':
    case 'timeout':
    case 'cancelled':
      return { kind: 'final', ...final };
  }
}

/** Ending that the outcome stands for, were it final. */
export function endingOf(outcome: AttemptOutcome, facts: Pick<EndingFacts, 'timeoutMs'>): Ending {
  switch (outcome) {
    case 'ok':
      return COMPLETED;
    case 'error':
    case 'retry':
      return { status: 'ERROR', reason: 'handler_error' };
    case 'invalid':
      return { status: 'ERROR', reason: 'invalid_request_payload' };
    case 'exited':
      return { status: 'ERROR', reason: 'process_exited' };
    case 'timeout':
      return {
        status: 'TIMEOUT',
        reason: 'execution_timeout',
        detail: `task ran longer than its limit of ${facts.timeoutMs / 1000} s`,
      };
    case 'cancelled':
      return CANCELLED;
    case 'lost':
      return LOST;
  }
}

/** Back-off of a user retry: full jitter below 1 s × 2^n, at most 5 minutes. `n` counts from 0. */
export const USER_BACKOFF = { baseMs: 1_000, capMs: 5 * 60_000 } as const;

/** Rank of a status inside one attempt: a record never goes back to a lower (attempt, rank). */
export const RANK: Readonly<Record<TaskStatus, number>> = {
  PENDING: 0,
  RUNNING: 1,
  RETRY: 2,
  ERROR: 3,
  CANCELLED: 3,
  TIMEOUT: 3,
  EXPIRED: 3,
  COMPLETE: 4,
};

/**
 * Whether a new record may replace the known one. A record of an older attempt, or of an
 * earlier state of the same one, never may. Only the late COMPLETE of the last attempt
 * replaces a final status. The store's upsert has the same rule.
 */
export function mayReplace(
  told: { readonly attempt: number; readonly rank: number },
  known: { readonly attempt: number; readonly rank: number },
): boolean {
  if (known.rank >= 3) return known.rank === 3 && told.rank === 4 && told.attempt >= known.attempt;
  return told.attempt === known.attempt ? told.rank >= known.rank : told.attempt > known.attempt;
}
