// How callers are told that a synchronous task ended: the HTTP status and the fixed text of each reason.
// No other file has them. The texts also stand in records, callbacks and messages between replicas,
// which ask for them through the domain's `Presentation`. Source: interface, invoking deployments; decision 0130.
import type { TaskStatus } from '#shared/domain/status.ts';
import type { EndReason, Presentation } from '../../../domain/endings.ts';

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

interface Outcome {
  /** HTTP statuses that differ from those of {@link HTTP_STATUS}. */
  readonly http?: Readonly<Partial<Record<TaskStatus, number>>>;
  /** Text of `{"error": …}`; absent: the task's result or the detail of its ending is sent. */
  readonly text?: string;
}

const OUTCOMES: Readonly<Record<EndReason, Outcome>> = {
  completed: {},
  handler_error: {},
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
  caller_left: { http: { CANCELLED: 499 }, text: 'caller left' },
  caller_gone: { text: 'caller is gone' },
  scheduler_stopping: { text: 'scheduler is stopping' },
  deployment_stopped: { text: 'deployment stopped' },
  deployment_deleted: { text: 'deployment stopped' },
  start_failed: {},
  not_placed: { http: { ERROR: 503 } },
};

export const outcomes: Presentation = {
  textOf: (reason) => OUTCOMES[reason].text,
  httpStatusOf: (status, reason) => (reason && OUTCOMES[reason].http?.[status]) ?? HTTP_STATUS[status],
};
