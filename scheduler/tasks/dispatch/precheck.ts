import type { FinalStatus } from '../state.ts';
import type { TaskJob } from '../../stores/queues/jobs.ts';

export type Verdict =
  | { readonly kind: 'run' }
  | {
      readonly kind: 'finish';
      readonly status: FinalStatus;
      readonly httpStatus: number;
      readonly errorText: string;
      readonly failureReason: string;
    };

/** Ending of a synchronous task that was already sent once. */
export const SENT_BEFORE = {
  kind: 'finish',
  status: 'ERROR',
  httpStatus: 502,
  errorText: 'Backend route unavailable',
  failureReason: 'lost',
} as const satisfies Verdict;

/**
 * Whether a fetched job may still run. A synchronous job whose caller left, or whose
 * caller's replica is gone, is CANCELLED. A job past its deadline is TIMEOUT (synchronous)
 * or EXPIRED. A synchronous job that was already sent once (`leaseSeen`) never runs again.
 */
export function precheck(
  job: TaskJob,
  facts: { readonly nowMs: number; readonly callerWaits: boolean; readonly leaseSeen: boolean },
): Verdict {
  if (job.sync && facts.leaseSeen) return SENT_BEFORE;
  if (job.sync && !facts.callerWaits) {
    return {
      kind: 'finish',
      status: 'CANCELLED',
      httpStatus: 503,
      errorText: 'caller is gone',
      failureReason: 'caller_gone',
    };
  }
  if (facts.nowMs > job.deadlineMs) {
    return job.sync
      ? {
          kind: 'finish',
          status: 'TIMEOUT',
          httpStatus: 504,
          errorText: 'Timed out waiting for a backend container',
          failureReason: 'wait_limit',
        }
      : { kind: 'finish', status: 'EXPIRED', httpStatus: 504, errorText: 'expired', failureReason: 'expired' };
  }
  return { kind: 'run' };
}
