import { cpSync, existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { openDb } from '#scheduler/stores/store/db.ts';
import { migrate } from '#scheduler/stores/store/migrate.ts';
import { listMigrations } from '#scheduler/stores/store/schema-files.ts';
import { templatePath } from '#scheduler/stores/store/template.ts';
import { tempDirectory } from '../helpers/services.ts';
import { silent } from './store-fixture.ts';

test('a first start copies the database that set-up prepared, also behind one that was killed in the middle of its copy', async () => {
  const directory = tempDirectory('first');
  try {
    const half = join(directory.path, 'pglite.new');
    mkdirSync(half);
    writeFileSync(join(half, 'PG_VERSION'), '');
    const db = await openDb({ dataDir: directory.path, log: silent });
    // Migrations have run, before anybody called them here.
    const { rows } = await db.query('select version from schema_migrations order by version');
    expect(rows).toEqual((await listMigrations()).map(({ version }) => ({ version })));
    expect(existsSync(half)).toBe(false);
    // Rows of one installation, such as its keys, must not be those of another one.
    await migrate(db);
    const tables = await db.query<{ name: string; rows: number }>(
      `select table_name as name, (xpath('/row/n/text()', query_to_xml('select count(*) as n from ' || table_name, false, true, '')))[1]::text::int as rows
       from information_schema.tables where table_schema = 'public' order by table_name`,
    );
    expect(tables.rows.filter(({ rows: count }) => count > 0).map(({ name }) => name)).toEqual([
      'leadership',
      'schema_migrations',
    ]);
    expect((await db.query('select fence from leadership')).rows).toEqual([{ fence: 0 }]);
    await db.close();
  } finally {
    directory.remove();
  }
});

test('code with another schema has another template', async () => {
  const directory = tempDirectory('schema');
  try {
    const [first] = await listMigrations();
    cpSync(first?.file ?? '', join(directory.path, '0001_initial.sql'));
    const path = await templatePath(directory.path);
    writeFileSync(join(directory.path, '0001_initial.sql'), 'create table other (n integer);\n');
    expect(await templatePath(directory.path)).not.toBe(path);
    expect(await templatePath()).not.toBe(path);
  } finally {
    directory.remove();
  }
});
