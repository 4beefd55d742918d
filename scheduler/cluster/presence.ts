// Presence of scheduler processes: each sets a key that lapses 10 s after its last renewal. A synchronous task whose
// caller's replica is not present has nobody to answer. The leader takes over the work of a dead replica. The leader
// alone removes that replica's name from the list, so that the next leader finds unfinished work. Redis may lose the
// keys, or nobody can renew them for a while: then whoever was present before counts as present for 10 s more.
import type { Redis } from 'ioredis';
import type { InstanceId } from '#shared/domain/ids.ts';
import { repeat } from '#shared/backoff.ts';
import type { Log } from '#shared/log.ts';
import type { Keys } from '../stores/queues/keys.ts';

const LIFE_MS = 10_000;
const RENEW_MS = 3_000;
/** Time for which a replica counts as seen; longer than a failover of Redis takes. */
const SEEN_MS = 60_000;

export class Presence {
  readonly name = 'presence';
  readonly #redis: Redis;
  readonly #keys: Keys;
  readonly #instance: InstanceId;
  readonly #log: Log;
  readonly #abort = new AbortController();
  #alive = new Set<InstanceId>();
  /** Replicas that are present until then whether Redis has their keys or not; monotonic milliseconds. */
  #kept: readonly InstanceId[] = [];
  #keptUntilMs = -Infinity;
  #address = '';
  /** Last renewal, and the last one that came after the key had lapsed; monotonic milliseconds. */
  #renewedAtMs: number | null = null;
  #lapsedAtMs: number | null = null;
  #addresses: readonly string[] = [];
  #dead: readonly InstanceId[] = [];
  /** When each replica was last present, in monotonic milliseconds. */
  readonly #seenAtMs = new Map<InstanceId, number>();

  constructor(parts: { readonly redis: Redis; readonly keys: Keys; readonly instance: InstanceId; readonly log: Log }) {
    this.#redis = parts.redis;
    this.#keys = parts.keys;
    this.#instance = parts.instance;
    this.#log = parts.log;
  }

  isAlive(instance: InstanceId): boolean {
    return instance === this.#instance || this.#alive.has(instance);
  }

  /** The other replicas that are present. */
  *others(): Iterable<InstanceId> {
    for (const instance of this.#alive) if (instance !== this.#instance) yield instance;
  }

  /** Replicas that were present a moment ago, even if Redis lost their keys since. */
  *seen(): Iterable<InstanceId> {
    const sinceMs = performance.now() - SEEN_MS;
    for (const [instance, seenAtMs] of this.#seenAtMs) if (seenAtMs >= sinceMs) yield instance;
  }

  /** When this replica was present again after others may have taken it for dead; monotonic milliseconds. */
  get lapsedAtMs(): number | null {
    return this.#lapsedAtMs;
  }

  /** Whether a replica is present. Redis is asked about an unknown one, which may have started a moment ago. */
  async ask(instance: InstanceId): Promise<boolean> {
    if (this.isAlive(instance)) return true;
    if ((await this.#redis.exists(this.#keys.presence(instance))) === 0) return false;
    this.#alive.add(instance);
    return true;
  }

  /** The replicas that are present, as Redis has them now. */
  async present(): Promise<readonly InstanceId[]> {
    const { names, found } = await this.#listed();
    return [...new Set([...names.filter((_, at) => found[at] !== null), ...this.#keptNow()])];
  }

  /** The replicas in the list, and what their keys have; null: the key has lapsed. */
  async #listed(): Promise<{ readonly names: readonly InstanceId[]; readonly found: readonly (string | null)[] }> {
    const names = (await this.#redis.smembers(this.#keys.instances)) as InstanceId[];
    const found = names.length === 0 ? [] : await this.#redis.mget(names.map((name) => this.#keys.presence(name)));
    return { names, found };
  }

  /** Announces where this replica listens. @param address - `host:port` that reaches this host */
  async announce(address: string): Promise<void> {
    this.#address = address;
    await this.#renew();
  }

  /** Where a replica listens; undefined: it is not present, or does not listen. */
  async addressOf(instance: InstanceId): Promise<string | undefined> {
    const address = await this.#redis.get(this.#keys.presence(instance));
    return address?.includes(':') === true ? address : undefined;
  }

  /** Addresses of the replicas that are present, as of the last renewal. */
  get addresses(): readonly string[] {
    return this.#addresses;
  }

  /** Replicas that are listed and not present: their work is still to be taken over. */
  get dead(): readonly InstanceId[] {
    return this.#dead;
  }

  /** Removes a dead replica from the list, once its work has been taken over. */
  async forget(instance: InstanceId): Promise<void> {
    await this.#redis.srem(this.#keys.instances, instance);
    this.#dead = this.#dead.filter((one) => one !== instance);
  }

  /**
   * Declares all other listed replicas dead without waiting for their keys to lapse: the data directory belongs to this
   * process alone. Their work is taken over as that of any dead replica.
   */
  async othersDied(): Promise<void> {
    const names = (await this.#redis.smembers(this.#keys.instances)) as InstanceId[];
    await this.#redis.del(this.#keys.leader, ...names.map((name) => this.#keys.presence(name)));
  }

  async start(): Promise<void> {
    await this.#renew();
    const round = (): Promise<void> => this.#renew();
    void repeat(RENEW_MS, this.#abort.signal, round, (error) => this.#log.warn({ err: error }, 'presence not renewed'));
  }

  async stop(): Promise<void> {
    this.#abort.abort();
    await this.#redis.del(this.#keys.presence(this.#instance));
    await this.#redis.srem(this.#keys.instances, this.#instance);
  }

  /** Announces this replica again after Redis lost its data, so that no other replica ends its callers' tasks. */
  async redisLost(): Promise<void> {
    this.#keep();
    await this.#renew();
  }

  #keep(): void {
    this.#kept = [...this.#alive];
    this.#keptUntilMs = performance.now() + LIFE_MS;
  }

  #keptNow(): readonly InstanceId[] {
    return performance.now() < this.#keptUntilMs ? this.#kept : [];
  }

  async #renew(): Promise<void> {
    const own = this.#keys.presence(this.#instance);
    const [before] = await Promise.all([
      this.#redis.set(own, this.#address || '1', 'PX', LIFE_MS, 'GET'),
      this.#redis.sadd(this.#keys.instances, this.#instance),
    ]);
    const renewedAtMs = performance.now();
    if (this.#renewedAtMs !== null && renewedAtMs - this.#renewedAtMs > LIFE_MS) this.#lapsedAtMs = renewedAtMs;
    if (this.#renewedAtMs !== null && before === null) this.#keep();
    this.#renewedAtMs = renewedAtMs;
    const { names, found } = await this.#listed();
    const alive = new Set(names.filter((_, at) => found[at] !== null));
    this.#addresses = found
      .filter((address) => address !== null)
      .filter((address) => address.includes(':'))
      .toSorted();
    const nowMs = performance.now();
    for (const [name, seenAtMs] of this.#seenAtMs) if (nowMs - seenAtMs > SEEN_MS) this.#seenAtMs.delete(name);
    for (const name of alive) this.#seenAtMs.set(name, nowMs);
    for (const name of this.#keptNow()) alive.add(name);
    this.#alive = alive;
    this.#dead = names.filter((name) => !alive.has(name));
  }
}
