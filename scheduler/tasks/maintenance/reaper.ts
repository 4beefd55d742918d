// Reaper of attempts whose lease ran out: their machine talks, but its heartbeats no longer name them.
// Asynchronous tasks go back to their queue by the token that holds them; synchronous ones end as lost.
// Each replica handles the attempts of the machines linked to it. Attempts on a silent machine wait for
// its report or its loss. After a start nothing is lost for a while, because agents report first.
// Invariant: only monotonic time counts. No attempt is lost within one
// lease of a stall of this process, in which heartbeats were not read.
import { sleep } from '#shared/backoff.ts';
import type { Attempt } from '../dispatch/attempts.ts';
import type { LiveReport } from '../completion/reports.ts';
import type { TaskContext } from '../task-parts.ts';

const LOOK_EVERY_MS = 5_000;
/** Heartbeats in a row that must miss an attempt before it is lost. */
const HEARTBEATS = 6;

export class Reaper {
  readonly #tasks: TaskContext;
  #startedAtMs = 0;

  constructor(tasks: TaskContext) {
    this.#tasks = tasks;
  }

  start(): void {
    this.#startedAtMs = this.#tasks.clock.monotonicMs();
    void this.#loop();
  }

  async #loop(): Promise<void> {
    const { graces, signal } = this.#tasks;
    while (await sleep(Math.min(LOOK_EVERY_MS, graces.leaseMs), signal)) await this.look();
  }

  /** Renews the attempts that a heartbeat names. The token of one attempt does not renew another's lease. */
  seen(live: readonly LiveReport[]): void {
    const { attempts, clock } = this.#tasks;
    const seenAtMs = clock.monotonicMs();
    const nowMs = clock.nowMs();
    for (const { taskId, token } of live) {
      const attempt = attempts.find(taskId, token);
      if (attempt === undefined) continue;
      attempt.seenAtMs = seenAtMs;
      attempt.startedAtMs ??= nowMs;
    }
  }

  /** Runs one round over the attempts of machines that talk. */
  async look(): Promise<void> {
    const { attempts, clock, graces, completion, metrics, log, sinceStallMs } = this.#tasks;
    const nowMs = clock.monotonicMs();
    if (nowMs - this.#startedAtMs < graces.silentMs) return;
    const heardForMs = sinceStallMs();
    for (const attempt of [...attempts.all()]) {
      if (attempt.ending !== undefined || attempt.container?.link === undefined) continue;
      const leaseMs = this.#leaseMs(attempt);
      if (nowMs - attempt.seenAtMs < leaseMs || heardForMs < leaseMs) continue;
      const { taskId } = attempt.job;
      metrics.attemptsLost.inc({ reason: 'lease_ran_out' });
      log.warn({ taskId, containerId: attempt.containerId }, 'an attempt is not heard of any more');
      try {
        await completion.abandon(attempt);
      } catch (error) {
        log.warn({ err: error, taskId }, 'an attempt that is not heard of could not be ended, trying again');
      }
    }
  }

  /**
   * Lease of the attempt in milliseconds, which follows the heartbeat interval
   * that the agent was told. Large fleets send heartbeats less often.
   */
  #leaseMs({ container }: Attempt): number {
    return Math.max(this.#tasks.graces.leaseMs, HEARTBEATS * (container?.link?.heartbeatIntervalMs ?? 0));
  }
}
