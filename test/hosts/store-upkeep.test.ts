import { afterAll, expect } from 'vitest';
import { openPglite } from '../../scheduler/stores/store/pglite.ts';
import { tempDirectory, test, waitFor } from '../helpers/services.ts';
import { silent } from '../integration/store-fixture.ts';

const MIB = 1024 * 1024;
const directories: { remove(): void }[] = [];
afterAll(() => {
  for (const directory of directories) directory.remove();
});
function aDirectory(): string {
  const directory = tempDirectory('data');
  directories.push(directory);
  return directory.path;
}

test('the embedded database cuts its log and uses the room of deleted rows again, by itself', async () => {
  const db = await openPglite({ dataDir: aDirectory(), log: silent, upkeepEveryMs: 100 });
  try {
    const one = async (sql: string): Promise<number> =>
      Number((await db.query<{ value: number }>(`select (${sql})::float8 as value`)).rows[0]?.value);
    const toReplay = (): Promise<number> =>
      one('select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), redo_lsn) from pg_control_checkpoint()');
    await db.query('create table filled (n integer primary key, text text)');
    const fill = async (from: number): Promise<void> => {
      await db.query(
        `insert into filled select n, repeat('x', 1000) from generate_series(${from}, ${from} + 9999) as n`,
      );
    };

    const written = await one("select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')");
    for (let from = 0; from < 100_000; from += 10_000) await fill(from);
    expect((await one("select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')")) - written).toBeGreaterThan(
      100 * MIB,
    );
    await waitFor(async () => (await toReplay()) < 64 * MIB, 'a checkpoint', 30_000);

    const size = await one("select pg_table_size('filled')");
    // The count of dead rows is told late: only a vacuum after the delete says that there is one.
    const vacuums = "select vacuum_count from pg_stat_user_tables where relname = 'filled'";
    const before = await one(vacuums);
    await db.query('delete from filled');
    await waitFor(async () => (await one(vacuums)) > before, 'a vacuum', 30_000);
    for (let from = 0; from < 100_000; from += 10_000) await fill(from);
    expect(await one("select pg_table_size('filled')")).toBeLessThan(1.1 * size);
  } finally {
    await db.close();
  }
});
