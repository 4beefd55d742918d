// Conversion of ticks to tasks. The leader calls `check` when the time of a schedule has come. `check` reads
// how far the schedule has come, and commits the rows of all ticks since then together with its progress.
// Invariants: a tick has exactly one task, whose id follows from deployment and tick. A stopped
// deployment makes none from the moment its stop is committed. A task that is committed here but not queued, because
// this process died, is queued by the leader (maintenance/missing-jobs.ts).
import type { Clock } from '#shared/clock.ts';
import { tickTaskId } from '#shared/domain/ids.ts';
import type { DeploymentId, QueueName } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { Target } from '../../domain/stub-config.ts';
import type { Db } from '../../stores/store/db.ts';
import { advanceSchedule, MOST_AHEAD_MS, scheduleById } from '../../stores/store/queries/schedules.ts';
import { insertAcceptedTasks } from '../../stores/store/queries/tasks.ts';
import { acceptedTaskOf } from '../records/recording.ts';
import type { CommitFirst } from '../admission/commit-first.ts';
import type { Submissions } from '../admission/submissions.ts';
import { decideTicks, MOST_AT_ONCE } from './decide.ts';
import type { ScheduleMetrics } from './metrics.ts';
import { Ticks } from '../../domain/ticks.ts';

export interface TickerParts {
  readonly db: Db;
  readonly newJob: Submissions['newJob'];
  readonly tasks: Pick<CommitFirst, 'begin' | 'notCommitted' | 'queue'>;
  readonly targetOf: (deploymentId: DeploymentId) => Target | undefined | Promise<Target | undefined>;
  /** Number of tasks that wait, are delayed or run. */
  readonly depthOf: (queue: QueueName) => Promise<number>;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: ScheduleMetrics;
}

/** Result of a look. `nextMs`: time of the next look; null: the schedule is not active (any more). */
export type Looked = { readonly nextMs: number | null };

export class Ticker {
  readonly #parts: TickerParts;
  /** Looks under way, at most one for each schedule. */
  readonly #underWay = new Map<DeploymentId, Promise<Looked>>();

  constructor(parts: TickerParts) {
    this.#parts = parts;
  }

  /**
   * Makes the tasks of all ticks up to now.
   * @throws when a store does not answer: nothing was made, or the next look finds the tasks made
   */
  check(deploymentId: DeploymentId): Promise<Looked> {
    const underWay = this.#underWay.get(deploymentId);
    if (underWay !== undefined) return underWay;
    const look = this.#check(deploymentId).finally(() => this.#underWay.delete(deploymentId));
    this.#underWay.set(deploymentId, look);
    return look;
  }

  async #check(deploymentId: DeploymentId): Promise<Looked> {
    const { db, clock, log, metrics, tasks } = this.#parts;
    const row = await scheduleById(db, deploymentId);
    if (row === undefined) return { nextMs: null };
    const ticks = new Ticks(row);
    // A replica whose clock is ahead would use up ticks for all replicas, and
    // no other makes those that it skips. So the database's clock bounds it.
    const nowMs = Math.min(clock.nowMs(), row.databaseNowMs + MOST_AHEAD_MS);
    const next = (afterMs: number): Looked => ({ nextMs: ticks.next(afterMs) ?? null });
    const due = ticks.between(row.tickedToMs, nowMs, MOST_AT_ONCE);
    if (due.ticks.length === 0) return next(Math.max(nowMs, row.tickedToMs));
    const target = await this.#parts.targetOf(deploymentId);
    if (target === undefined) return { nextMs: null };
    const room = target.config.maxPendingTasks - (await this.#parts.depthOf(target.queue));
    const decision = decideTicks(due, room);
    if (decision.kind === 'nothing_due') return next(nowMs);
    const jobs = decision.ticks.map((tickMs) => this.#parts.newJob(target, tickTaskId(deploymentId, tickMs)));
    tasks.begin(jobs);
    const made = await db
      .transaction(async (tx) => {
        if (!(await advanceSchedule(tx, deploymentId, row.tickedToMs, decision.tickedToMs))) return false;
        await insertAcceptedTasks(
          tx,
          jobs.map((job) => acceptedTaskOf(job, target.queue)),
        );
        return true;
      })
      .catch((error: unknown) => {
        tasks.notCommitted(target.queue, jobs, error);
        throw error;
      });
    if (!made) tasks.notCommitted(target.queue, jobs);
    // Another replica was faster, or the deployment was stopped: the next look finds out.
    if (!made) return next(row.tickedToMs);
    for (const tickMs of decision.ticks) metrics.lag.observe(Math.max(0, clock.nowMs() - tickMs) / 1000);
    metrics.ticks.inc({ result: 'task' }, jobs.length);
    const { tooOld, queueFull } = decision;
    if (tooOld + queueFull > 0) {
      metrics.ticks.inc({ result: 'too_old' }, tooOld);
      metrics.ticks.inc({ result: 'queue_full' }, queueFull);
      log.warn({ deploymentId, tooOld, queueFull }, 'ticks of a schedule were skipped');
    }
    for (const job of jobs) tasks.queue(target, job);
    return next(nowMs);
  }
}
