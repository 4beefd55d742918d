// A database whose transactions meet planted faults at a chosen statement. The faults are real for the driver: its
// deadline passes and the work goes on, or the server ends the connection. An unanswered commit is played.
import type { Db, Queryable, Transaction } from '#scheduler/stores/store/db.ts';
import { DEADLINES, databaseOutcomeUnknown } from '#scheduler/stores/store/limits.ts';
import type { Deadlines } from '#scheduler/stores/store/limits.ts';
import { WrappedDb } from './wrapped-db.ts';

export type FaultKind = 'expire' | 'lose' | 'unanswered';
export interface PlantedFault {
  readonly kind: FaultKind;
  /** Number of the statement before which the fault comes; behind the last one, it comes before the commit. */
  readonly before: number;
}

/** Deadlines of the database on which transactions expire. */
export const BRIEF: Deadlines = { ...DEADLINES, transactionMs: 12 };

export class FaultyDb extends WrappedDb {
  readonly #brief: Db;
  readonly #next: () => PlantedFault | undefined;
  /** Work that went on behind the end of its transaction. */
  readonly #late = new Set<Promise<unknown>>();
  /** Faults that a transaction met, by kind. */
  readonly met: Record<FaultKind, number> = { expire: 0, lose: 0, unanswered: 0 };
  areFaultsOn = true;

  /**
   * @param brief - the same database with {@link BRIEF} deadlines
   * @param next - the fault of the next transaction
   */
  constructor(db: Db, brief: Db, next: () => PlantedFault | undefined) {
    super(db);
    this.#brief = brief;
    this.#next = next;
  }

  override async transaction<T>(work: (tx: Transaction) => Promise<T>): Promise<T> {
    const fault = this.areFaultsOn ? this.#next() : undefined;
    if (fault === undefined) return this.db.transaction(work);
    const ended = Promise.withResolvers<undefined>();
    let statements = 0;
    const meet = async (tx: Queryable): Promise<void> => {
      this.met[fault.kind] += 1;
      if (fault.kind === 'expire') await ended.promise;
      if (fault.kind === 'lose') await tx.query('select pg_terminate_backend(pg_backend_pid())').catch(() => undefined);
    };
    const faulty = async (tx: Transaction): Promise<T> => {
      const result = await work({
        query: async (sql, params) => {
          if (statements++ === fault.before && fault.kind !== 'unanswered') await meet(tx);
          return tx.query(sql, params);
        },
        script: (sql) => tx.script(sql),
      });
      if (statements <= fault.before && fault.kind !== 'unanswered') await meet(tx);
      return result;
    };
    const db = fault.kind === 'expire' ? this.#brief : this.db;
    try {
      const result = await db.transaction((tx) => {
        const running = faulty(tx);
        const settled = running.then(
          () => undefined,
          () => undefined,
        );
        this.#late.add(settled);
        void settled.then(() => this.#late.delete(settled));
        return running;
      });
      if (fault.kind !== 'unanswered') return result;
      this.met.unanswered += 1;
      throw databaseOutcomeUnknown();
    } finally {
      ended.resolve(undefined);
    }
  }

  /** Resolves when no work goes on any more. */
  async quiet(): Promise<void> {
    while (this.#late.size > 0) await Promise.all(this.#late);
  }

  override async close(): Promise<void> {
    await this.quiet();
    await Promise.all([this.db.close(), this.#brief.close()]);
  }
}
