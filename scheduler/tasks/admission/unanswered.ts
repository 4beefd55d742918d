// Commits of asynchronous tasks that were not answered: by a deadline, or a lost connection. Their callers were told
// that nothing was recorded, and have no id. Later the rows tell. A row that is there all the same ends as CANCELLED,
// untouched; a key that was accepted with its row keeps its task, because other callers with the key may have the id.
// When this process dies first, the leader queues what was committed, and it runs once, its id untold.
import type { QueueName, TaskId } from '#shared/domain/ids.ts';
import { backoffMs, sleep } from '#shared/backoff.ts';
import type { Clock } from '#shared/clock.ts';
import type { Log } from '#shared/log.ts';
import { parseTaskJob } from '../../stores/queues/jobs.ts';
import type { TaskJob } from '../../stores/queues/jobs.ts';
import { DEADLINES } from '../../stores/store/limits.ts';
import type { Completion } from '../completion/completion.ts';
import type { Changes } from '../records/changes.ts';
import type { RecordRank, TaskRecord } from '../records/task-record.ts';
import { RANK } from '../state.ts';
import type { KeyClaim } from './idempotency.ts';
import type { IdempotencyKeys } from './idempotency-keys.ts';
import type { Queueing } from './queueing.ts';

const BACKOFF = { baseMs: 200, capMs: 10_000, floorMs: 50 };
/** Time after an answer of the database in which an earlier statement may take effect: it has a deadline there. */
const LATEST_MS = DEADLINES.queryMs + 5_000;
const MOST = 10_000;

interface Unknown {
  readonly queue: QueueName;
  /** The job without its input. */
  readonly job: Pick<TaskJob, 'taskId' | 'inputObjectId'>;
  readonly claim?: KeyClaim | undefined;
  /** Whether the task is queued if it was committed: a tick of a schedule. */
  readonly isPromised?: boolean;
  /** When the database first said that there is no row. */
  absentSinceMs: number | undefined;
}

export interface UnansweredParts {
  readonly queueing: Pick<Queueing, 'add' | 'drop'>;
  readonly changes: Pick<Changes, 'applied'>;
  readonly completion: Pick<Completion, 'dropInput'>;
  readonly idempotencyKeys?: Pick<IdempotencyKeys, 'releaseUncommitted'> | undefined;
  /** Reads the task from its row. */
  readonly rowOf: (taskId: TaskId) => Promise<TaskRecord | undefined>;
  /** Reads the queue entry of an asynchronous task that has not ended from its row. */
  readonly jobOf: (taskId: TaskId) => Promise<string | undefined>;
  readonly clock: Clock;
  readonly log: Log;
  readonly signal: AbortSignal;
  readonly latestMs?: number;
}

export class Unanswered {
  readonly #parts: UnansweredParts;
  readonly #open = new Map<TaskId, Unknown>();
  #isLooking = false;

  constructor(parts: UnansweredParts) {
    this.#parts = parts;
  }

  note(queue: QueueName, { taskId, inputObjectId }: TaskJob, how: Pick<Unknown, 'claim' | 'isPromised'>): void {
    const { claim } = how;
    // The key of a task that may be committed stays until that is known.
    if (claim !== undefined) claim.isWithdrawn = true;
    if (this.#open.size >= MOST) {
      this.#parts.log.error({ taskId }, 'nobody looks whether a task was recorded: too many were not answered');
      this.#parts.queueing.drop(taskId);
      return;
    }
    const job = { taskId, ...(inputObjectId === undefined ? {} : { inputObjectId }) };
    this.#open.set(taskId, { ...how, queue, job, absentSinceMs: undefined });
    if (!this.#isLooking) void this.#untilKnown();
  }

  async #untilKnown(): Promise<void> {
    const { signal, log } = this.#parts;
    this.#isLooking = true;
    for (let tries = 0; this.#open.size > 0 && (await sleep(backoffMs(tries, BACKOFF), signal)); tries += 1) {
      try {
        for (const unknown of [...this.#open.values()])
          if (await this.#settled(unknown)) this.#open.delete(unknown.job.taskId);
      } catch (error) {
        log.info({ err: error, tasks: this.#open.size }, 'it is not known yet whether tasks were recorded');
      }
    }
    this.#isLooking = false;
  }

  /** @returns false: the commit may still come. @throws when the database does not answer */
  async #settled(unknown: Unknown): Promise<boolean> {
    const { queueing, changes, completion, idempotencyKeys, rowOf, jobOf, clock, latestMs = LATEST_MS } = this.#parts;
    const { queue, job, claim, isPromised } = unknown;
    const { taskId } = job;
    const isQueued = async (): Promise<true> => {
      const text = await jobOf(taskId);
      if (text === undefined) queueing.drop(taskId);
      else queueing.add(queue, { ...parseTaskJob(text), isFromRow: true });
      return true;
    };
    const isOver = (): true => {
      queueing.drop(taskId);
      completion.dropInput(job);
      return true;
    };
    if (claim !== undefined) {
      // A key that is released is not accepted any more: a later commit of its task writes nothing.
      return (await idempotencyKeys?.releaseUncommitted(claim)) === false ? await isQueued() : isOver();
    }
    const row = await rowOf(taskId);
    if (row === undefined) {
      unknown.absentSinceMs ??= clock.monotonicMs();
      return clock.monotonicMs() - unknown.absentSinceMs > latestMs && isOver();
    }
    // A leader that took this process for dead may have queued it, and a container may have it.
    if (row.rank > 0) {
      queueing.drop(taskId);
      return true;
    }
    if (isPromised === true) return await isQueued();
    await changes.applied(row.status, 'cancel', {
      ...row,
      status: 'CANCELLED',
      rank: RANK.CANCELLED as RecordRank,
      endedAtMs: clock.nowMs(),
      failureReason: 'not_accepted',
    });
    return isOver();
  }
}
