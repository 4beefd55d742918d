import type { TaskStatus } from '#shared/domain/status.ts';

// Public statuses of a task (scheduling reference §2.1). CLAIMED is PENDING with an attempt: the queue's lock says so, not the record.
// A late COMPLETE of the last attempt may replace another terminal status, nothing else leaves one.
export const TASK_TRANSITIONS = {
  PENDING: {
    start: 'RUNNING',
    succeed: 'COMPLETE',
    fail: 'ERROR',
    cancel: 'CANCELLED',
    expire: 'EXPIRED',
    time_out: 'TIMEOUT',
    give_back: 'PENDING',
  },
  RUNNING: {
    succeed: 'COMPLETE',
    fail: 'ERROR',
    cancel: 'CANCELLED',
    time_out: 'TIMEOUT',
    retry: 'RETRY',
    give_back: 'RETRY',
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

/** How one attempt ended, as the agent says it (`outcome` of TaskResult). */
export type AttemptOutcome = 'ok' | 'error' | 'retry' | 'timeout' | 'cancelled' | 'exited' | 'lost';

export interface Ending {
  readonly status: TaskStatus;
  /** What a synchronous caller gets. */
  readonly httpStatus: number;
  /** Replaces the body that came with the outcome, when set. */
  readonly errorText?: string;
  readonly failureReason: string;
}

/** What an attempt's outcome means for a synchronous task: always final, it never runs twice. */
export function endingOfSync(outcome: AttemptOutcome, facts: { readonly timeoutMs: number }): Ending {
  switch (outcome) {
    case 'ok':
      return { status: 'COMPLETE', httpStatus: 200, failureReason: '' };
    case 'error':
    case 'retry':
      return { status: 'ERROR', httpStatus: 500, failureReason: 'handler_error' };
    case 'exited':
      return { status: 'ERROR', httpStatus: 500, failureReason: 'process_exited' };
    case 'timeout':
      return {
        status: 'TIMEOUT',
        httpStatus: 504,
        errorText: `task ran longer than its limit of ${facts.timeoutMs / 1000} s`,
        failureReason: 'execution_timeout',
      };
    case 'cancelled':
      return { status: 'CANCELLED', httpStatus: 503, errorText: 'task cancelled', failureReason: 'request_cancelled' };
    case 'lost':
      return { status: 'ERROR', httpStatus: 502, errorText: 'Backend route unavailable', failureReason: 'lost' };
  }
}

/** Rank inside one attempt: a record never goes back to a lower (attempt, rank). */
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
