// Attempts that were handed over and never started, because an agent lost them. Past the claim
// timeout an asynchronous task goes back to its queue, and no budget is touched. A synchronous
// task must not run twice, so it goes back only when its agent says that it never began. While the
// machine is silent nothing is decided here: its report after the reconnect, or its loss, decides.
// Invariant: only monotonic time counts. A stall of this process, in
// which starts were not read, is followed by one whole claim timeout.
import { sleep } from '#shared/backoff.ts';
import type { Clock } from '#shared/clock.ts';
import type { Log } from '#shared/log.ts';
import type { Completion } from '../completion/completion.ts';
import type { Attempt, Attempts } from '../dispatch/attempts.ts';
import type { TaskMetrics } from '../metrics.ts';
import type { GracePeriods } from './grace-periods.ts';

const LOOK_EVERY_MS = 1_000;

export interface StartDeadlineParts {
  readonly attempts: Pick<Attempts, 'all' | 'current'>;
  readonly completion: Pick<Completion, 'takeBack' | 'abandon'>;
  readonly graces: Pick<GracePeriods, 'claimMs' | 'claimAnswerMs'>;
  /** Milliseconds since this process last stood still. */
  readonly sinceStallMs: () => number;
  readonly clock: Clock;
  readonly metrics: Pick<TaskMetrics, 'attemptsLost'>;
  readonly log: Log;
  readonly signal: AbortSignal;
}

export class StartDeadline {
  readonly #parts: StartDeadlineParts;

  constructor(parts: StartDeadlineParts) {
    this.#parts = parts;
  }

  start(): void {
    void this.#loop();
  }

  async #loop(): Promise<void> {
    const { graces, signal } = this.#parts;
    while (await sleep(Math.min(LOOK_EVERY_MS, graces.claimMs), signal)) this.check();
  }

  /** Runs one round over attempts that are claimed and did not start. */
  check(): void {
    const { attempts, clock, graces, sinceStallMs } = this.#parts;
    if (sinceStallMs() < graces.claimMs) return;
    const handedBeforeMs = clock.monotonicMs() - graces.claimMs;
    for (const attempt of attempts.all()) {
      if (attempt.startedAtMs !== null || attempt.ending !== undefined || attempt.unclaimed) continue;
      if (attempt.handedOverAtMs > handedBeforeMs || attempt.container?.link === undefined) continue;
      void this.#unclaimed(attempt).catch((error: unknown) => {
        this.#parts.log.warn({ err: error, taskId: attempt.job.taskId }, 'a task that did not start stays where it is');
      });
    }
  }

  async #unclaimed(attempt: Attempt): Promise<void> {
    const { attempts, completion, graces, log, metrics, signal } = this.#parts;
    const { taskId, sync } = attempt.job;
    attempt.unclaimed = true;
    metrics.attemptsLost.inc({ reason: 'not_claimed' });
    log.warn(
      { taskId, containerId: attempt.containerId, machineId: attempt.machineId },
      'a task did not start in time',
    );
    if (!sync) {
      await completion.takeBack(attempt, 'not_claimed');
      return;
    }
    // An agent that does not know the attempt says so, and the task is queued again; an agent that has it ends it.
    attempt.container?.link?.cancel(taskId, attempt.token, 'superseded');
    if (!(await sleep(graces.claimAnswerMs, signal))) return;
    if (attempts.current(taskId) === attempt && attempt.ending === undefined) await completion.abandon(attempt);
  }
}
