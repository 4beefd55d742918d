// What a database promises, whichever it is: the types that both drivers keep and everybody else programs against.

export interface QueryResult<R> {
  readonly rows: R[];
  /** Rows returned or changed. */
  readonly rowCount: number;
}

/** What a statement needs; a transaction and the database itself are both one. */
export interface Queryable {
  /**
   * int8 arrives as a number when safe (else a bigint), timestamptz as Date, json parsed, bytea as Uint8Array. A json parameter is given as JSON text.
   * @throws AppError `database_error` (details.sqlState), `database_timeout`, `database_unavailable`
   */
  query<R>(sql: string, params?: readonly unknown[]): Promise<QueryResult<R>>;
}

/** One connection between begin and commit. */
export interface Transaction extends Queryable {
  /** Several statements without parameters or rows (migrations). */
  script(sql: string): Promise<void>;
}

/** Statements that people's lists and pages of logs need: apart from those of the platform, in turns by workspace, and given up sooner. */
export interface TenantReads {
  /** @throws AppError `database_busy` when too many of the workspace wait, `database_timeout` after 5 s of waiting or of running */
  of(workspaceId: string): Queryable;
  readonly waiting: number;
  onRead: ((outcome: 'ok' | 'failed' | 'refused', seconds: number) => void) | undefined;
}

export interface Db extends Queryable {
  readonly kind: 'pglite' | 'postgres';
  readonly reads: TenantReads;
  /** Runs `work` on one connection; a throw rolls back and is rethrown. Statements of others must not be awaited inside: PGlite has one connection. */
  transaction<T>(work: (tx: Transaction) => Promise<T>): Promise<T>;
  /** Ends what runs, flushes, lets go of the files. Safe to call twice. */
  close(): Promise<void>;
}
