// Drain of ledger entries from the stream in Redis to the database, by the leader.
// Invariant: an entry leaves the stream only after the database has it. A repetition adds no row and changes no
// balance. Two leaders at a time do no harm: accounts are locked, and each entry is taken off once.
import { messageOf } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import { Counter, Gauge } from '#shared/metrics.ts';
import type { Registry } from '#shared/metrics.ts';
import type { CreditBook, StreamedEntry } from '../../stores/queues/credit-book.ts';
import { DrainLoop, writeHalved } from '../../stores/queues/drain-loop.ts';
import { writeLedger } from '../../stores/store/queries/credits.ts';
import type { LedgerEntry } from '../../stores/store/queries/credits.ts';
import type { Db } from '../../stores/store/db.ts';
import { parseEntry } from './entries.ts';

const BATCH = 500;
const SWEEP_MS = 500;
/** Milliseconds in which entries are collected into one batch. */
const COALESCE_MS = 100;

export interface LedgerDrainParts {
  readonly db: Db;
  readonly book: Pick<CreditBook, 'oldest' | 'trim' | 'putAside' | 'putAccounts'>;
  readonly log: Log;
  readonly registry?: Registry;
}

interface Read extends StreamedEntry {
  readonly entry: LedgerEntry;
}

export class LedgerDrain {
  readonly #parts: LedgerDrainParts;
  readonly #backlog: Gauge | undefined;
  readonly #setAside: Counter | undefined;
  readonly #loop: DrainLoop<void>;

  constructor(parts: LedgerDrainParts) {
    this.#parts = parts;
    this.#loop = new DrainLoop({
      drain: (signal) => this.#drainAll(signal),
      onFailed: (error, failures) =>
        parts.log.warn({ err: error, failures }, 'the credit ledger cannot be drained; trying again'),
      sweepMs: SWEEP_MS,
      coalesceMs: COALESCE_MS,
    });
    if (parts.registry === undefined) return;
    const registers = [parts.registry];
    this.#backlog = new Gauge({
      name: 'longshore_ledger_backlog',
      help: 'Entries of the credit ledger in Redis that the database does not have, as the leader last saw them.',
      registers,
    });
    this.#setAside = new Counter({
      name: 'longshore_ledger_entries_set_aside_total',
      help: 'Entries of the credit ledger that the database refuses or nobody can read, kept in Redis.',
      registers,
    });
  }

  /** Drains soon, because an entry was put on the ledger. */
  wake(): void {
    this.#loop.wake();
  }

  /** Drains until the signal ends it. */
  run(signal: AbortSignal): Promise<void> {
    return this.#loop.run(signal);
  }

  /** Drains all entries there are now, after a round under way. @throws when Redis or the database fails */
  flush(): Promise<void> {
    return this.#loop.flush();
  }

  async #drainAll(signal: AbortSignal | undefined): Promise<void> {
    for (;;) {
      const streamed = await this.#parts.book.oldest(BATCH);
      const read: Read[] = [];
      for (const one of streamed) {
        const entry = parseEntry(one.text);
        if (entry === undefined) await this.#putAside(one, 'not an entry');
        else read.push({ ...one, entry });
      }
      if (read.length > 0) await this.#write(read);
      if (streamed.length < BATCH || signal?.aborted === true) return;
    }
  }

  /** Writes a batch; an entry that the database refuses is put aside. */
  #write(read: readonly Read[]): Promise<void> {
    return writeHalved(read, {
      write: (some) => this.#writeAll(some),
      refused: async (one, error) => {
        const { requestId } = one.entry;
        this.#parts.log.error({ err: error, requestId }, 'the database refuses a ledger entry');
        await this.#putAside(one, messageOf(error));
      },
    });
  }

  async #writeAll(read: readonly Read[]): Promise<void> {
    const { db, book } = this.#parts;
    const { accounts } = await writeLedger(
      db,
      read.map(({ entry }) => entry),
    );
    // In this order an account is for a moment poorer than it is, and never richer.
    await book.putAccounts(accounts);
    const left = await book.trim(
      read.map(({ id, entry }) => ({ id, workspaceId: entry.workspaceId, micros: entry.costMicros })),
    );
    this.#backlog?.set(left);
  }

  async #putAside(streamed: StreamedEntry, reason: string): Promise<void> {
    this.#setAside?.inc();
    await this.#parts.book.putAside(streamed, reason);
  }
}
