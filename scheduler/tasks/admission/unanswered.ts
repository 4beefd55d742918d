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
/** Tasks that are looked at together: their rows are read by one statement. */
const TOGETHER = 500;

interface Unknown {
  readonly queue: QueueName;
  /** The job without its input. */
  readonly job: Pick<TaskJob, 'taskId' | 'inputObjectId'>;
  readonly claim?: KeyClaim | undefined;
  /** Whether the task is queued if it was committed: a tick of a schedule, or a task that stands for a dead one. */
  readonly isPromised?: boolean;
  /** When the database first said that there is no row. */
  absentSinceMs: number | undefined;
}

export interface UnansweredParts {
  readonly queueing: Pick<Queueing, 'add' | 'drop'>;
  readonly changes: Pick<Changes, 'applied'>;
  readonly completion: Pick<Completion, 'dropInput'>;
  readonly idempotencyKeys?: Pick<IdempotencyKeys, 'releaseUncommitted'> | undefined;
  /** Reads tasks from their rows, in any order. */
  readonly rowsOf: (taskIds: readonly TaskId[]) => Promise<readonly TaskRecord[]>;
  /** Reads the queue entries of those asynchronous tasks that have not ended from their rows, the oldest first. */
  readonly jobsOf: (taskIds: readonly TaskId[]) => Promise<readonly string[]>;
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
        const open = [...this.#open.values()];
        for (let at = 0; at < open.length; at += TOGETHER) await this.#look(open.slice(at, at + TOGETHER));
      } catch (error) {
        log.info({ err: error, tasks: this.#open.size }, 'it is not known yet whether tasks were recorded');
      }
    }
    this.#isLooking = false;
  }

  /** Settles those tasks of which the database knows by now. @throws when it does not answer */
  async #look(some: readonly Unknown[]): Promise<void> {
    const { idempotencyKeys, rowsOf } = this.#parts;
    const committed: Unknown[] = [];
    const keyless: Unknown[] = [];
    for (const unknown of some) {
      if (unknown.claim === undefined) keyless.push(unknown);
      // A key that is released is not accepted any more: a later commit of its task writes nothing.
      else if ((await idempotencyKeys?.releaseUncommitted(unknown.claim)) !== false) this.#over(unknown);
      else committed.push(unknown);
    }
    const rows = new Map((await rowsOf(idsOf(keyless))).map((row) => [row.taskId, row]));
    const cancels: Promise<void>[] = [];
    for (const unknown of keyless) {
      const row = rows.get(unknown.job.taskId);
      if (row === undefined) this.#absent(unknown);
      // A leader that took this process for dead may have queued it, and a container may have it.
      else if (row.rank > 0) this.#known(unknown);
      else if (unknown.isPromised === true) committed.push(unknown);
      else cancels.push(this.#cancel(unknown, row));
    }
    await Promise.all([this.#queue(committed), ...cancels]);
  }

  /** There is no row. It may still come for a while. */
  #absent(unknown: Unknown): void {
    const { clock, latestMs = LATEST_MS } = this.#parts;
    unknown.absentSinceMs ??= clock.monotonicMs();
    if (clock.monotonicMs() - unknown.absentSinceMs > latestMs) this.#over(unknown);
  }

  async #queue(committed: readonly Unknown[]): Promise<void> {
    const { queueing, jobsOf } = this.#parts;
    if (committed.length === 0) return;
    const jobs = new Map((await jobsOf(idsOf(committed))).map(parseTaskJob).map((job) => [job.taskId, job]));
    const queues = new Map(committed.map(({ queue, job }) => [job.taskId, queue]));
    for (const [taskId, job] of jobs) {
      const queue = queues.get(taskId);
      if (queue !== undefined) queueing.add(queue, { ...job, isFromRow: true });
    }
    for (const unknown of committed) {
      if (jobs.has(unknown.job.taskId)) this.#open.delete(unknown.job.taskId);
      else this.#known(unknown);
    }
  }

  async #cancel(unknown: Unknown, row: TaskRecord): Promise<void> {
    const { changes, clock } = this.#parts;
    await changes.applied(row.status, 'cancel', {
      ...row,
      status: 'CANCELLED',
      rank: RANK.CANCELLED as RecordRank,
      endedAtMs: clock.nowMs(),
      failureReason: 'not_accepted',
    });
    this.#over(unknown);
  }

  /** The task needs nothing from here. */
  #known({ job }: Unknown): void {
    this.#parts.queueing.drop(job.taskId);
    this.#open.delete(job.taskId);
  }

  #over(unknown: Unknown): void {
    this.#known(unknown);
    this.#parts.completion.dropInput(unknown.job);
  }
}

const idsOf = (some: readonly Unknown[]): readonly TaskId[] => some.map(({ job }) => job.taskId);
