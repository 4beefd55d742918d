// Attempts that count as over without their agents' word: cancelled, past their limit, or lost
// with a machine that may come back. The result of such an attempt still counts, unless another
// attempt followed or its task ended otherwise. The attempt's identity is kept for as long as a
// lost machine may come back. Only those paths write it, never the path of a task that goes well.
import type { Redis } from 'ioredis';
import type { LockToken, MachineId, QueueName, TaskId } from '#shared/domain/ids.ts';
import type { Keys } from '../../stores/queues/keys.ts';

export interface LastAttempt {
  /** Lock that held the task: `<instance>.<sha256 of the attempt token>`. */
  readonly lock: LockToken;
  readonly attempt: number;
  readonly machineId: MachineId;
  readonly queue: QueueName;
}

/** Seconds for which the containers of a lost machine stay UNKNOWN. */
const KEPT_SECONDS = 24 * 3600;

export class LastAttempts {
  readonly #redis: Redis;
  readonly #keys: Keys;

  constructor(redis: Redis, keys: Keys) {
    this.#redis = redis;
    this.#keys = keys;
  }

  async write(taskId: TaskId, last: LastAttempt): Promise<void> {
    const { lock, attempt, machineId, queue } = last;
    const text = JSON.stringify({ lock, attempt, machineId, queue });
    await this.#redis.set(this.#keys.lastAttempt(taskId), text, 'EX', KEPT_SECONDS);
  }

  async read(taskId: TaskId): Promise<LastAttempt | undefined> {
    const text = await this.#redis.get(this.#keys.lastAttempt(taskId));
    return text === null ? undefined : (JSON.parse(text) as LastAttempt);
  }

  async drop(taskId: TaskId): Promise<void> {
    await this.#redis.del(this.#keys.lastAttempt(taskId));
  }
}
