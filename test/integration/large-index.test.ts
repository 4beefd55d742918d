// Migrations that build an index beside writers, on a real server: by replicas that start together, while a transaction
// of an older replica is open, and after a crash that left the index half built.
import { cpSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { Client } from 'pg';
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import type { Db } from '#scheduler/stores/store/db.ts';
import { migrate } from '#scheduler/stores/store/migrate.ts';
import { openPostgres } from '#scheduler/stores/store/postgres.ts';
import { listMigrations } from '#scheduler/stores/store/schema-files.ts';
import { aPostgres, tempDirectory, waitFor } from '../helpers/services.ts';
import type { PrivatePostgres } from '../helpers/services.ts';
import { aDb, silent } from './store-fixture.ts';

const INDEX = '-- concurrently\ncreate unique index things_by_n on things (n);\n';
const VALID = "select indisvalid as valid from pg_index where indexrelid = to_regclass('things_by_n')";

/** Migrations of a table with an index that is built beside writers, and one more behind it. */
function files(): { readonly first: string; readonly all: string } {
  const written = (contents: readonly string[]): string => {
    const directory = tempDirectory('migrations');
    onTestFinished(() => directory.remove());
    contents.forEach((sql, at) => writeFileSync(join(directory.path, `000${at + 1}_step.sql`), sql));
    return directory.path;
  };
  const table = 'create table things (n int);\ninsert into things select generate_series(1, 1000);\n';
  return { first: written([table]), all: written([table, INDEX, 'create table later (n int);\n']) };
}

describe('on Postgres', () => {
  let server: PrivatePostgres;
  let url = '';
  let direct: Client;
  let made = 0;
  beforeAll(async () => (server = await aPostgres()));
  afterAll(() => server.stop());
  beforeEach(async () => {
    url = await server.createDatabase(`index_${(made += 1)}`);
    direct = new Client(url);
    await direct.connect();
    onTestFinished(() => direct.end());
  });

  async function aReplica(): Promise<Db> {
    const db = await openPostgres({ url, log: silent });
    onTestFinished(() => db.close());
    return db;
  }
  const facts = async (): Promise<unknown> => ({
    index: (await direct.query(VALID)).rows,
    versions: (await direct.query('select version from schema_migrations order by version')).rows.length,
  });
  const WHOLE = { index: [{ valid: true }], versions: 3 };

  test('replicas that start together build it once, writers go on, and it waits for an open transaction', async () => {
    const { first, all } = files();
    await migrate(await aReplica(), silent, first);
    // A replica of the version before is in the middle of a transaction.
    await direct.query('begin');
    await direct.query('insert into things values (2000)');
    const replicas = await Promise.all([aReplica(), aReplica(), aReplica()]);
    const starting = Promise.all(replicas.map((db) => migrate(db, silent, all)));
    const other = await aReplica();
    const isBuilding = async (): Promise<boolean> =>
      (await other.query("select from pg_stat_activity where query like 'create unique index concurrently%'"))
        .rowCount > 0;
    await waitFor(isBuilding, 'a replica builds the index');
    await other.query('insert into things values (3000)');
    await direct.query('insert into things values (4000)');
    expect(await isBuilding()).toBe(true);
    await direct.query('commit');
    await starting;
    expect(await facts()).toEqual(WHOLE);
    await expect(direct.query('insert into things values (3000)')).rejects.toThrow('things_by_n');
  });

  test('one that a crash left invalid is dropped and built again', async () => {
    const { first, all } = files();
    const db = await aReplica();
    await migrate(db, silent, first);
    await direct.query('insert into things values (1)');
    await expect(migrate(db, silent, all)).rejects.toMatchObject({ code: 'database_error' });
    expect(await facts()).toEqual({ index: [{ valid: false }], versions: 1 });
    await direct.query('delete from things where ctid in (select max(ctid) from things where n = 1)');
    await migrate(db, silent, all);
    expect(await facts()).toEqual(WHOLE);
  });

  test('one that an operator has made before is taken as it is', async () => {
    const { first, all } = files();
    const db = await aReplica();
    await migrate(db, silent, first);
    await direct.query('create unique index concurrently things_by_n on things (n)');
    const oid = async (): Promise<unknown> => (await direct.query("select 'things_by_n'::regclass::oid as oid")).rows;
    const before = await oid();
    await migrate(db, silent, all);
    expect(await facts()).toEqual(WHOLE);
    expect(await oid()).toEqual(before);
  });
});

test('the embedded database builds it within its transaction', async () => {
  const directory = tempDirectory('index');
  // A prepared database has the real migrations already.
  const migrations = await listMigrations();
  const later = ['create table things (n int);\n', INDEX];
  for (const { file } of migrations) cpSync(file, join(directory.path, basename(file)));
  later.forEach((sql, at) => {
    const version = String(migrations.length + at + 1).padStart(4, '0');
    writeFileSync(join(directory.path, `${version}_step.sql`), sql);
  });
  const opened = await aDb('pglite');
  try {
    await migrate(opened.db, silent, directory.path);
    expect((await opened.db.query(VALID)).rows).toEqual([{ valid: true }]);
  } finally {
    await opened.stop();
    directory.remove();
  }
});
