import { CALLER_GONE, EXPIRED, LOST, WAIT_LIMIT } from '../../domain/endings.ts';
import type { Ending } from '../../domain/endings.ts';
import type { TaskJob } from '../../stores/queues/jobs.ts';

export type PrecheckVerdict = { readonly kind: 'run' } | ({ readonly kind: 'finish' } & Ending);

/**
 * Whether a fetched job may still run. A synchronous job whose caller left, or whose
 * caller's replica is gone, is CANCELLED. A job past its deadline is TIMEOUT (synchronous)
 * or EXPIRED. A synchronous job that was already sent once (`leaseSeen`) never runs again.
 */
export function precheck(
  job: TaskJob,
  facts: { readonly nowMs: number; readonly callerWaits: boolean; readonly leaseSeen: boolean },
): PrecheckVerdict {
  if (job.sync && facts.leaseSeen) return { kind: 'finish', ...LOST };
  if (job.sync && !facts.callerWaits) return { kind: 'finish', ...CALLER_GONE };
  if (facts.nowMs > job.deadlineMs) return { kind: 'finish', ...(job.sync ? WAIT_LIMIT : EXPIRED) };
  return { kind: 'run' };
}
