// A job that goes back to its queue goes there also when Redis is away: it is tried again until Redis answers. Each step of it is fenced by the lock token, so repeating one changes nothing.
// Bounded by the slots of containers: each one that waits here holds one.
import type { LockToken, QueueName } from '#shared/domain/ids.ts';
import { sleep } from '#shared/backoff.ts';
import type { Log } from '#shared/log.ts';
import type { TaskJob } from '../queues/jobs.ts';
import type { TaskQueues } from '../queues/task-queues.ts';
import type { TaskGraces } from './graces.ts';

/** Resolves when it is given back, or this process stops: its lock runs out then, and the stall scan returns it. */
export async function untilGivenBack(
  held: { readonly job: TaskJob; readonly queue: QueueName; readonly lock: LockToken },
  work: () => Promise<unknown>,
  parts: {
    readonly queues: Pick<TaskQueues, 'letGo'>;
    readonly graces: Pick<TaskGraces, 'againMs'>;
    readonly signal: AbortSignal;
    readonly log: Log;
  },
): Promise<void> {
  const { queues, graces, signal, log } = parts;
  const { taskId } = held.job;
  for (let tries = 1; ; tries += 1) {
    try {
      await work();
      return;
    } catch (error) {
      // A caller whose task waits in line again can leave, and its wait limit counts.
      if (queues.letGo(held.queue, taskId, held.lock)) return;
      if (tries === 1) log.warn({ err: error, taskId }, 'a task is not back in its queue yet, trying again');
    }
    if (!(await sleep(graces.againMs, signal))) return;
  }
}
