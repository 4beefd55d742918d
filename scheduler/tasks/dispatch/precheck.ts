import { CALLER_GONE, EXPIRED, WAIT_LIMIT } from '../../domain/endings.ts';
import type { Ending } from '../../domain/endings.ts';
import type { TaskJob } from '../../stores/queues/jobs.ts';

export type PrecheckVerdict = { readonly kind: 'run' } | ({ readonly kind: 'finish' } & Ending);

/**
 * Whether a task that has a slot may still run. A synchronous task whose caller left is CANCELLED. A task past its
 * deadline is TIMEOUT (synchronous) or EXPIRED.
 */
export function precheck(
  job: TaskJob,
  facts: { readonly nowMs: number; readonly callerWaits: boolean },
): PrecheckVerdict {
  if (job.sync && !facts.callerWaits) return { kind: 'finish', ...CALLER_GONE };
  if (facts.nowMs > job.deadlineMs) return { kind: 'finish', ...(job.sync ? WAIT_LIMIT : EXPIRED) };
  return { kind: 'run' };
}
