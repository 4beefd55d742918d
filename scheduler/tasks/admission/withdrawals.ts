// Withdrawal of synchronous tasks whose add was not answered: their job may be in its queue. Nobody waits for them, so
// a fetch ends them; until then they count. The job is taken out once Redis answers, and the key of its call released.
import type { QueueName } from '#shared/domain/ids.ts';
import { backoffMs, sleep } from '#shared/backoff.ts';
import type { Log } from '#shared/log.ts';
import type { TaskJob } from '../../stores/queues/jobs.ts';
import type { TaskQueues } from '../../stores/queues/task-queues.ts';
import type { Completion } from '../completion/completion.ts';
import type { TaskRecords } from '../records/records.ts';
import type { KeyClaim } from './idempotency.ts';
import type { IdempotencyKeys } from './idempotency-keys.ts';

const BACKOFF = { baseMs: 200, capMs: 10_000, floorMs: 50 };
const MOST_UNDER_WAY = 10_000;

export interface WithdrawalsParts {
  readonly queues: Pick<TaskQueues, 'read' | 'remove'>;
  readonly records: Pick<TaskRecords, 'read'>;
  readonly completion: Pick<Completion, 'dropInput'>;
  readonly idempotencyKeys?: Pick<IdempotencyKeys, 'release'> | undefined;
  readonly log: Log;
  readonly signal: AbortSignal;
}

export class Withdrawals {
  readonly #parts: WithdrawalsParts;
  #underWay = 0;

  constructor(parts: WithdrawalsParts) {
    this.#parts = parts;
  }

  withdraw(queue: QueueName, job: TaskJob, claim: KeyClaim | undefined): void {
    // The key of a task that may run stays until the job is out.
    if (claim !== undefined) claim.isWithdrawn = true;
    if (this.#underWay >= MOST_UNDER_WAY) {
      this.#parts.log.error({ taskId: job.taskId }, 'a task that was not accepted is not taken out: too many are');
      return;
    }
    this.#underWay += 1;
    void this.#untilOut(queue, job, claim).finally(() => (this.#underWay -= 1));
  }

  async #untilOut(queue: QueueName, job: TaskJob, claim: KeyClaim | undefined): Promise<void> {
    const { queues, records, completion, idempotencyKeys, log, signal } = this.#parts;
    let isOut = false;
    for (let tries = 1; ; tries += 1) {
      try {
        isOut ||= await queues.remove(queue, job.taskId);
        // A container may have the task: then the key stays the task's.
        const isKnown = async (): Promise<boolean> =>
          (await queues.read(queue, job.taskId)) !== undefined || (await records.read(job.taskId)) !== undefined;
        if (claim !== undefined && (isOut || !(await isKnown()))) await idempotencyKeys?.release(claim);
        if (isOut) completion.dropInput(job);
        return;
      } catch (error) {
        log.info({ err: error, taskId: job.taskId }, 'a task that was not accepted could not be taken out yet');
      }
      if (!(await sleep(backoffMs(tries, BACKOFF), signal))) return;
    }
  }
}
