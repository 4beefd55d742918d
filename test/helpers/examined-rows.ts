// How many rows a statement really looks at: the largest number of rows of any step of its plan.
import type { Queryable } from '#scheduler/stores/store/db.ts';

/** Runs statements on `db`, and explains each of them. */
export class Examined implements Queryable {
  readonly #db: Queryable;
  readonly #rows: number[] = [];

  constructor(db: Queryable) {
    this.#db = db;
  }

  /** Most rows that a step of any statement gave or left out. */
  get most(): number {
    return Math.max(0, ...this.#rows);
  }

  async query<R>(sql: string, params: readonly unknown[] = []) {
    const explained = `explain (analyze, timing off, costs off) ${sql}`;
    const { rows } = await this.#db.query<{ 'QUERY PLAN': string }>(explained, params);
    for (const row of rows)
      for (const [, given, removed] of row['QUERY PLAN'].matchAll(/rows=(\d+)|Rows Removed by [A-Za-z ]+: (\d+)/g))
        this.#rows.push(Number(given ?? removed));
    return this.#db.query<R>(sql, params);
  }
}
