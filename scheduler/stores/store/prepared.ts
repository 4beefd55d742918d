// Names of statements that a Postgres server keeps parsed and planned on each connection.
import { createHash } from 'node:crypto';
import type pg from 'pg';
import type { Log } from '#shared/log.ts';

/**
 * Errors of a connection that is not the one where the statement was prepared, as behind a connection pooler; and of a
 * plan that no longer fits after a migration.
 */
const NOT_KEPT = new Set(['26000', '42P05', '0A000']);

export class PreparedStatements {
  readonly #log: Log;
  readonly #names = new Map<string, string>();
  #isOff = false;

  constructor(log: Log) {
    this.#log = log;
  }

  /** Runs a statement outside of transactions. Where names are not kept, all further ones run without a name. */
  async run(on: Pick<pg.Pool, 'query'>, text: string, params: readonly unknown[]): Promise<pg.QueryResult> {
    const values = [...params];
    if (this.#isOff) return await on.query(text, values);
    try {
      return await on.query({ name: this.#nameOf(text), text, values });
    } catch (error) {
      if (!NOT_KEPT.has(String((error as { code?: unknown }).code))) throw error;
      this.#isOff = true;
      this.#log.info({ err: error }, 'this database keeps no prepared statements: they run without a name');
      return await on.query(text, values);
    }
  }

  #nameOf(text: string): string {
    const known = this.#names.get(text);
    if (known !== undefined) return known;
    // Another version's statement behind the same pooler has another name.
    const name = `longshore_${createHash('sha256').update(text).digest('hex').slice(0, 32)}`;
    this.#names.set(text, name);
    return name;
  }
}
