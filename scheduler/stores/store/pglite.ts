// PGlite behind Db: one worker thread with one connection. A transaction owns the connection until it ends, and other
// callers wait in a bounded line. Tenants' reads run one at a time, and after the platform's statements.
import { Worker } from 'node:worker_threads';
import { join } from 'node:path';
import { StartupError, messageOf } from '#shared/errors.ts';
import { withDeadline } from '#shared/backoff.ts';
import type { Log } from '#shared/log.ts';
import type { Db, QueryResult, Transaction } from './queryable.ts';
import { DEADLINES, databaseError, databaseNotReached, databaseTimeout, databaseUnavailable } from './limits.ts';
import type { Deadlines } from './limits.ts';
import { OPENED } from './pglite-protocol.ts';
import type { WorkerReply, WorkerRequest } from './pglite-protocol.ts';
import { keepUp } from './pglite-upkeep.ts';
import { lockDataDir } from './data-dir.ts';
import { TenantReadQueue } from './tenant-reads.ts';
import { runTransaction } from './transaction.ts';
import type { TransactionConnection } from './transaction.ts';
import type { DataDirLock } from './data-dir.ts';

const OPEN_DEADLINE_MS = 120_000;
const CLOSE_DEADLINE_MS = 10_000;
/**
 * Rows that pass through the thread are short-lived. Without a
 * bound, their part of the heap grows to 48 MB and stays that large.
 */
const YOUNG_MB = 16;
/** Statements and transactions waiting for the connection. */
const MAX_WAITING = 10_000;
/** Statements of the platform that may pass a waiting tenant's read; then the read has its turn. */
const MOST_PASSING = 100;

interface Pending {
  readonly resolve: (reply: QueryResult<unknown>) => void;
  readonly reject: (error: Error) => void;
}

/** @throws StartupError `data_dir_in_use`, `data_dir_unusable`, `database_broken` */
export async function openPglite(options: {
  readonly dataDir: string;
  readonly log: Log;
  readonly upkeepEveryMs?: number;
  readonly deadlines?: Deadlines | undefined;
  readonly onBegun?: (() => void) | undefined;
}): Promise<Db> {
  const lock = await lockDataDir(options.dataDir);
  const directory = join(options.dataDir, 'pglite');
  const worker = new Worker(new URL('./pglite-worker.ts', import.meta.url), {
    workerData: { directory },
    execArgv: [],
    resourceLimits: { maxYoungGenerationSizeMb: YOUNG_MB },
    stdout: true,
    stderr: true,
  });
  options.onBegun?.();
  // The engine's output has no reader, and would pile up if it were not drained.
  worker.stdout.resume();
  worker.stderr.resume();
  const db = new PgliteDb(worker, lock, options.log, options.deadlines ?? DEADLINES);
  try {
    await withDeadline(db.opened, OPEN_DEADLINE_MS, databaseTimeout);
    db.keepUp(options.upkeepEveryMs);
    return db;
  } catch (error) {
    await worker.terminate();
    await lock.release();
    throw new StartupError(
      'database_broken',
      `cannot open the embedded database in ${directory} (${messageOf(error)}): restore the directory from a copy, or move it away to start empty`,
      { cause: error },
    );
  }
}

class PgliteDb implements Db {
  readonly kind = 'pglite';
  readonly opened: Promise<unknown>;
  readonly #worker: Worker;
  readonly #lock: DataDirLock;
  readonly #log: Log;
  readonly #deadlines: Deadlines;
  readonly #pending = new Map<number, Pending>();
  readonly reads: TenantReadQueue;
  onOutcomeUnknown: (() => void) | undefined;
  readonly #line: (() => void)[] = [];
  /** Waiting reads of tenants. */
  readonly #readers: (() => void)[] = [];
  /** Platform statements since the last tenant's read. */
  #passed = 0;
  #owned = false;
  #nextId = OPENED + 1;
  #dead: Error | undefined;
  #closing: Promise<void> | undefined;
  #endUpkeep = (): void => undefined;

  constructor(worker: Worker, lock: DataDirLock, log: Log, deadlines: Deadlines) {
    this.#deadlines = deadlines;
    this.#worker = worker;
    this.#lock = lock;
    this.#log = log;
    this.reads = new TenantReadQueue(1, (sql, params) => this.#read(sql, params));
    this.opened = new Promise((resolve, reject) => {
      this.#pending.set(OPENED, { resolve, reject });
    });
    worker.on('message', (reply: WorkerReply) => this.#onReply(reply));
    worker.on('error', (error) => this.#onDeath(error instanceof Error ? error : new Error(String(error))));
    worker.on('exit', () => this.#onDeath(new Error('the database thread ended')));
  }

  /** Upkeep may take longer than a caller would wait; statements that come meanwhile wait in line. */
  keepUp(everyMs: number | undefined): void {
    this.#endUpkeep = keepUp({
      query: (sql) => this.#alone(() => this.#ask('query', sql, [])),
      log: this.#log,
      ...(everyMs === undefined ? {} : { everyMs }),
    });
  }

  async query<R>(sql: string, params: readonly unknown[] = []): Promise<QueryResult<R>> {
    const { queryMs } = this.#deadlines;
    return this.#within(queryMs, () => this.#alone(() => this.#ask<R>('query', sql, params), queryMs));
  }

  #read(sql: string, params: readonly unknown[]): Promise<QueryResult<unknown>> {
    const { readMs } = this.#deadlines;
    return this.#within(readMs, () => this.#alone(() => this.#ask('query', sql, params), readMs, 'read'));
  }

  /** PGlite cannot cancel a statement: what has begun goes on, and its caller no longer waits. */
  #within<R>(ms: number, ask: () => Promise<QueryResult<R>>): Promise<QueryResult<R>> {
    return withDeadline(ask(), ms, databaseTimeout);
  }

  async transaction<T>(work: (tx: Transaction) => Promise<T>): Promise<T> {
    const rollback = (): Promise<unknown> => this.#ask('script', 'rollback', []);
    const connection: TransactionConnection = {
      query: <R>(sql: string, params: readonly unknown[]) =>
        this.#within(this.#deadlines.queryMs, () => this.#ask<R>('query', sql, params)),
      script: (sql) => this.#ask('script', sql, []).then(() => undefined),
      begin: () => this.#ask('script', 'begin', []),
      commit: () => this.#ask('script', 'commit', []),
      rollback,
      // The thread runs the rollback behind the statement under way. A rollback that fails means that the thread is
      // gone, which is logged where that is noticed.
      giveUp: () =>
        rollback().then(
          () => undefined,
          () => undefined,
        ),
      broken: undefined,
    };
    const { transactionMs } = this.#deadlines;
    return this.#alone(
      () => runTransaction(connection, work, this.#deadlines, () => this.onOutcomeUnknown?.()),
      transactionMs,
    );
  }

  close(): Promise<void> {
    this.#endUpkeep();
    this.#closing ??= this.#close();
    return this.#closing;
  }

  /** @param waitMs - longest wait for the connection: work whose caller gave up in line never begins */
  async #alone<T>(work: () => Promise<T>, waitMs?: number, kind: 'platform' | 'read' = 'platform'): Promise<T> {
    if (this.#closing !== undefined) throw databaseUnavailable();
    if (this.#owned) await this.#turn(kind === 'read' ? this.#readers : this.#line, waitMs);
    this.#owned = true;
    try {
      return await work();
    } finally {
      const next = this.#next();
      if (next === undefined) this.#owned = false;
      else next();
    }
  }

  async #turn(line: (() => void)[], waitMs: number | undefined): Promise<void> {
    if (line === this.#line && line.length >= MAX_WAITING) {
      throw databaseNotReached(new Error('too many statements wait'));
    }
    if (line === this.#readers && line.length === 0) this.#passed = 0;
    let timer: NodeJS.Timeout | undefined;
    await new Promise<void>((resolve, reject) => {
      line.push(resolve);
      if (waitMs === undefined) return;
      timer = setTimeout(() => {
        const at = line.indexOf(resolve);
        if (at < 0) return;
        line.splice(at, 1);
        reject(databaseTimeout());
      }, waitMs);
    }).finally(() => clearTimeout(timer));
  }

  #next(): (() => void) | undefined {
    if (this.#readers.length === 0 || (this.#line.length > 0 && this.#passed < MOST_PASSING)) {
      this.#passed += 1;
      return this.#line.shift();
    }
    this.#passed = 0;
    return this.#readers.shift();
  }

  #ask<R>(kind: WorkerRequest['kind'], sql: string, params: readonly unknown[]): Promise<QueryResult<R>> {
    if (this.#dead !== undefined) return Promise.reject(databaseUnavailable(this.#dead));
    const id = this.#nextId++;
    const reply = new Promise<QueryResult<R>>((resolve, reject) => {
      this.#pending.set(id, { resolve: resolve as Pending['resolve'], reject });
    });
    const request: WorkerRequest = { id, kind, sql, params };
    try {
      this.#worker.postMessage(request);
    } catch (error) {
      this.#pending.delete(id);
      return Promise.reject(databaseError({ message: `a parameter cannot be sent: ${messageOf(error)}` }));
    }
    return reply;
  }

  #onReply(reply: WorkerReply): void {
    const pending = this.#pending.get(reply.id);
    this.#pending.delete(reply.id);
    if (reply.kind === 'rows') pending?.resolve({ rows: reply.rows, rowCount: reply.rowCount });
    else pending?.reject(reply.id === OPENED ? new Error(reply.message) : databaseError(reply));
  }

  #onDeath(error: Error): void {
    if (this.#dead !== undefined) return;
    this.#dead = error;
    this.#endUpkeep();
    if (this.#closing === undefined) this.#log.error({ err: error }, 'embedded database thread ended');
    for (const pending of this.#pending.values()) pending.reject(databaseUnavailable(error));
    this.#pending.clear();
  }

  async #close(): Promise<void> {
    try {
      // The request goes to the end of the thread's own queue: requests before it are answered first.
      if (this.#dead === undefined) {
        await withDeadline(this.#ask('close', '', []), CLOSE_DEADLINE_MS, databaseTimeout);
      }
    } finally {
      await this.#worker.terminate();
      await this.#lock.release();
    }
  }
}
