// Rows of machines that providers make, as the leader knows them. The leader alone writes them, each with its fencing
// number and the revision that it read. A refused write means that another replica leads, or that an earlier write was
// made which nobody answered: the row is then read again, and the next look goes on from there.
import type { MachineId } from '#shared/domain/ids.ts';
import type { Clock } from '#shared/clock.ts';
import type { Log } from '#shared/log.ts';
import type { Db, Queryable } from '../../stores/store/db.ts';
import { liveProvisioned, provisionedOf, writeProvisioned } from '../../stores/store/queries/provisioned.ts';
import { isOver, provisionedAfter } from './states.ts';
import type { ProvisionedEvent, ProvisionedRow } from './states.ts';

/** Time for which ended rows count in back-offs and explanations. */
const RECENT_MS = 3_600_000;

/** Writes a change together with the event that tells of it. */
export type WriteTold = (
  row: ProvisionedRow,
  action: string,
  change: (db: Queryable) => Promise<ProvisionedRow | undefined>,
) => Promise<ProvisionedRow | undefined>;

export interface RowsParts {
  readonly db: Db;
  readonly clock: Clock;
  readonly log: Log;
  /** The leader's number; undefined while this replica does not lead. */
  readonly fence: () => number | undefined;
  /** Writer of events; absent: nothing is told. */
  readonly told?: WriteTold;
}

/** Rows that are not over, and those that ended lately. */
export async function readRows(db: Queryable, nowMs: number): Promise<readonly ProvisionedRow[]> {
  return (await liveProvisioned(db, nowMs - RECENT_MS)) as ProvisionedRow[];
}

export class ProvisionedRows {
  readonly #parts: RowsParts;
  readonly #rows = new Map<string, ProvisionedRow>();
  /** Request ids of each pool, in the order of the requests. */
  readonly #ofPool = new Map<number, Set<string>>();
  readonly #ofMachine = new Map<MachineId, string>();

  constructor(parts: RowsParts) {
    this.#parts = parts;
  }

  /** Reads all live rows anew. @throws the database's errors */
  async load(): Promise<void> {
    const rows = await readRows(this.#parts.db, this.#parts.clock.nowMs());
    for (const known of [this.#rows, this.#ofPool, this.#ofMachine]) known.clear();
    for (const row of rows) this.put(row);
  }

  put(row: ProvisionedRow): void {
    const { requestId, poolId, machineId } = row;
    this.#rows.set(requestId, row);
    this.#ofMachine.set(machineId, requestId);
    this.#ofPool.set(poolId, (this.#ofPool.get(poolId) ?? new Set()).add(requestId));
  }

  get(requestId: string): ProvisionedRow | undefined {
    return this.#rows.get(requestId);
  }

  all(): readonly ProvisionedRow[] {
    return [...this.#rows.values()];
  }

  live(): readonly ProvisionedRow[] {
    return this.all().filter((row) => !isOver(row));
  }

  ofPool(poolId: number): readonly ProvisionedRow[] {
    return [...(this.#ofPool.get(poolId) ?? [])].flatMap((requestId) => this.#rows.get(requestId) ?? []);
  }

  ofMachine(machineId: MachineId): ProvisionedRow | undefined {
    const row = this.#rows.get(this.#ofMachine.get(machineId) ?? '');
    return row === undefined || isOver(row) ? undefined : row;
  }

  /** Forgets rows that ended long ago. */
  forgetOld(): void {
    const sinceMs = this.#parts.clock.nowMs() - RECENT_MS;
    for (const { requestId, poolId, machineId, endedAtMs } of this.all()) {
      if ((endedAtMs ?? Infinity) >= sinceMs) continue;
      this.#rows.delete(requestId);
      this.#ofMachine.delete(machineId);
      const left = this.#ofPool.get(poolId);
      left?.delete(requestId);
      if (left?.size === 0) this.#ofPool.delete(poolId);
    }
  }

  /** Whether this replica may write rows now. */
  get isLeading(): boolean {
    return this.#parts.fence() !== undefined;
  }

  /** Moves a row by an event of the table. @returns undefined: refused, so that nothing may be done */
  async move(
    row: ProvisionedRow,
    event: ProvisionedEvent,
    change: Partial<ProvisionedRow> = {},
  ): Promise<ProvisionedRow | undefined> {
    const state = provisionedAfter(row.state, event);
    if (state === undefined) throw new RangeError(`a machine in the state ${row.state} takes no ${event}`);
    const moved = await this.#write({ ...row, ...change, state }, state === row.state ? undefined : state);
    if (moved !== undefined) {
      const { requestId, machineId, provider, poolName: pool } = row;
      this.#parts.log.info({ requestId, machineId, provider, pool, state, why: moved.endWhy }, 'machine of a provider');
    }
    return moved;
  }

  /** Writes facts, and no change of state. */
  note(row: ProvisionedRow, change: Partial<ProvisionedRow>): Promise<ProvisionedRow | undefined> {
    return this.#write({ ...row, ...change });
  }

  async #write(row: ProvisionedRow, action?: string): Promise<ProvisionedRow | undefined> {
    const { db, fence, told, log } = this.#parts;
    const number = fence();
    if (number === undefined) return undefined;
    const change = async (on: Queryable): Promise<ProvisionedRow | undefined> =>
      (await writeProvisioned(on, row, number)) as ProvisionedRow | undefined;
    const written = await (action === undefined || told === undefined ? change(db) : told(row, action, change));
    if (written !== undefined) {
      this.put(written);
      return written;
    }
    log.warn({ requestId: row.requestId, fence: number }, 'a write about a machine of a provider is refused');
    const now = await provisionedOf(db, row.requestId);
    if (now !== undefined) this.put(now as ProvisionedRow);
    return undefined;
  }
}
