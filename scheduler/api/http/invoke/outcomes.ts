// How callers are told that a synchronous task ended, or that a call cannot be taken now: the HTTP status and the fixed
// text of each reason. The texts of endings also stand in records, callbacks and messages between replicas, which
// ask for them through the domain's `Presentation`. Source: interface, invoking deployments; decision 0130.
import type { TaskStatus } from '#shared/domain/status.ts';
import type { EndReason, Presentation } from '../../../domain/endings.ts';
import type { UnavailableReason } from '../../../tasks/admission/calls.ts';

/** HTTP status of a task's status, where its reason has no other. */
const HTTP_STATUS: Readonly<Record<TaskStatus, number>> = {
  PENDING: 500,
  RUNNING: 500,
  RETRY: 500,
  COMPLETE: 200,
  ERROR: 500,
  CANCELLED: 503,
  TIMEOUT: 504,
  EXPIRED: 504,
};

const DEPLOYMENT_STOPPED = 'deployment stopped';

interface Outcome {
  /** HTTP statuses that differ from those of {@link HTTP_STATUS}. */
  readonly http?: Readonly<Partial<Record<TaskStatus, number>>>;
  /** Text of `{"error": …}`; absent: the task's result or the detail of its ending is sent. */
  readonly text?: string;
}

const OUTCOMES: Readonly<Record<EndReason, Outcome>> = {
  completed: {},
  handler_error: {},
  invalid_request_payload: { http: { ERROR: 422 } },
  process_exited: {},
  execution_timeout: {},
  result_too_large: {},
  result_not_stored: { text: 'result could not be stored' },
  input_lost: { text: 'the input of the task could not be read' },
  ended_by_runner: { http: { CANCELLED: 500, EXPIRED: 500 } },
  lost: { http: { ERROR: 502 }, text: 'Backend route unavailable' },
  job_lost: {},
  answer_lost: { http: { ERROR: 502 }, text: 'the answer of this call is lost' },
  wait_limit: { text: 'Timed out waiting for a backend container' },
  expired: { text: 'expired' },
  request_cancelled: { text: 'task cancelled' },
  replaced: { text: 'a later call of the same key replaced the task' },
  caller_left: { http: { CANCELLED: 499 }, text: 'caller left' },
  caller_gone: { text: 'caller is gone' },
  scheduler_stopping: { text: 'scheduler is stopping' },
  deployment_stopped: { text: DEPLOYMENT_STOPPED },
  deployment_deleted: { text: DEPLOYMENT_STOPPED },
  start_failed: {},
  not_placed: { http: { ERROR: 503 } },
};

export const outcomes: Presentation = {
  textOf: (reason) => OUTCOMES[reason].text,
  httpStatusOf: (status, reason) => (reason && OUTCOMES[reason].http?.[status]) ?? HTTP_STATUS[status],
};

/** HTTP status of calls that cannot be taken now. */
export const UNAVAILABLE_STATUS = 503;

/** Texts of calls that cannot be taken now; a detail takes the text's place. */
export const UNAVAILABLE: Readonly<Record<UnavailableReason, { readonly text: string; readonly code?: string }>> = {
  records_behind: { text: 'task records cannot be written fast enough' },
  commits_failing: { text: 'tasks cannot be recorded now' },
  adds_waiting: { text: 'the task queue does not answer, and many accepted tasks wait for it' },
  not_recorded: { text: 'the task could not be recorded' },
  redis_nearly_full: {
    text: 'Redis is nearly full, and what is left of it is for tasks that were accepted: try again later',
    code: 'redis_nearly_full',
  },
  queue_silent: { text: 'the task queue does not answer' },
  not_servable: { text: 'no machine can serve this deployment' },
  deployment_stopped: { text: DEPLOYMENT_STOPPED },
  queued_too_late: { text: 'the call took too long to be queued' },
  key_in_doubt: { text: 'the task of this Idempotency-Key is not known yet' },
  single_in_doubt: { text: 'another call of the same key of flow control is being taken' },
  keys_not_kept: { text: 'idempotency keys are not kept here' },
};
