// How a task ends, as the domain says it: a status, a reason, and a text where the text is data of the failure.
// HTTP statuses and the fixed texts for callers stand in api/http/invoke/outcomes.ts. Source: decision 0130.
import type { TaskStatus } from '#shared/domain/status.ts';

export type FinalStatus = Exclude<TaskStatus, 'PENDING' | 'RUNNING' | 'RETRY'>;

/** Reasons for which tasks end. Messages between replicas carry them, so a name is never given another meaning. */
export const END_REASONS = [
  'completed',
  'handler_error',
  /** The handler does not take such an input: the caller's mistake. */
  'invalid_request_payload',
  'process_exited',
  'execution_timeout',
  'result_too_large',
  'result_not_stored',
  'input_lost',
  /** An external runner ended the task (EndTask), or the gateway's caller did. */
  'ended_by_runner',
  /** The task was sent, and its outcome will not be known. */
  'lost',
  'job_lost',
  /** The task ended, and no record of it is left. */
  'answer_lost',
  'wait_limit',
  'expired',
  'request_cancelled',
  /** Flow control let a later call of its key replace it. */
  'replaced',
  /** The caller hung up. */
  'caller_left',
  /** The caller's replica is gone, or does not know the caller. */
  'caller_gone',
  'scheduler_stopping',
  'deployment_stopped',
  'deployment_deleted',
  'start_failed',
  /** No machine was found for a container within the limit. */
  'not_placed',
] as const;
export type EndReason = (typeof END_REASONS)[number];

const REASONS: ReadonlySet<string> = new Set(END_REASONS);
export const isEndReason = (text: unknown): text is EndReason => typeof text === 'string' && REASONS.has(text);

export interface Ending {
  readonly status: FinalStatus;
  readonly reason: EndReason;
  /** Failure reason in the task's record; absent: the reason itself. */
  readonly failureReason?: string;
  /** Text of the failure, where it is data: the last lines of a container. Absent: the reason's fixed text, if any. */
  readonly detail?: string;
}

export const failureReasonOf = ({ reason, failureReason }: Ending): string => failureReason ?? reason;

/** Reason that a record's failure reason stands for; undefined: the record's status says all that is known. */
export function reasonOfRecord(failureReason: string): EndReason | undefined {
  if (failureReason === '') return 'completed';
  return isEndReason(failureReason) ? failureReason : undefined;
}

export const COMPLETED: Ending = { status: 'COMPLETE', reason: 'completed', failureReason: '' };
export const LOST: Ending = { status: 'ERROR', reason: 'lost' };
export const INPUT_LOST: Ending = { status: 'ERROR', reason: 'input_lost' };
export const RESULT_NOT_STORED: Ending = { status: 'ERROR', reason: 'result_not_stored' };
export const EXPIRED: Ending = { status: 'EXPIRED', reason: 'expired' };
export const WAIT_LIMIT: Ending = { status: 'TIMEOUT', reason: 'wait_limit' };
export const CANCELLED: Ending = { status: 'CANCELLED', reason: 'request_cancelled' };
export const REPLACED: Ending = { status: 'CANCELLED', reason: 'replaced' };
export const CALLER_LEFT: Ending = {
  status: 'CANCELLED',
  reason: 'caller_left',
  failureReason: 'request_cancelled',
};
export const CALLER_GONE: Ending = { status: 'CANCELLED', reason: 'caller_gone' };
export const SCHEDULER_STOPPING: Ending = {
  status: 'CANCELLED',
  reason: 'scheduler_stopping',
  failureReason: 'caller_gone',
};
export const DEPLOYMENT_STOPPED: Ending = { status: 'CANCELLED', reason: 'deployment_stopped' };
export const DEPLOYMENT_DELETED: Ending = { status: 'CANCELLED', reason: 'deployment_deleted' };

/**
 * How a surface presents endings to callers. Rows keep its texts. Implemented by api/http/invoke/outcomes.ts, and
 * passed in by compose/.
 */
export interface Presentation {
  /** Fixed text of the reason; undefined: the result, the detail or the failure reason is the text. */
  readonly textOf: (reason: EndReason) => string | undefined;
  /** HTTP status for a task in that status; without a reason, the status alone decides. */
  readonly httpStatusOf: (status: TaskStatus, reason?: EndReason) => number;
}
