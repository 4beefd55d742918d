// A Postgres server behind Db: a pool of connections for the platform and
// another for tenants' reads. Every statement has a deadline on both ends.
import pg from 'pg';
import { StartupError, messageOf } from '#shared/errors.ts';
import { sleep, withDeadline } from '#shared/backoff.ts';
import type { Log } from '#shared/log.ts';
import type { Db, Queryable, QueryOptions, QueryResult, Transaction } from './queryable.ts';
import type { AppError } from '#shared/errors.ts';
import { DEADLINES, databaseError, databaseNotReached, databaseTimeout, databaseUnavailable } from './limits.ts';
import type { Deadlines } from './limits.ts';
import { PreparedStatements } from './prepared.ts';
import { TenantReadQueue } from './tenant-reads.ts';
import { runTransaction } from './transaction.ts';
import type { TransactionConnection } from './transaction.ts';

const CONNECTIONS = { platform: 10, reads: 4 };
const CONNECT_DEADLINE_MS = 5_000;
const CLOSE_DEADLINE_MS = 10_000;
/** Tries for the first answer at a start. */
const FIRST_TRIES = 4;
const FIRST_PAUSE_MS = 500;
/** Code of a server that does not take connections yet. */
const STARTING_UP = '57P03';
/** SQLSTATE of a server that has no connection left. */
const TOO_MANY_CONNECTIONS = '53300';
/** The pool's words for a connection that it did not get in time. */
const NO_CONNECTION_IN_TIME = /timeout exceeded when trying to connect|due to connection timeout/;
const INT8 = 20;

function parseInt8(text: string): number | bigint {
  const value = Number(text);
  return Number.isSafeInteger(value) ? value : BigInt(text);
}

const TYPES: pg.CustomTypesConfig = {
  getTypeParser: ((oid: number, format?: 'text' | 'binary') =>
    oid === INT8 && format !== 'binary'
      ? parseInt8
      : pg.types.getTypeParser(oid, format)) as pg.CustomTypesConfig['getTypeParser'],
};

/** The printable part of a connection string: host, port and database. */
function placeOf(url: string): string {
  try {
    const parsed = new URL(url);
    const host = parsed.hostname === '' ? (parsed.searchParams.get('host') ?? 'localhost') : parsed.hostname;
    return `${decodeURIComponent(host)}:${parsed.port === '' ? '5432' : parsed.port}${parsed.pathname}`;
  } catch {
    return 'the given address';
  }
}

function unreachable(place: string, reason: string, cause: unknown): StartupError {
  return new StartupError(
    'database_unreachable',
    `cannot use the database at ${place} (${reason}): check DATABASE_URL and that the server runs`,
    { cause },
  );
}

/** @throws StartupError `database_unreachable`; its text never holds the password */
export async function openPostgres(options: {
  readonly url: string;
  readonly connections?: { readonly platform: number; readonly reads: number } | undefined;
  readonly log: Log;
  readonly deadlines?: Deadlines | undefined;
}): Promise<Db> {
  if (!/^postgres(ql)?:\/\//.test(options.url) || !URL.canParse(options.url)) {
    throw new StartupError(
      'database_unreachable',
      'DATABASE_URL is not a Postgres address: it must look like postgres://user:password@host:5432/database',
    );
  }
  const place = placeOf(options.url);
  const { connections = CONNECTIONS, deadlines = DEADLINES } = options;
  const poolOf = (name: string, max: number, deadlineMs: number): pg.Pool => {
    const made = new pg.Pool({
      connectionString: options.url,
      max,
      connectionTimeoutMillis: CONNECT_DEADLINE_MS,
      // The server itself cancels statements that run longer.
      statement_timeout: deadlineMs,
      query_timeout: deadlineMs + 500,
      idle_in_transaction_session_timeout: deadlines.transactionMs,
      keepAlive: true,
      application_name: name,
      types: TYPES,
    });
    // A connection that breaks while idle: the pool opens another when one is needed.
    made.on('error', (error) => options.log.info({ err: error }, 'idle database connection ended'));
    return made;
  };
  const pool = poolOf('longshore', connections.platform, deadlines.queryMs);
  try {
    await firstAnswer(pool, options.log);
  } catch (error) {
    await pool.end();
    throw unreachable(place, reasonOf(error), error);
  }
  const readPool = poolOf('longshore reads', connections.reads, deadlines.readMs);
  return new PostgresDb(pool, readPool, connections.reads, options.log, deadlines);
}

/** Asks until a server that is busy, or that has only begun to run, answers. Any other failure is final. */
async function firstAnswer(pool: pg.Pool, log: Log): Promise<void> {
  for (let tries = 1; ; tries += 1) {
    try {
      await pool.query('select 1');
      return;
    } catch (error) {
      if (tries >= FIRST_TRIES || !mayAnswerSoon(error)) throw error;
      log.warn({ err: error, tries }, 'the database does not answer yet, trying again');
      await sleep(FIRST_PAUSE_MS);
    }
  }
}

function mayAnswerSoon(error: unknown): boolean {
  const { code } = error as { readonly code?: unknown };
  return code === STARTING_UP || code === TOO_MANY_CONNECTIONS || /timeout/i.test(messageOf(error));
}

function reasonOf(error: unknown): string {
  if (error instanceof AggregateError && error.errors.length > 0) return messageOf(error.errors[0]);
  return messageOf(error);
}

function translate(error: unknown): AppError {
  const facts = error as { message: string; code?: unknown; constraint?: unknown };
  const code = typeof facts.code === 'string' ? facts.code : '';
  if (isUnconnected(error, code)) return databaseNotReached(error);
  if (code === '57014' || /timeout/i.test(messageOf(error))) return databaseTimeout(error);
  // Class 08 and 57P0x: the server or the way to it is gone. An
  // error without a five-letter state never reached the server.
  const isGone = !/^[0-9A-Z]{5}$/.test(code) || code.startsWith('08') || code.startsWith('57P');
  return isGone ? databaseUnavailable(error) : databaseError(facts);
}

/** Whether there was no connection for the statement. */
function isUnconnected(error: unknown, code: string): boolean {
  if (code === TOO_MANY_CONNECTIONS || code === STARTING_UP) return true;
  // Several addresses of a host were tried.
  const [tried] = error instanceof AggregateError ? (error.errors as unknown[]) : [error];
  if ((tried as { readonly syscall?: unknown } | undefined)?.syscall === 'connect') return true;
  return NO_CONNECTION_IN_TIME.test(messageOf(error));
}

class PostgresDb implements Db {
  readonly kind = 'postgres';
  readonly reads: TenantReadQueue;
  onOutcomeUnknown: (() => void) | undefined;
  readonly #pool: pg.Pool;
  readonly #readPool: pg.Pool;
  readonly #prepared: PreparedStatements;
  readonly #deadlines: Deadlines;
  #closing: Promise<void> | undefined;

  constructor(pool: pg.Pool, readPool: pg.Pool, readsAtOnce: number, log: Log, deadlines: Deadlines) {
    this.#deadlines = deadlines;
    this.#pool = pool;
    this.#prepared = new PreparedStatements(log);
    this.#readPool = readPool;
    this.reads = new TenantReadQueue(readsAtOnce, (sql, params) => run(readPool, sql, params));
  }

  async query<R>(
    sql: string,
    params: readonly unknown[] = [],
    { isPrepared = false }: QueryOptions = {},
  ): Promise<QueryResult<R>> {
    if (!isPrepared) return run<R>(this.#pool, sql, params);
    return answer<R>(this.#prepared.run(this.#pool, sql, params));
  }

  async transaction<T>(work: (tx: Transaction) => Promise<T>): Promise<T> {
    const client = await this.#pool.connect().catch((error: unknown) => {
      throw translate(error);
    });
    const connection = new PostgresConnection(client, this.#deadlines.scriptMs);
    try {
      return await runTransaction(connection, work, this.#deadlines, () => this.onOutcomeUnknown?.());
    } finally {
      connection.release();
    }
  }

  async session<T>(work: (session: Queryable) => Promise<T>): Promise<T> {
    const client = await this.#pool.connect().catch((error: unknown) => {
      throw translate(error);
    });
    // The statement under way says so, too.
    client.on('error', () => undefined);
    const { sessionMs } = this.#deadlines;
    try {
      await run(client, `set statement_timeout = ${sessionMs}`, []);
      return await work({
        query: (sql, params = []) =>
          answer(client.query({ text: sql, values: [...params], query_timeout: sessionMs } as pg.QueryConfig)),
      });
    } finally {
      // The session's settings and locks go with the connection.
      client.release(true);
    }
  }

  close(): Promise<void> {
    this.#closing ??= withDeadline(
      Promise.all([this.#pool.end(), this.#readPool.end()]).then(() => undefined),
      CLOSE_DEADLINE_MS,
      databaseTimeout,
    );
    return this.#closing;
  }
}

/** A connection of the pool, for one transaction. */
class PostgresConnection implements TransactionConnection {
  readonly #client: pg.PoolClient;
  readonly #scriptMs: number;
  broken: Error | undefined;
  readonly #onError = (error: Error): void => {
    this.broken ??= error;
  };

  constructor(client: pg.PoolClient, scriptMs: number) {
    this.#client = client;
    this.#scriptMs = scriptMs;
    client.on('error', this.#onError);
  }

  query<R>(sql: string, params: readonly unknown[]): Promise<QueryResult<R>> {
    return run(this.#client, sql, params);
  }

  async script(sql: string): Promise<void> {
    await run(this.#client, `set local statement_timeout = ${this.#scriptMs}`, []);
    await answer(this.#client.query({ text: sql, query_timeout: this.#scriptMs } as pg.QueryConfig));
  }

  begin(): Promise<unknown> {
    return run(this.#client, 'begin', []);
  }

  async commit(): Promise<void> {
    // The server answers the commit of a transaction that had failed with a rollback, and without an error.
    const { command } = await this.#client.query('commit').catch((error: unknown) => {
      throw translate(error);
    });
    if (command !== 'COMMIT') throw databaseError({ message: `the server answered the commit with ${command}` });
  }

  rollback(): Promise<unknown> {
    return run(this.#client, 'rollback', []);
  }

  /**
   * Closes the socket: the server then rolls back, after the statement under way, which has a deadline there too. A
   * goodbye in the protocol would wait behind that statement.
   */
  giveUp(cause: unknown): Promise<void> {
    this.broken ??= cause instanceof Error ? cause : new Error(messageOf(cause));
    (this.#client as unknown as { readonly connection: pg.Connection }).connection.stream.destroy();
    return Promise.resolve();
  }

  /** Gives the connection back, unless its state is unknown: the pool then opens another when one is needed. */
  release(): void {
    if (this.#client.getTransactionStatus() !== 'I') this.broken ??= new Error('a transaction was left open');
    this.#client.off('error', this.#onError);
    this.#client.release(this.broken);
  }
}

const run = <R>(
  on: Pick<pg.Pool, 'query'> | pg.PoolClient,
  sql: string,
  params: readonly unknown[],
): Promise<QueryResult<R>> => answer(on.query(sql, [...params]));

async function answer<R>(running: Promise<pg.QueryResult>): Promise<QueryResult<R>> {
  try {
    const result = await running;
    return { rows: result.rows as R[], rowCount: result.rowCount ?? 0 };
  } catch (error) {
    throw translate(error);
  }
}
