// The life of a transaction, for both drivers: its statements run one after another between begin and commit.
// Invariants: a statement is sent only while the transaction is open. After a failed statement it is never committed,
// also where its work goes on. A connection whose state is unknown is given up.
import { AppError } from '#shared/errors.ts';
import { databaseOutcomeUnknown, databaseTimeout, databaseUnavailable, isRefusedByDatabase } from './limits.ts';
import type { Deadlines } from './limits.ts';
import type { QueryResult, Transaction } from './queryable.ts';

/** A connection that nobody else uses between begin and the end. Each statement has its own deadline. */
export interface TransactionConnection {
  /** @throws AppError `database_error` when the database refused the statement; else its effect is unknown */
  query<R>(sql: string, params: readonly unknown[]): Promise<QueryResult<R>>;
  script(sql: string): Promise<void>;
  begin(): Promise<unknown>;
  commit(): Promise<unknown>;
  rollback(): Promise<unknown>;
  /** Ends a transaction whose state is unknown, or whose time is over. No statement is sent after it. */
  giveUp(cause: unknown): Promise<void>;
  /** Why nothing can be sent any more; undefined as far as is known. */
  readonly broken: Error | undefined;
}

/**
 * Runs `work` between begin and commit.
 * @throws the error of `work`, or the first failure of a statement where `work` hides it; AppError `database_timeout`
 * after the deadline; AppError `database_outcome_unknown` when the commit was sent and not answered
 */
export async function runTransaction<T>(
  on: TransactionConnection,
  work: (tx: Transaction) => Promise<T>,
  deadlines: Pick<Deadlines, 'transactionMs' | 'scriptMs'>,
  onOutcomeUnknown?: () => void,
): Promise<T> {
  const statements = new Statements(on, deadlines);
  await begin(on);
  let result: T;
  try {
    result = await statements.expiring(work);
  } catch (error) {
    await end(on, statements);
    throw error;
  }
  await commit(on, onOutcomeUnknown);
  return result;
}

async function begin(on: TransactionConnection): Promise<void> {
  try {
    await on.begin();
  } catch (error) {
    await on.giveUp(error);
    throw error;
  }
}

/** A rollback that fails leaves a connection of unknown state. */
async function end(on: TransactionConnection, statements: Statements): Promise<void> {
  const isKnown = await statements.close();
  if (!isKnown) return on.giveUp(statements.failure);
  await on.rollback().catch((error: unknown) => on.giveUp(error));
}

async function commit(on: TransactionConnection, onOutcomeUnknown: (() => void) | undefined): Promise<void> {
  // Nothing was sent: the outcome is known.
  if (on.broken !== undefined) throw databaseUnavailable(on.broken);
  try {
    await on.commit();
  } catch (error) {
    await on.giveUp(error);
    if (isRefusedByDatabase(error)) throw error;
    onOutcomeUnknown?.();
    throw databaseOutcomeUnknown(error);
  }
}

/** The statements of a transaction: one at a time, so that those behind it can still be refused. */
class Statements {
  readonly #on: TransactionConnection;
  readonly #deadlines: Pick<Deadlines, 'transactionMs' | 'scriptMs'>;
  /** `finishing`: the work has returned, and what it sent before still runs. */
  #state: 'open' | 'finishing' | 'closed' = 'open';
  #last: Promise<unknown> = Promise.resolve();
  #isExpired = false;
  #deadlineMs: number;
  /** The first failure of a statement. */
  failure: unknown;

  constructor(on: TransactionConnection, deadlines: Pick<Deadlines, 'transactionMs' | 'scriptMs'>) {
    this.#on = on;
    this.#deadlines = deadlines;
    this.#deadlineMs = deadlines.transactionMs;
  }

  /** Runs the work, and what it sent without waiting for it. Afterwards nothing more is sent. */
  async expiring<T>(work: (tx: Transaction) => Promise<T>): Promise<T> {
    const startedAt = performance.now();
    let timer: NodeJS.Timeout | undefined;
    const expired = new Promise<never>((_resolve, reject) => {
      const check = (): void => {
        const leftMs = this.#deadlineMs - (performance.now() - startedAt);
        if (leftMs > 0) {
          timer = setTimeout(check, leftMs);
          return;
        }
        this.#isExpired = true;
        this.#state = 'closed';
        this.failure ??= databaseTimeout();
        reject(databaseTimeout());
      };
      check();
    });
    try {
      return await Promise.race([this.#whole(work), expired]);
    } finally {
      this.#state = 'closed';
      clearTimeout(timer);
    }
  }

  /** Refuses what waits, and waits for what was sent. @returns whether the state of the transaction is known */
  async close(): Promise<boolean> {
    this.#state = 'closed';
    // The connection of an expired transaction is not waited for: its caller has waited long enough.
    if (!this.#isExpired) await this.#last;
    return !this.#isExpired && this.#on.broken === undefined && this.#isKnown();
  }

  async #whole<T>(work: (tx: Transaction) => Promise<T>): Promise<T> {
    const result = await work({
      query: (sql, params = []) => this.#inTurn(() => this.#on.query(sql, params)),
      script: (sql) => {
        // A transaction that runs a script (a migration) may take as long as the script.
        this.#deadlineMs = this.#deadlines.scriptMs;
        return this.#inTurn(() => this.#on.script(sql));
      },
    });
    if (this.#state === 'open') this.#state = 'finishing';
    await this.#last;
    if (this.failure !== undefined) throw this.failure;
    return result;
  }

  #inTurn<T>(send: () => Promise<T>): Promise<T> {
    if (this.#state !== 'open') return Promise.reject(this.#ended());
    const running = this.#last.then(async () => {
      if (this.#state === 'closed' || !this.#isKnown()) throw this.#ended();
      try {
        return await send();
      } catch (error) {
        this.failure ??= error;
        throw error;
      }
    });
    this.#last = running.catch(() => undefined);
    return running;
  }

  /** A refused statement leaves a known state. After any other failure, the statement may still run. */
  #isKnown(): boolean {
    return this.failure === undefined || isRefusedByDatabase(this.failure);
  }

  #ended(): AppError {
    return new AppError('transaction_ended', 'a statement came after its transaction had ended, and was not run', {
      cause: this.failure,
    });
  }
}
