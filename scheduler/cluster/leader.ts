// Leader election: a lease in Redis with a fencing number that only grows. The autoscaler, placement and other loops
// run where `isLeader()` is true, and write `fence()` with their decisions.
// Invariant: a replica stops calling itself the leader before its lease can run out in Redis. The replica's own
// monotonic clock decides, whether or not Redis answers.
import type { Redis } from 'ioredis';
import { sleep } from '#shared/backoff.ts';
import { systemClock } from '#shared/clock.ts';
import type { Clock } from '#shared/clock.ts';
import type { InstanceId } from '#shared/domain/ids.ts';
import type { Part } from '#shared/lifecycle.ts';
import type { Log } from '#shared/log.ts';
import type { Keys } from '../stores/queues/keys.ts';
import { defineScript } from '../stores/queues/scripts.ts';
import type { Script } from '../stores/queues/scripts.ts';

export const LEADER_LEASE_MS = 10_000;
export const LEADER_RENEW_MS = 3000;

export type Leadership =
  | { readonly kind: 'leading'; readonly fence: number }
  | { readonly kind: 'following'; readonly why: 'held_by_another' | 'lease_ran_out' | 'resigned' };

export interface LeaderOptions {
  /** A client that fails fast (no offline queue, a command timeout below the lease). The caller closes it. */
  readonly client: Redis;
  readonly keys: Keys;
  readonly instance: InstanceId;
  readonly log: Log;
  /**
   * Makes the store refuse lower numbers and learns the rows that they wrote, before this replica acts as leader.
   * @returns the highest number that ever led there. If it is above the given one, Redis came back older than the
   * database: the lease is given back and taken again with a higher number
   */
  readonly raise?: (fence: number) => Promise<number>;
  /** Tells the other replicas that the lease is free, because this one gave it back. */
  readonly onFreed?: () => void;
  readonly clock?: Clock;
  readonly leaseMs?: number;
  readonly renewMs?: number;
}

export class LeaderLease implements Part {
  readonly name = 'leader lease';
  readonly #keys: Keys;
  readonly #instance: InstanceId;
  readonly #log: Log;
  readonly #clock: Clock;
  readonly #leaseMs: number;
  readonly #renewMs: number;
  readonly #raise: (fence: number) => Promise<number>;
  readonly #onFreed: () => void;
  readonly #hold: Script;
  readonly #resign: Script;
  readonly #listeners = new Set<(now: Leadership) => void>();
  readonly #abort = new AbortController();
  #rest = new AbortController();
  #loop: Promise<void> | undefined;
  #fence: number | undefined;
  /** Highest fence of any leader so far: the next one is above it, also on a Redis that lost its data. */
  #highestFence = 0;
  #validUntilMs = 0;
  #lapse: NodeJS.Timeout | undefined;

  constructor(options: LeaderOptions) {
    this.#keys = options.keys;
    this.#instance = options.instance;
    this.#log = options.log;
    this.#clock = options.clock ?? systemClock;
    this.#leaseMs = options.leaseMs ?? LEADER_LEASE_MS;
    this.#renewMs = options.renewMs ?? LEADER_RENEW_MS;
    this.#raise = options.raise ?? ((fence) => Promise.resolve(fence));
    this.#onFreed = options.onFreed ?? (() => undefined);
    this.#hold = defineScript(options.client, 'longshoreHoldLeader');
    this.#resign = defineScript(options.client, 'longshoreResignLeader');
  }

  /**
   * Whether this replica leads. The clock decides, not the last message:
   * the answer is right even after the process was stopped for a while.
   */
  isLeader(): boolean {
    return this.#fence !== undefined && this.#clock.monotonicMs() < this.#validUntilMs;
  }

  /** The fencing number of every decision; undefined when this replica is not the leader. */
  fence(): number | undefined {
    return this.isLeader() ? this.#fence : undefined;
  }

  /**
   * Calls the listener at every change, in the tick in which it is known.
   * @returns a function that removes the listener
   */
  onChange(listener: (now: Leadership) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Starts to ask for the lease. Resolves after the first answer; without Redis it goes on asking. */
  async start(signal?: AbortSignal): Promise<void> {
    if (this.#loop !== undefined) return;
    signal?.addEventListener('abort', () => this.#abort.abort(), { once: true });
    if (signal?.aborted === true) this.#abort.abort();
    const waitMs = await this.#tryHold();
    this.#loop = this.#run(waitMs);
  }

  /** Gives the lease back, so that another replica takes it at once. */
  async stop(): Promise<void> {
    this.#abort.abort();
    await this.#loop;
    const held = this.#fence !== undefined;
    this.#become(undefined, 'resigned');
    if (!held) return;
    try {
      await this.#resign.run(this.#keys.leader, this.#instance);
      this.#onFreed();
    } catch (error) {
      this.#log.warn({ err: error }, 'leader lease not given back; it runs out by itself');
    }
  }

  async #run(firstWaitMs: number): Promise<void> {
    let waitMs = firstWaitMs;
    while (!this.#abort.signal.aborted) {
      const { signal } = this.#rest;
      await sleep(waitMs, AbortSignal.any([this.#abort.signal, signal]));
      // Renewed before the question: whoever frees the lease meanwhile has it asked for again.
      if (signal.aborted) this.#rest = new AbortController();
      if (!this.#abort.signal.aborted) waitMs = await this.#tryHold();
    }
  }

  /** Asks for the lease now: the one that held it gave it back. */
  freed(): void {
    if (!this.isLeader()) this.#rest.abort();
  }

  /** Tries once to take or renew the lease. @returns how long to wait before the next try */
  async #tryHold(): Promise<number> {
    const askedAtMs = this.#clock.monotonicMs();
    try {
      const answer = (await this.#hold.run(
        this.#keys.leader,
        this.#keys.leaderFence,
        this.#instance,
        this.#leaseMs,
        this.#highestFence,
      )) as [number, number, number];
      const [held, fence, othersLeftMs] = answer;
      this.#highestFence = Math.max(this.#highestFence, fence);
      if (held === 1) {
        if (fence !== this.#fence && !(await this.#mayLead(fence))) return this.#renewMs / 10;
        // The lease counts from before the question, less a tenth: never longer than Redis granted.
        this.#validUntilMs = askedAtMs + this.#leaseMs * 0.9;
        if (this.#clock.monotonicMs() < this.#validUntilMs) this.#become(fence);
        return this.#renewMs;
      }
      this.#become(undefined, 'held_by_another');
      return Math.max(10, Math.min(this.#renewMs, othersLeftMs + 1 + Math.random() * 20));
    } catch (error) {
      this.#log.warn({ err: error, leading: this.isLeader() }, 'leader lease cannot be renewed');
      if (!this.isLeader()) this.#become(undefined, 'lease_ran_out');
      return Math.min(this.#renewMs, 500);
    }
  }

  /**
   * Tells the store the number before the first act under it. If
   * that fails, the lease is given up, for a replica that can.
   */
  async #mayLead(fence: number): Promise<boolean> {
    try {
      const highest = await this.#raise(fence);
      this.#highestFence = Math.max(this.#highestFence, highest);
      if (highest === fence) return true;
      this.#log.warn({ fence, highest }, 'a higher number has led than Redis knows of; taking a new one');
    } catch (error) {
      this.#log.warn({ err: error }, 'the database does not take the fencing number; not leading');
    }
    await this.#resign.run(this.#keys.leader, this.#instance);
    return false;
  }

  #become(fence: number | undefined, why: 'held_by_another' | 'lease_ran_out' | 'resigned' = 'held_by_another'): void {
    clearTimeout(this.#lapse);
    if (fence !== undefined) {
      this.#lapse = setTimeout(
        () => this.#become(undefined, 'lease_ran_out'),
        Math.max(0, this.#validUntilMs - this.#clock.monotonicMs()) + 1,
      );
      this.#lapse.unref();
    }
    if (fence === this.#fence) return;
    this.#fence = fence;
    const now: Leadership = fence === undefined ? { kind: 'following', why } : { kind: 'leading', fence };
    this.#log.info(now, fence === undefined ? 'not the leader' : 'leader');
    for (const listener of this.#listeners) listener(now);
  }
}
