// Reaper of attempts whose lease ran out: their machine talks, but its heartbeats no longer name them.
// Asynchronous tasks go back to their queue by the token that holds them; synchronous ones end as lost.
// Each replica handles the attempts of the machines linked to it. Attempts on a silent machine wait for
// its report or its loss. After a start nothing is lost for a while, because agents report first.
// Invariant: only monotonic time counts. No attempt is lost within one
// lease of a stall of this process, in which heartbeats were not read.
import { sleep } from '#shared/backoff.ts';
import type { Clock } from '#shared/clock.ts';
import type { Log } from '#shared/log.ts';
import type { Completion } from '../completion/completion.ts';
import type { Attempt, Attempts } from '../dispatch/attempts.ts';
import type { TaskMetrics } from '../metrics.ts';
import type { GracePeriods } from './grace-periods.ts';

const LOOK_EVERY_MS = 5_000;
/** Heartbeats in a row that must miss an attempt before it is lost. */
const HEARTBEATS = 6;

export interface ReaperParts {
  readonly attempts: Pick<Attempts, 'all'>;
  readonly completion: Pick<Completion, 'abandon'>;
  readonly graces: Pick<GracePeriods, 'leaseMs' | 'silentMs'>;
  /** Milliseconds since this process last stood still. */
  readonly sinceStallMs: () => number;
  readonly clock: Clock;
  readonly metrics: Pick<TaskMetrics, 'attemptsLost'>;
  readonly log: Log;
  readonly signal: AbortSignal;
}

export class Reaper {
  readonly #parts: ReaperParts;
  #startedAtMs = 0;

  constructor(parts: ReaperParts) {
    this.#parts = parts;
  }

  start(): void {
    this.#startedAtMs = this.#parts.clock.monotonicMs();
    void this.#loop();
  }

  async #loop(): Promise<void> {
    const { graces, signal } = this.#parts;
    while (await sleep(Math.min(LOOK_EVERY_MS, graces.leaseMs), signal)) await this.check();
  }

  /** Runs one round over the attempts of machines that talk. */
  async check(): Promise<void> {
    const { attempts, clock, graces, completion, metrics, log, sinceStallMs } = this.#parts;
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
    return Math.max(this.#parts.graces.leaseMs, HEARTBEATS * (container?.link?.heartbeatIntervalMs ?? 0));
  }
}
