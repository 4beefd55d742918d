// Attempts whose lease ran out: their machine talks, and its heartbeats do not name them any more. Asynchronous tasks go back to their queue by the token that holds them, synchronous ones end as lost.
// Each replica sees to the attempts of the machines linked to it; what a machine that does not talk may still have waits for its report or its loss. Silent for a while after a start: agents report first.
import { sleep } from '#shared/backoff.ts';
import type { LiveReport } from './reports.ts';
import type { TaskContext } from './task-parts.ts';

const LOOK_EVERY_MS = 5_000;

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

  /** A heartbeat: these its machine still has. A lease that counts for one attempt is not renewed by another's token. */
  seen(live: readonly LiveReport[]): void {
    const nowMs = this.#tasks.clock.nowMs();
    for (const { taskId, token } of live) {
      const attempt = this.#tasks.attempts.find(taskId, token);
      if (attempt === undefined) continue;
      attempt.seenAtMs = nowMs;
      attempt.startedAtMs ??= nowMs;
    }
  }

  /** One round over the attempts of machines that talk. */
  async look(): Promise<void> {
    const { attempts, clock, graces, ender, metrics, log } = this.#tasks;
    if (clock.monotonicMs() - this.#startedAtMs < graces.silentMs) return;
    const seenBeforeMs = clock.nowMs() - graces.leaseMs;
    for (const attempt of [...attempts.all()]) {
      if (attempt.ending !== undefined || attempt.seenAtMs > seenBeforeMs) continue;
      if (attempt.container?.link === undefined) continue;
      const { taskId } = attempt.job;
      metrics.attemptsLost.inc({ reason: 'lease_ran_out' });
      log.warn({ taskId, containerId: attempt.containerId }, 'an attempt is not heard of any more');
      try {
        await ender.abandon(attempt);
      } catch (error) {
        log.warn({ err: error, taskId }, 'an attempt that is not heard of could not be ended, trying again');
      }
    }
  }
}
