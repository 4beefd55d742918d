// Lease keys: which attempt runs a task, written after the fetch and before the send, renewed while the attempt lives. Who adopts an attempt after a restart reads it here;
// a fetch that finds one for a synchronous task does not run it again.
import type { Redis } from 'ioredis';
import type { ContainerId, LockToken, MachineId, TaskId } from '#shared/domain/ids.ts';
import type { Keys } from '../queues/keys.ts';
import type { TaskJob } from '../queues/jobs.ts';
import { defineScript } from '../queues/scripts.ts';
import type { Script } from '../queues/scripts.ts';
import { atTurnEnd } from '../queues/turns.ts';

export interface Lease {
  readonly lock: LockToken;
  readonly attempt: number;
  readonly containerId: ContainerId;
  readonly machineId: MachineId;
  readonly queue: string;
  /** The job without its input. */
  readonly job: TaskJob;
  readonly startedAtMs: number;
}

/** Longer than the lock, so that an adopting replica finds it; renewed with the locks. */
const LEASE_SECONDS = 180;
const ANNOUNCED_SECONDS = 10;
const OUTLIVES_MS = 10 * 60_000;
const BY_ANOTHER_RUNNER = 'another-runner';
/** Leases in one command. */
const MOST_AT_ONCE = 200;

/** Leases of this turn of the event loop. */
interface Batch {
  readonly leases: Map<TaskId, Lease>;
  readonly written: Promise<void>;
}

export class Leases {
  readonly #redis: Redis;
  readonly #keys: Keys;
  readonly #script: Script;
  #batch: Batch | undefined;

  constructor(redis: Redis, keys: Keys) {
    this.#redis = redis;
    this.#keys = keys;
    this.#script = defineScript(redis, 'longshoreWriteLeases');
  }

  /** Sent with the others of this turn, before it ends; the answer need not be awaited for a first fetch, because nobody else can hold one. */
  write(lease: Lease): Promise<void> {
    this.#batch ??= this.#newBatch();
    this.#batch.leases.set(lease.job.taskId, lease);
    return this.#batch.written;
  }

  #newBatch(): Batch {
    const leases = new Map<TaskId, Lease>();
    const written = new Promise<void>((resolve, reject) => {
      atTurnEnd(this.#redis, () => {
        this.#batch = undefined;
        this.#writeAll([...leases.values()]).then(resolve, reject);
      });
    });
    return { leases, written };
  }

  async #writeAll(leases: readonly Lease[]): Promise<void> {
    const commands: Promise<unknown>[] = [];
    for (let at = 0; at < leases.length; at += MOST_AT_ONCE) {
      const some = leases.slice(at, at + MOST_AT_ONCE);
      const keys = some.map((lease) => this.#keys.lease(lease.job.taskId));
      commands.push(this.#script.run(keys.length, ...keys, LEASE_SECONDS, ...some.map(encode)));
    }
    await Promise.all(commands);
  }

  /** Redis lost it: written again, unless somebody else holds the task by now. */
  async restore(lease: Lease): Promise<void> {
    await this.#redis.set(this.#keys.lease(lease.job.taskId), encode(lease), 'EX', LEASE_SECONDS, 'NX');
  }

  async read(taskId: TaskId): Promise<Lease | undefined> {
    const held = this.#batch?.leases.get(taskId);
    if (held !== undefined) return held;
    const text = await this.#redis.get(this.#keys.lease(taskId));
    return text === null || text.startsWith(BY_ANOTHER_RUNNER) ? undefined : (JSON.parse(text) as Lease);
  }

  /** A runner that is not ours is about to take the task out of its queue: for a moment nobody takes it for lost. */
  async announce(taskId: TaskId): Promise<void> {
    await this.#redis.set(this.#keys.lease(taskId), BY_ANOTHER_RUNNER, 'EX', ANNOUNCED_SECONDS, 'NX');
  }

  /** A runner that is not ours started the task: it is somebody's until then (epoch milliseconds). The key outlives that, so that the sweep sees whose it was. */
  async hold(taskId: TaskId, untilMs: number): Promise<void> {
    const lifeMs = Math.max(1, Math.ceil(untilMs - Date.now())) + OUTLIVES_MS;
    await this.#redis.set(this.#keys.lease(taskId), `${BY_ANOTHER_RUNNER}:${Math.ceil(untilMs)}`, 'PX', lifeMs);
  }

  /** Until when a runner that is not ours has it; undefined: none has. */
  async foreignUntil(taskId: TaskId): Promise<number | undefined> {
    const text = await this.#redis.get(this.#keys.lease(taskId));
    if (text?.startsWith(`${BY_ANOTHER_RUNNER}:`) !== true) return undefined;
    return Number(text.slice(BY_ANOTHER_RUNNER.length + 1));
  }

  /** One winner for the attempt after a runner that is gone. */
  async takeOver(taskId: TaskId, attempt: number): Promise<boolean> {
    const key = `${this.#keys.lease(taskId)}:${attempt}`;
    return (await this.#redis.set(key, '1', 'EX', ANNOUNCED_SECONDS, 'NX')) === 'OK';
  }

  async isHeld(taskId: TaskId): Promise<boolean> {
    return (await this.#redis.exists(this.#keys.lease(taskId))) === 1;
  }

  async renew(taskIds: readonly TaskId[]): Promise<void> {
    await Promise.all(taskIds.map((taskId) => this.#redis.expire(this.#keys.lease(taskId), LEASE_SECONDS)));
  }

  async drop(taskId: TaskId): Promise<void> {
    this.#batch?.leases.delete(taskId);
    await this.#redis.del(this.#keys.lease(taskId));
  }
}

function encode(lease: Lease): string {
  const { input: _input, ...job } = lease.job;
  return JSON.stringify({ ...lease, job });
}
