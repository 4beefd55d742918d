// Lease keys of asynchronous tasks: which attempt runs a task. A lease is written after the fetch and before the send,
// and renewed while the attempt lives. A replica that adopts the attempt after a restart reads it here. Holds of
// external runners, of tasks of both kinds, are here, too.
import type { Redis } from 'ioredis';
import type { ContainerId, LockToken, MachineId, TaskId } from '#shared/domain/ids.ts';
import type { Keys } from '../../stores/queues/keys.ts';
import type { TaskJob } from '../../stores/queues/jobs.ts';
import { defineScript } from '../../stores/queues/scripts.ts';
import type { Script } from '../../stores/queues/scripts.ts';
import { atTurnEnd, endTurnNow } from '../../stores/queues/turns.ts';

export interface Lease {
  readonly lock: LockToken;
  readonly attempt: number;
  readonly containerId: ContainerId;
  readonly machineId: MachineId;
  readonly queue: string;
  /** Job without its input. */
  readonly job: TaskJob;
  readonly startedAtMs: number;
  /**
   * Agent process that the attempt is sent to: when this same process
   * does not know the attempt, it never arrived. Absent: unknown.
   */
  readonly agentInstance?: string;
}

/** Seconds a lease lives: longer than the lock, so that an adopting replica finds it; renewed with the locks. */
const LEASE_SECONDS = 180;
const ANNOUNCED_SECONDS = 10;
const OUTLIVES_MS = 10 * 60_000;
/** Text that announces an attempt of an external runner, in place of a lease. */
export const BY_ANOTHER_RUNNER = 'another-runner';
/** Most leases read for one machine; more than it has slots. */
const MOST_OF_MACHINE = 10_000;
/** Most leases in one command. */
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
  readonly #renewScript: Script;
  readonly #dropScript: Script;
  #batch: Batch | undefined;

  constructor(redis: Redis, keys: Keys) {
    this.#redis = redis;
    this.#keys = keys;
    this.#script = defineScript(redis, 'longshoreWriteLeases');
    this.#renewScript = defineScript(redis, 'longshoreRenewLeases');
    this.#dropScript = defineScript(redis, 'longshoreDropLease');
  }

  /** Writes a lease. Those of one turn of the event loop go to Redis together, at its end, which saves commands. */
  write(lease: Lease): Promise<void> {
    this.#batch ??= this.#newBatch();
    this.#batch.leases.set(lease.job.taskId, lease);
    return this.#batch.written;
  }

  /**
   * Hands this turn's leases to the socket now, before the orders they are about. So a process
   * that dies in between leaves a lease without an order, never an order without a lease.
   */
  flush(): void {
    endTurnNow(this.#redis);
  }

  /** Collects the leases of this turn. */
  #newBatch(): Batch {
    const leases = new Map<TaskId, Lease>();
    const written = new Promise<void>((resolve, reject) => {
      atTurnEnd(this.#redis, () => {
        this.#batch = undefined;
        const commands: Promise<unknown>[] = [];
        const all = [...leases.values()];
        for (let at = 0; at < all.length; at += MOST_AT_ONCE)
          commands.push(this.#put('over', all.slice(at, at + MOST_AT_ONCE)));
        void Promise.all(commands).then(() => resolve(), reject);
      });
    });
    return { leases, written };
  }

  /** @param where - over any lease, or only where none stands */
  #put(where: 'over' | 'free', leases: readonly Lease[]): Promise<unknown> {
    const keys = [this.#keys.leased, ...leases.map((lease) => this.#keys.lease(lease.job.taskId))];
    const entries = leases.map(({ machineId, job }) => entryOf(machineId, job.taskId));
    return this.#script.run(keys.length, ...keys, LEASE_SECONDS, where, ...leases.map(encode), ...entries);
  }

  /**
   * Writes a lease again that Redis lost, unless another attempt holds the task by now. The
   * lease of an older attempt does not count: Redis may have come back with older data.
   */
  async restore(lease: Lease): Promise<void> {
    await this.#put('free', [lease]);
    const held = await this.read(lease.job.taskId);
    if (held !== undefined && held.attempt < lease.attempt) await this.#put('over', [lease]);
  }

  async read(taskId: TaskId): Promise<Lease | undefined> {
    const held = this.#batch?.leases.get(taskId);
    if (held !== undefined) return held;
    const text = await this.#redis.get(this.#keys.lease(taskId));
    return leaseIn(text);
  }

  /** The leases that stand of these tasks; all in one command. */
  async readAll(taskIds: readonly TaskId[]): Promise<ReadonlyMap<TaskId, Lease>> {
    const leases = new Map<TaskId, Lease>();
    const asked = taskIds.filter((taskId) => {
      const held = this.#batch?.leases.get(taskId);
      if (held !== undefined) leases.set(taskId, held);
      return held === undefined;
    });
    if (asked.length === 0) return leases;
    const texts = await this.#redis.mget(asked.map((taskId) => this.#keys.lease(taskId)));
    for (const [at, taskId] of asked.entries()) {
      const lease = leaseIn(texts[at]);
      if (lease !== undefined) leases.set(taskId, lease);
    }
    return leases;
  }

  /**
   * Announces that an external runner is about to take the task out
   * of its queue: for a moment the task does not count as lost.
   */
  async announce(taskId: TaskId): Promise<void> {
    await this.#redis.set(this.#keys.lease(taskId), BY_ANOTHER_RUNNER, 'EX', ANNOUNCED_SECONDS, 'NX');
  }

  /**
   * Records that an external runner started the task and holds it until `untilMs` (epoch
   * milliseconds). The key outlives that time, so that the sweep sees who held the task.
   */
  async hold(taskId: TaskId, untilMs: number): Promise<void> {
    const lifeMs = Math.max(1, Math.ceil(untilMs - Date.now())) + OUTLIVES_MS;
    await this.#redis.set(this.#keys.lease(taskId), `${BY_ANOTHER_RUNNER}:${Math.ceil(untilMs)}`, 'PX', lifeMs);
  }

  /** End of an external runner's hold on the task, in epoch milliseconds; undefined: none holds it. */
  async foreignUntil(taskId: TaskId): Promise<number | undefined> {
    const text = await this.#redis.get(this.#keys.lease(taskId));
    if (text?.startsWith(`${BY_ANOTHER_RUNNER}:`) !== true) return undefined;
    return Number(text.slice(BY_ANOTHER_RUNNER.length + 1));
  }

  /** Claims the attempt that follows an external runner that is gone. @returns true for exactly one caller */
  async takeOver(taskId: TaskId, attempt: number): Promise<boolean> {
    const key = `${this.#keys.lease(taskId)}:${attempt}`;
    return (await this.#redis.set(key, '1', 'EX', ANNOUNCED_SECONDS, 'NX')) === 'OK';
  }

  /**
   * Leases of the attempts that were sent to that machine. The cost depends on this machine's attempts
   * alone, not on other machines of its queues. Entries without a lease of that machine are taken out.
   * @param isWanted - whether the lease of a task is asked for; the others are not read
   */
  async ofMachine(machineId: MachineId, isWanted: (taskId: TaskId) => boolean = () => true): Promise<readonly Lease[]> {
    const { leased, lease: keyOf } = this.#keys;
    // The range ends at ';', the character after ':'.
    const range = [`[${machineId}:`, `(${machineId};`] as const;
    const all = await this.#redis.zrangebylex(leased, ...range, 'LIMIT', 0, MOST_OF_MACHINE);
    const entries = all.filter((entry) => isWanted(taskIn(entry, machineId)));
    const found: Lease[] = [];
    const gone: string[] = [];
    for (let at = 0; at < entries.length; at += MOST_AT_ONCE) {
      const some = entries.slice(at, at + MOST_AT_ONCE);
      const texts = await this.#redis.mget(some.map((entry) => keyOf(taskIn(entry, machineId))));
      for (const [index, text] of texts.entries()) {
        const lease = leaseIn(text);
        if (lease?.machineId === machineId) found.push(lease);
        else gone.push(some[index] ?? '');
      }
    }
    if (gone.length > 0) await this.#redis.zrem(leased, ...gone);
    return found;
  }

  /** The tasks among these that an attempt or an external runner holds. */
  async heldAmong(taskIds: readonly TaskId[]): Promise<ReadonlySet<TaskId>> {
    if (taskIds.length === 0) return new Set();
    const leases = await this.#redis.mget(taskIds.map((taskId) => this.#keys.lease(taskId)));
    return new Set(taskIds.filter((_taskId, at) => leases[at] !== null));
  }

  async isHeld(taskId: TaskId): Promise<boolean> {
    return (await this.#redis.exists(this.#keys.lease(taskId))) === 1;
  }

  /** Lets the leases live anew, a command for each {@link MOST_AT_ONCE}, one after another. */
  async renew(jobs: readonly Pick<TaskJob, 'taskId'>[]): Promise<void> {
    for (let at = 0; at < jobs.length; at += MOST_AT_ONCE) {
      const some = jobs.slice(at, at + MOST_AT_ONCE);
      const keys = some.map(({ taskId }) => this.#keys.lease(taskId));
      await this.#renewScript.run(keys.length, ...keys, LEASE_SECONDS);
    }
  }

  async drop(taskId: TaskId): Promise<void> {
    this.#batch?.leases.delete(taskId);
    await this.#dropScript.run(this.#keys.lease(taskId), this.#keys.leased, '');
  }

  /** Drops the lease of that attempt, and of no newer one. */
  async dropOf(taskId: TaskId, lock: LockToken): Promise<void> {
    if (this.#batch?.leases.get(taskId)?.lock === lock) this.#batch.leases.delete(taskId);
    await this.#dropScript.run(this.#keys.lease(taskId), this.#keys.leased, lock);
  }
}

/** Entry of a lease in the list of leases by machine. */
const entryOf = (machineId: MachineId, taskId: TaskId): string => `${machineId}:${taskId}`;
const taskIn = (entry: string, machineId: MachineId): TaskId => entry.slice(machineId.length + 1) as TaskId;

/** Reads the text of a lease's key. undefined: no attempt has the task, or an external runner holds it */
const leaseIn = (text: string | null | undefined): Lease | undefined =>
  text?.startsWith('{') === true ? (JSON.parse(text) as Lease) : undefined;

function encode(lease: Lease): string {
  const { input: _input, ...job } = lease.job;
  return JSON.stringify({ ...lease, job });
}
