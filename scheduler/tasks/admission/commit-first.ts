// Acceptance of asynchronous tasks. A place in the queue is counted, the row is committed with its job, its key and its
// owner, the id is told, and in the same tick the job is on its way to the queue. Nothing is undone: a task that is
// refused has neither a row nor a job, unless its commit was not answered (unanswered.ts). Redis may be away meanwhile.
import type { QueueName } from '#shared/domain/ids.ts';
import { Listeners } from '#shared/listeners.ts';
import type { Log } from '#shared/log.ts';
import type { Target } from '../../domain/stub-config.ts';
import type { TaskJob } from '../../stores/queues/jobs.ts';
import { hadNoEffect } from '../../stores/store/limits.ts';
import type { Changes } from '../records/changes.ts';
import { acceptedRecordOf, acceptedTaskOf } from '../records/recording.ts';
import type { Completion } from '../completion/completion.ts';
import type { TaskMetrics } from '../metrics.ts';
import type { Commits } from './accepting.ts';
import type { Submission } from './calls.ts';
import type { KeyClaim } from './idempotency.ts';
import type { PendingBound, Place } from './pending-bound.ts';
import type { Queueing } from './queueing.ts';
import type { Unanswered } from './unanswered.ts';

/** Seconds after which a call that the database did not take may come again. */
const RETRY_AFTER_S = 5;

export interface CommitFirstParts {
  readonly commits: Pick<Commits, 'commit' | 'isStalled'>;
  readonly bound: Pick<PendingBound, 'take'>;
  readonly queueing: Pick<Queueing, 'hasRoom' | 'begin' | 'drop' | 'add'>;
  readonly unanswered: Pick<Unanswered, 'note'>;
  readonly changes: Pick<Changes, 'accept'>;
  readonly completion: Pick<Completion, 'dropInput'>;
  readonly metrics: Pick<TaskMetrics, 'throttled'>;
  readonly log: Log;
}

export class CommitFirst {
  readonly #parts: CommitFirstParts;
  readonly #accepted = new Listeners<[TaskJob, QueueName]>();
  readonly #depth = new Listeners<[Target, number]>();

  constructor(parts: CommitFirstParts) {
    this.#parts = parts;
  }

  /** Told when a task's row is committed, for the leader's heap of deadlines. */
  onAccepted(listener: (job: TaskJob, queue: QueueName) => void): void {
    this.#accepted.add(listener);
  }

  /** Told when a queue grew. */
  onDepth(listener: (target: Target, depth: number) => void): void {
    this.#depth.add(listener);
  }

  /** Reason why no task is taken now; undefined: tasks are taken. */
  refusal(): Submission | undefined {
    const { commits, queueing, metrics } = this.#parts;
    const isStalled = commits.isStalled();
    if (!isStalled && queueing.hasRoom()) return undefined;
    metrics.throttled.inc({ resource: isStalled ? 'commits' : 'waiting_adds' });
    const reason = isStalled ? 'commits_failing' : 'adds_waiting';
    return { kind: 'unavailable', reason, retryAfterSeconds: RETRY_AFTER_S };
  }

  /**
   * Accepts a task.
   * @param claim - the key that is to be this task's
   * @returns undefined: it is accepted
   */
  async accept(
    target: Target,
    job: TaskJob,
    maxPendingTasks: number,
    claim: KeyClaim | undefined,
  ): Promise<Submission | undefined> {
    const { bound, queueing, completion, metrics } = this.#parts;
    const { queue } = target;
    queueing.begin(job);
    const place = await bound.take(queue, maxPendingTasks);
    const committed = place === undefined ? 'no' : await this.#commit(queue, job, claim);
    if (committed === 'yes') {
      this.queue(target, job, place);
      return undefined;
    }
    place?.free();
    if (committed === 'no') {
      queueing.drop(job.taskId);
      completion.dropInput(job);
    }
    if (place !== undefined) return { kind: 'unavailable', reason: 'not_recorded', retryAfterSeconds: RETRY_AFTER_S };
    metrics.throttled.inc({ resource: 'pending_tasks' });
    return { kind: 'queue_full', maxPendingTasks };
  }

  async #commit(queue: QueueName, job: TaskJob, claim: KeyClaim | undefined): Promise<'yes' | 'no' | 'unknown'> {
    const { commits, unanswered, log } = this.#parts;
    try {
      if (await commits.commit(acceptedTaskOf(job, queue), claim)) return 'yes';
      log.warn({ queue }, 'the idempotency key of a task, or the dead task it stands for, is taken by now');
      return 'no';
    } catch (error) {
      log.warn({ err: error, queue }, 'task could not be recorded');
      if (hadNoEffect(error)) return 'no';
      // The dead task that it stands for may be dead no more.
      unanswered.note(queue, job, { claim, isPromised: job.redrivenFrom !== undefined });
      return 'unknown';
    }
  }

  /** Rows of tasks without callers are about to be committed. They end with {@link queue} or {@link notCommitted}. */
  begin(jobs: readonly TaskJob[]): void {
    for (const job of jobs) this.#parts.queueing.begin(job);
  }

  /** @param error - of their commit; absent: nothing was committed */
  notCommitted(queue: QueueName, jobs: readonly TaskJob[], error?: unknown): void {
    const { unanswered, queueing } = this.#parts;
    const isUnknown = error !== undefined && !hadNoEffect(error);
    for (const job of jobs) {
      if (isUnknown) unanswered.note(queue, job, { isPromised: true });
      else queueing.drop(job.taskId);
    }
  }

  /** Queues a task whose row is committed. A task that is over by then leaves its queue, or is ended at its fetch. */
  queue(target: Target, job: TaskJob, place?: Place): void {
    const { changes, queueing } = this.#parts;
    const { queue } = target;
    queueing.add(queue, job, () => this.#depth.tell(target, place?.added() ?? 1));
    changes.accept(acceptedRecordOf(job, queue));
    this.#accepted.tell(job, queue);
  }
}
