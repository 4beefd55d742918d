// Return of a job to its queue, repeated until Redis answers. Each step is fenced by the lock token, so
// repeating one changes nothing. The slots of containers bound the number of these loops: each holds one.
import type { LockToken, QueueName } from '#shared/domain/ids.ts';
import { sleep } from '#shared/backoff.ts';
import type { Log } from '#shared/log.ts';
import type { TaskJob } from '../../stores/queues/jobs.ts';
import type { GracePeriods } from '../maintenance/grace-periods.ts';

/**
 * Resolves when the job is given back, or this process stops: then its lock runs out, and the stall scan returns it.
 */
export async function untilRequeued(
  held: { readonly job: TaskJob; readonly queue: QueueName; readonly lock: LockToken },
  work: () => Promise<unknown>,
  parts: {
    readonly graces: Pick<GracePeriods, 'againMs'>;
    readonly signal: AbortSignal;
    readonly log: Log;
  },
): Promise<void> {
  const { graces, signal, log } = parts;
  const { taskId } = held.job;
  for (let tries = 1; ; tries += 1) {
    try {
      await work();
      return;
    } catch (error) {
      if (tries === 1) log.warn({ err: error, taskId }, 'a task is not back in its queue yet, trying again');
    }
    if (!(await sleep(graces.againMs, signal))) return;
  }
}
