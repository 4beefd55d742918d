// Recovery of lost wake-ups. Every 30 s each replica reads the depths of the queues that its containers
// serve, in one round trip. Queues in which a job waits or is delayed are woken. The wake also finds
// due times that a restart forgot: a fetch that finds nothing ready tells when the next job is due.
import type { QueueName } from '#shared/domain/ids.ts';
import { repeat } from '#shared/backoff.ts';
import type { Log } from '#shared/log.ts';
import type { TaskQueues } from '../../stores/queues/task-queues.ts';

const EVERY_MS = 30_000;

export interface WakeSweepParts {
  readonly queues: Pick<TaskQueues, 'depths'>;
  /** Queues that containers linked to this replica serve. */
  readonly consumed: () => Iterable<QueueName>;
  readonly wake: (queue: QueueName) => void;
  /** Forgets queues that no container here serves any more. */
  readonly prune: () => void;
  readonly log: Log;
  readonly everyMs?: number;
}

export class WakeSweep {
  readonly name = 'wake-ups';
  readonly #parts: WakeSweepParts;
  readonly #abort = new AbortController();

  constructor(parts: WakeSweepParts) {
    this.#parts = parts;
  }

  start(): void {
    const { everyMs = EVERY_MS, log } = this.#parts;
    const round = (): Promise<void> => this.round();
    void repeat(everyMs, this.#abort.signal, round, (error) =>
      log.info({ err: error }, 'queues not looked at for lost wake-ups, trying again'),
    );
  }

  stop(): void {
    this.#abort.abort();
  }

  async round(): Promise<void> {
    this.#parts.prune();
    const consumed = [...this.#parts.consumed()];
    if (consumed.length === 0) return;
    const depths = await this.#parts.queues.depths(consumed);
    for (const [index, queue] of consumed.entries()) {
      const depth = depths[index];
      if (depth !== undefined && depth.waiting + depth.prioritized + depth.delayed > 0) this.#parts.wake(queue);
    }
  }
}
