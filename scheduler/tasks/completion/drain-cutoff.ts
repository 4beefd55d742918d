// Return of tasks whose container is past the deadline of a drain, or leaves for another one and had its notice.
// Asynchronous tasks go back to their queue, superseded, without waiting for the container's end, which may take long
// or never come. A synchronous task cannot run again, so it keeps the time that the stop leaves it. A task that was
// given back for other containers often enough is shielded: it runs to its end. An operator may have calls end, too:
// then the container is stopped after the notice. Every second the check repeats, because attempts of another process
// may be adopted later. While a machine is silent nothing changes.
import type { ContainerId } from '#shared/domain/ids.ts';
import { repeat } from '#shared/backoff.ts';
import type { Clock } from '#shared/clock.ts';
import type { Log } from '#shared/log.ts';
import type { Attempt, Attempts } from '../dispatch/attempts.ts';
import type { TaskMetrics } from '../metrics.ts';
import { MOST_PREEMPTIONS } from '../state.ts';
import type { Completion } from './completion.ts';

const LOOK_EVERY_MS = 1_000;

export interface DrainCutoffParts {
  readonly attempts: Pick<Attempts, 'all' | 'ofContainer'>;
  readonly completion: Pick<Completion, 'abandon' | 'preempt'>;
  /**
   * Whether the container's attempts must end now: its machine's drain is past its deadline, and the agent is linked.
   */
  readonly isCutOff: (containerId: ContainerId) => boolean;
  /** Whether the container leaves for another one, and its agent is linked. */
  readonly isPreempted: (containerId: ContainerId) => boolean;
  /** Whether calls of such a container end with the notice, too, because an operator said so. */
  readonly endsCalls: (containerId: ContainerId) => boolean;
  /** Stops a container that has calls still. */
  readonly stopContainer: (containerId: ContainerId) => Promise<unknown>;
  /** Time for which tasks of such a container go on. */
  readonly noticeMs: () => number;
  readonly clock: Clock;
  readonly metrics: Pick<TaskMetrics, 'attemptsLost' | 'preemptedSeconds'>;
  readonly log: Log;
  readonly signal: AbortSignal;
}

export class DrainCutoff {
  readonly #parts: DrainCutoffParts;
  /** Containers that leave for others, and since when this process knows, in monotonic milliseconds. */
  readonly #noticed = new Map<ContainerId, number>();

  constructor(parts: DrainCutoffParts) {
    this.#parts = parts;
  }

  start(): void {
    const { signal, attempts } = this.#parts;
    const look = async (): Promise<void> => {
      for (const id of this.#noticed.keys()) if (!this.#parts.isPreempted(id)) this.#noticed.delete(id);
      await this.#check(attempts.all());
    };
    void repeat(LOOK_EVERY_MS, signal, look, this.#notYet);
  }

  /** Checks a container that was just told to stop, or to leave. */
  lookAt(containerId: ContainerId): void {
    this.#check(this.#parts.attempts.ofContainer(containerId)).catch(this.#notYet);
  }

  readonly #notYet = (error: unknown): void => {
    this.#parts.log.warn({ err: error }, 'what a drain cut off is not handed back yet, trying again');
  };

  async #check(attempts: Iterable<Attempt>): Promise<void> {
    const { isCutOff, endsCalls, stopContainer } = this.#parts;
    const ends: Promise<unknown>[] = [];
    const stops = new Set<ContainerId>();
    for (const attempt of [...attempts]) {
      const { containerId, job, ending } = attempt;
      if (ending !== undefined) continue;
      if (!job.sync && isCutOff(containerId)) ends.push(this.#cutOff(attempt));
      else if (this.#hadNotice(containerId)) {
        if (job.sync) {
          if (endsCalls(containerId)) stops.add(containerId);
        } else if ((job.preemptions ?? 0) < MOST_PREEMPTIONS || endsCalls(containerId))
          ends.push(this.#preempt(attempt));
      }
    }
    for (const id of stops) ends.push(stopContainer(id));
    await Promise.all(ends);
  }

  #cutOff(attempt: Attempt): Promise<boolean> {
    const { completion, metrics, log } = this.#parts;
    metrics.attemptsLost.inc({ reason: 'drained' });
    log.info({ taskId: attempt.job.taskId, containerId: attempt.containerId }, 'a drain is over, giving a task back');
    return completion.abandon(attempt);
  }

  #preempt(attempt: Attempt): Promise<boolean> {
    const { completion, metrics, clock, log } = this.#parts;
    metrics.attemptsLost.inc({ reason: 'preempted' });
    metrics.preemptedSeconds.inc(Math.max(0, clock.nowMs() - (attempt.startedAtMs ?? attempt.sentAtMs)) / 1000);
    log.info({ taskId: attempt.job.taskId, containerId: attempt.containerId }, 'a notice is over, giving a task back');
    return completion.preempt(attempt);
  }

  #hadNotice(containerId: ContainerId): boolean {
    if (!this.#parts.isPreempted(containerId)) return false;
    if (!this.#noticed.has(containerId)) this.#noticed.set(containerId, this.#parts.clock.monotonicMs());
    return this.noticeLeftMs(containerId) <= 0;
  }

  /** Rest of the notice of a container that leaves for another one; all of it where none has begun here. */
  noticeLeftMs(containerId: ContainerId): number {
    const nowMs = this.#parts.clock.monotonicMs();
    return this.#parts.noticeMs() - (nowMs - (this.#noticed.get(containerId) ?? nowMs));
  }
}
