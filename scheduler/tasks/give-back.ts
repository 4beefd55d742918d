// A job that goes back to its queue goes there also when Redis is away for a moment: it is tried again until Redis answers. Each step of it is fenced by the lock token, so repeating one changes nothing.
import type { TaskId } from '#shared/domain/ids.ts';
import { sleep } from '#shared/backoff.ts';
import type { Log } from '#shared/log.ts';

const TRIES = 60;
const TRY_AGAIN_MS = 500;

/** Half a minute at most. @returns false: not given back; its lock runs out and the stall scan returns it */
export async function untilGivenBack(
  taskId: TaskId,
  work: () => Promise<unknown>,
  parts: { readonly signal: AbortSignal; readonly log: Log },
): Promise<boolean> {
  for (let tries = 1; tries <= TRIES; tries += 1) {
    try {
      await work();
      return true;
    } catch (error) {
      if (tries === 1) parts.log.warn({ err: error, taskId }, 'a task is not back in its queue yet, trying again');
    }
    if (!(await sleep(TRY_AGAIN_MS, parts.signal))) return false;
  }
  parts.log.error({ taskId }, 'task not given back; its lock runs out and the scan returns it');
  return false;
}
