// A migration that is one index on a table that may be large. Its file begins with the line `-- concurrently`, and has
// nothing but the statement. Pure.

export interface LargeIndex {
  readonly name: string;
  /** The statement that builds it beside writers, which no transaction may have. */
  readonly build: string;
}

const MARK = /^-- concurrently$/m;
const COMMENTS = /^\s*--.*$/gm;
const STATEMENT = /^create (unique )?index (?<name>[a-z_][a-z0-9_]*) on [^;]+;$/;

/**
 * @returns undefined: the migration is a script for a transaction
 * @throws Error when it is marked, and is not one index with a name
 */
export function largeIndexIn(migration: string, sql: string): LargeIndex | undefined {
  if (!MARK.test(sql)) return undefined;
  const statement = sql.replaceAll(COMMENTS, '').trim();
  const name = STATEMENT.exec(statement)?.groups?.['name'];
  if (name === undefined)
    throw new Error(`migration ${migration} is marked "-- concurrently" and must be one "create index name on …;"`);
  return { name, build: statement.replace(/^create (unique )?index /, (begin) => `${begin}concurrently `) };
}
