// Attempts that we counted as over without their agents' word: cancelled, past their limit, lost with a machine that may come back. What such a one completes all the same still counts, as long as no
// attempt followed it and its task ended otherwise; so who it was is kept for as long as a lost machine may come back. Written on those paths alone, never for a task that goes well.
import type { Redis } from 'ioredis';
import type { LockToken, MachineId, QueueName, TaskId } from '#shared/domain/ids.ts';
import type { Keys } from '../queues/keys.ts';

export interface LastAttempt {
  /** `<instance>.<sha256 of the attempt token>`, as the task was held. */
  readonly lock: LockToken;
  readonly attempt: number;
  readonly machineId: MachineId;
  readonly queue: QueueName;
}

/** As long as the containers of a lost machine are UNKNOWN. */
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
