// Pools with a provider, as this replica knows them: also those without any machine, which no machine's row tells of.
// Each write of a pool is announced to all replicas, which read the pools again; a look at the sum of the rows'
// versions finds what a lost message named.
import type { WorkspaceId } from '#shared/domain/ids.ts';
import { isDeepStrictEqual } from 'node:util';
import { sleep } from '#shared/backoff.ts';
import type { Log } from '#shared/log.ts';
import type { Bus } from '../cluster/bus.ts';
import { poolsVersion, poolsWithProvider } from '../stores/store/queries/pools.ts';
import type { PoolRow } from '../stores/store/queries/pools.ts';
import type { Queryable } from '../stores/store/db.ts';
import { isForeign } from '../domain/pools.ts';

export interface PoolDirectoryParts {
  readonly db: Queryable;
  readonly bus: Pick<Bus, 'on' | 'onGap' | 'publish'>;
  readonly channel: string;
  readonly log: Log;
  /** Milliseconds between looks at the version; tests shorten it. */
  readonly sweepMs?: number;
}

const SWEEP_MS = 5_000;

export class PoolDirectory {
  readonly name = 'pools with a provider';
  readonly #parts: PoolDirectoryParts;
  readonly #pools = new Map<number, PoolRow>();
  readonly #listeners: ((poolId: number) => void)[] = [];
  readonly #abort = new AbortController();
  #version = '';
  #reading: Promise<void> | undefined;
  #isStale = false;

  constructor(parts: PoolDirectoryParts) {
    this.#parts = parts;
    parts.bus.on(parts.channel, () => void this.#read());
    parts.bus.onGap(() => void this.#read());
  }

  async start(): Promise<void> {
    await this.#read();
    void this.#sweep();
  }

  async stop(): Promise<void> {
    this.#abort.abort();
    await this.#reading;
  }

  all(): Iterable<PoolRow> {
    return this.#pools.values();
  }

  get(poolId: number): PoolRow | undefined {
    return this.#pools.get(poolId);
  }

  /** Pools that the workspace may use. */
  *usableBy(workspaceId: WorkspaceId): Iterable<PoolRow> {
    for (const pool of this.#pools.values())
      if (!isForeign({ poolOwner: pool.workspaceId }, { workspaceId })) yield pool;
  }

  /** Calls the listener with each pool that came, changed or went. */
  onChange(listener: (poolId: number) => void): void {
    this.#listeners.push(listener);
  }

  /** Reads the pools again, here and at the other replicas: one of them was just written. */
  async written(): Promise<void> {
    this.#parts.bus.publish(this.#parts.channel, 'written');
    await this.#read();
  }

  async #sweep(): Promise<void> {
    while (await sleep(this.#parts.sweepMs ?? SWEEP_MS, this.#abort.signal)) {
      const version = await poolsVersion(this.#parts.db).catch(() => this.#version);
      if (version !== this.#version) await this.#read();
    }
  }

  /** Reads all of them; a call while a reading is under way makes another one follow. */
  async #read(): Promise<void> {
    this.#isStale = true;
    this.#reading ??= this.#readAll().finally(() => (this.#reading = undefined));
    await this.#reading;
  }

  async #readAll(): Promise<void> {
    const { db, log } = this.#parts;
    while (this.#isStale && !this.#abort.signal.aborted) {
      this.#isStale = false;
      try {
        // The version is read first: a write after it is found by the next look.
        const version = await poolsVersion(db);
        this.#take(await poolsWithProvider(db));
        this.#version = version;
      } catch (error) {
        log.warn({ err: error }, 'pools not read, trying again');
      }
    }
  }

  #take(rows: readonly PoolRow[]): void {
    const changed: number[] = [];
    const left = new Set(this.#pools.keys());
    for (const row of rows) {
      left.delete(row.id);
      const known = this.#pools.get(row.id);
      if (known !== undefined && isDeepStrictEqual(known, row)) continue;
      this.#pools.set(row.id, row);
      changed.push(row.id);
    }
    for (const id of left) this.#pools.delete(id);
    for (const id of [...changed, ...left]) for (const listener of this.#listeners) listener(id);
  }
}
