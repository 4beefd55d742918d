// Promises of a database: the types that both drivers implement and all other code programs against.

export interface QueryResult<R> {
  readonly rows: R[];
  /** Number of rows returned or changed. */
  readonly rowCount: number;
}

export interface QueryOptions {
  /**
   * The server keeps the statement parsed and planned on each connection. For a text that never varies and runs many
   * times a second; without effect in a transaction.
   */
  readonly isPrepared?: boolean;
}

/** The interface that statements need; transactions and the database itself both implement it. */
export interface Queryable {
  /**
   * Runs a statement. int8 arrives as a number when safe (else a bigint), timestamptz
   * as Date, json parsed, bytea as Uint8Array. A json parameter is given as JSON text.
   * @throws AppError `database_error` (details.sqlState): it had no effect; `database_timeout`, `database_unavailable`:
   * outside of a transaction it may have had one; `transaction_ended`: it was not run
   */
  query<R>(sql: string, params?: readonly unknown[], options?: QueryOptions): Promise<QueryResult<R>>;
}

/** A connection between begin and commit. */
export interface Transaction extends Queryable {
  /** Runs several statements without parameters or rows (migrations). */
  script(sql: string): Promise<void>;
}

/**
 * Statements for people's lists and pages of logs. These statements run apart
 * from those of the platform, in turns by workspace, and with a shorter deadline.
 */
export interface TenantReads {
  /**
   * @throws AppError `database_busy` when too many reads of the workspace
   * wait, `database_timeout` after 5 s of waiting or of running
   */
  of(workspaceId: string): Queryable;
  readonly waiting: number;
  onRead: ((outcome: 'ok' | 'failed' | 'refused', seconds: number) => void) | undefined;
}

export interface Db extends Queryable {
  readonly kind: 'pglite' | 'postgres';
  readonly reads: TenantReads;
  /**
   * Runs `work` on one connection, its statements one after another; a throw rolls back and is rethrown. Work that
   * hides a failed statement is rolled back all the same. The callback must not await statements of others, because
   * PGlite has one connection. It has no effect but its statements, because they may be rolled back.
   * @throws AppError `database_timeout` after 30 s; `database_outcome_unknown` when the commit was not answered
   */
  transaction<T>(work: (tx: Transaction) => Promise<T>): Promise<T>;
  /**
   * Runs `work` on a connection of its own, outside of transactions and for hours: for statements that no transaction
   * may have, such as the build of an index beside writers. Its locks end with it. Absent: there is one connection.
   */
  session?<T>(work: (session: Queryable) => Promise<T>): Promise<T>;
  /** Called when a commit was not answered: the change may be made, and nobody announces it. Set by its one user. */
  onOutcomeUnknown?: (() => void) | undefined;
  /** Ends running statements, flushes, and closes the files. Safe to call twice. */
  close(): Promise<void>;
}
