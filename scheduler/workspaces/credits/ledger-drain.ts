// Drain of ledger entries from the stream in Redis to the database, by the leader.
// Invariant: an entry leaves the stream only after the database has it. A repetition adds no row and changes no
// balance. Two leaders at a time do no harm: accounts are locked, and each entry is taken off once.
import { backoffMs, sleep } from '#shared/backoff.ts';
import { messageOf } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import { Counter, Gauge } from '#shared/metrics.ts';
import type { Registry } from '#shared/metrics.ts';
import type { CreditBook, StreamedEntry } from '../../stores/queues/credit-book.ts';
import { isDataRefused } from '../../stores/store/limits.ts';
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
  #wake: (() => void) | undefined;
  #isAwake = false;
  #round: Promise<void> = Promise.resolve();

  constructor(parts: LedgerDrainParts) {
    this.#parts = parts;
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
    this.#isAwake = true;
    this.#wake?.();
  }

  /** Drains until the signal ends it. */
  async run(signal: AbortSignal): Promise<void> {
    let failures = 0;
    signal.addEventListener('abort', () => this.#wake?.(), { once: true });
    while (!signal.aborted) {
      try {
        await this.flush(signal);
        failures = 0;
      } catch (error) {
        failures += 1;
        this.#parts.log.warn({ err: error, failures }, 'the credit ledger cannot be drained; trying again');
        await sleep(backoffMs(failures, { baseMs: 100, capMs: 5_000, floorMs: 50 }), signal);
        continue;
      }
      await this.#rest(signal);
    }
  }

  /** Drains all entries there are now, after a round under way. @throws when Redis or the database fails */
  flush(signal?: AbortSignal): Promise<void> {
    const round = this.#round.then(() => this.#drainAll(signal));
    this.#round = round.catch(() => undefined);
    return round;
  }

  async #drainAll(signal: AbortSignal | undefined): Promise<void> {
    for (;;) {
      this.#isAwake = false;
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

  /** Writes a batch. The database may refuse an entry: the batch is halved until that entry stands alone. */
  async #write(read: readonly Read[]): Promise<void> {
    const { db, book, log } = this.#parts;
    try {
      const { accounts } = await writeLedger(
        db,
        read.map(({ entry }) => entry),
      );
      // In this order an account is for a moment poorer than it is, and never richer.
      await book.putAccounts(accounts);
    } catch (error) {
      if (!isDataRefused(error)) throw error;
      const [first] = read;
      if (read.length === 1 && first !== undefined) {
        log.error({ err: error, requestId: first.entry.requestId }, 'the database refuses a ledger entry');
        return this.#putAside(first, messageOf(error));
      }
      const middle = Math.ceil(read.length / 2);
      await this.#write(read.slice(0, middle));
      return this.#write(read.slice(middle));
    }
    const left = await book.trim(
      read.map(({ id, entry }) => ({ id, workspaceId: entry.workspaceId, micros: entry.costMicros })),
    );
    this.#backlog?.set(left);
  }

  async #putAside(streamed: StreamedEntry, reason: string): Promise<void> {
    this.#setAside?.inc();
    await this.#parts.book.putAside(streamed, reason);
  }

  async #rest(signal: AbortSignal): Promise<void> {
    if (!this.#isAwake && !signal.aborted) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, SWEEP_MS);
        this.#wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
      this.#wake = undefined;
    }
    if (this.#isAwake) await sleep(COALESCE_MS, signal);
  }
}
