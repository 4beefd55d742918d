import { cpSync, existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';
import { join } from 'node:path';
import { afterAll, describe, expect } from 'vitest';
import { openDb } from '../../scheduler/stores/store/db.ts';
import { migrate } from '../../scheduler/stores/store/migrate.ts';
import { listMigrations } from '../../scheduler/stores/store/schema-files.ts';
import { startProgram, tempDirectory, test, waitFor } from '../helpers/services.ts';
import { silent } from '../integration/store-fixture.ts';

const holder = new URL('../fixtures/hold-data-dir.ts', import.meta.url).pathname;
const directories: { remove(): void }[] = [];
afterAll(() => {
  for (const directory of directories) directory.remove();
});
function aDirectory(): string {
  const directory = tempDirectory('data');
  directories.push(directory);
  return directory.path;
}

describe('the data directory', () => {
  test('belongs to one process, and to the next one after a kill', async () => {
    const dataDir = aDirectory();
    const other = await startProgram(process.execPath, [holder, dataDir]);
    try {
      await waitFor(() => other.output().includes('open'), 'the other process opens the directory', 60_000);
      await expect(openDb({ dataDir, log: silent })).rejects.toMatchObject({
        code: 'data_dir_in_use',
        message: expect.stringContaining(dataDir) as string,
      });
    } finally {
      await other.end('SIGKILL');
    }
    expect(existsSync(join(dataDir, 'pglite.lock.sock'))).toBe(true);
    // Two processes open the directory at once after the kill: exactly one gets it.
    const outcomes = await Promise.allSettled([openDb({ dataDir, log: silent }), openDb({ dataDir, log: silent })]);
    const opened = outcomes.flatMap((outcome) => (outcome.status === 'fulfilled' ? [outcome.value] : []));
    const refused = outcomes.flatMap((outcome) => (outcome.status === 'rejected' ? [outcome.reason as unknown] : []));
    expect(refused).toMatchObject([{ code: 'data_dir_in_use' }]);
    const [db] = opened;
    expect((await db?.query('select n from kept'))?.rows).toEqual([{ n: 1 }]);
    await db?.close();
    await db?.close();
    expect(existsSync(join(dataDir, 'pglite.lock.sock'))).toBe(false);
    await expect(db?.query('select 1')).rejects.toMatchObject({ code: 'database_unavailable' });
  });

  test('that cannot be made is named with the cure', async () => {
    const file = join(aDirectory(), 'file');
    writeFileSync(file, '');
    await expect(openDb({ dataDir: join(file, 'data'), log: silent })).rejects.toMatchObject({
      code: 'data_dir_unusable',
      message: expect.stringMatching(/file\/data \(ENOTDIR\).*LONGSHORE_DATA_DIR/) as string,
    });
  });

  test('on a file system that takes nothing is named with the cure', async () => {
    await expect(openDb({ dataDir: '/sys/longshore', log: silent })).rejects.toMatchObject({
      code: 'data_dir_unusable',
    });
  });

  test('opens again after a kill in the middle of a start', async () => {
    const dataDir = aDirectory();
    const [directory, unfinished] = [join(dataDir, 'pglite'), join(dataDir, 'pglite.new')];
    // The kill came while the database was made.
    mkdirSync(unfinished);
    writeFileSync(join(unfinished, 'PG_VERSION'), '18\n');
    const first = await openDb({ dataDir, log: silent });
    await first.query('create table kept (n int)');
    await first.query('insert into kept values (1)');
    await first.close();
    expect(existsSync(unfinished)).toBe(false);
    // The kill came between the making of this file and its first byte.
    writeFileSync(join(directory, 'postmaster.pid'), '');
    const second = await openDb({ dataDir, log: silent });
    expect((await second.query('select n from kept')).rows).toEqual([{ n: 1 }]);
    await second.close();
  });

  test('that the engine refuses is named with the words of the engine', async () => {
    const dataDir = aDirectory();
    await (await openDb({ dataDir, log: silent })).close();
    writeFileSync(join(dataDir, 'pglite', 'postgresql.conf'), 'shared_bufers = 1\n');
    await expect(openDb({ dataDir, log: silent })).rejects.toMatchObject({
      code: 'database_broken',
      message: expect.stringMatching(/postgresql\.conf|shared_bufers/) as string,
    });
  });

  test('with damaged files is named and let go', async () => {
    const dataDir = aDirectory();
    mkdirSync(join(dataDir, 'pglite'));
    writeFileSync(join(dataDir, 'pglite', 'PG_VERSION'), '18\n');
    await expect(openDb({ dataDir, log: silent })).rejects.toMatchObject({ code: 'database_broken' });
    expect(existsSync(join(dataDir, 'pglite.lock.sock'))).toBe(false);
  });
});

describe('DATABASE_URL', () => {
  const open = (databaseUrl: string) => openDb({ databaseUrl, dataDir: '/nonexistent', log: silent });

  test('that is no Postgres address is refused by name', async () => {
    await expect(open('mysql://u:hunter2@host/db')).rejects.toMatchObject({
      code: 'database_unreachable',
      message: expect.stringContaining('DATABASE_URL') as string,
    });
  });

  test('nobody answers at is refused without its password', async () => {
    const error: unknown = await open('postgres://user:hunter2@127.0.0.1:1/books').catch((caught: unknown) => caught);
    expect(error).toMatchObject({ code: 'database_unreachable' });
    const { message } = error as Error;
    expect(message).toContain('127.0.0.1:1/books');
    expect(message).not.toContain('hunter2');
  });

  test('of a server that is slow to answer its first connection is asked again', async ({ postgres }) => {
    const url = new URL(postgres.url);
    const port = Number(url.port);
    const sockets: Socket[] = [];
    // The first connection meets silence, and further ones the server.
    const server = createServer((socket) => {
      sockets.push(socket.on('error', () => undefined));
      if (sockets.length === 1) return;
      const way = connect(port, url.hostname).on('error', () => undefined);
      socket.pipe(way).pipe(socket);
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    url.port = String((server.address() as AddressInfo).port);
    const db = await open(url.href);
    expect((await db.query('select 1 as one')).rows).toEqual([{ one: 1 }]);
    expect(sockets.length).toBeGreaterThan(1);
    await db.close();
    for (const socket of sockets) socket.destroy();
    server.close();
  });

  test('of a server that comes back after a crash is used again', async ({ postgres }) => {
    const db = await open(postgres.url);
    await db.query('select 1');
    await postgres.crash();
    await expect(db.query('select 1')).rejects.toMatchObject({ code: 'database_unavailable' });
    await expect(db.transaction((tx) => tx.query('select 1'))).rejects.toMatchObject({ code: 'database_unavailable' });
    await postgres.restart();
    await waitFor(
      () =>
        db
          .query('select 1')
          .then(() => true)
          .catch(() => false),
      'the database answers again',
    );
    await db.close();
  });

  test('a statement that takes too long is given up, and its connection serves again', async ({ postgres }) => {
    const db = await open(postgres.url);
    await expect(
      db.transaction(async (tx) => {
        await tx.query("select set_config('statement_timeout', '50', true)");
        await tx.query('select pg_sleep(5)');
      }),
    ).rejects.toMatchObject({ code: 'database_timeout' });
    expect((await db.query('select 1 as one')).rows).toEqual([{ one: 1 }]);
    await db.close();
  });
});

describe('migrations', () => {
  test('are numbered without gaps', async () => {
    const migrations = await listMigrations();
    expect(migrations.map((migration) => migration.version)).toEqual(migrations.map((_migration, index) => index + 1));
  });

  test('run once when replicas start together', async ({ postgres }) => {
    const databaseUrl = await postgres.createDatabase('together');
    const replicas = await Promise.all(
      [1, 2, 3].map(() => openDb({ databaseUrl, dataDir: '/nonexistent', log: silent })),
    );
    await Promise.all(replicas.map((db) => migrate(db)));
    const { rows } = await replicas[0]!.query('select version, name from schema_migrations');
    const all = (await listMigrations()).map(({ version, name }) => ({ version, name }));
    expect(rows).toEqual(all);
    await Promise.all(replicas.map((db) => db.close()));
  });

  test('that fail leave nothing, and those before them stay', async ({ postgres }) => {
    const directory = aDirectory();
    cpSync(new URL('../../scheduler/stores/store/migrations', import.meta.url).pathname, directory, {
      recursive: true,
    });
    const versions = (await listMigrations()).map(({ version }) => version);
    const next = versions.length + 1;
    const second = join(directory, `${String(next).padStart(4, '0')}_second.sql`);
    writeFileSync(second, 'create table extra (n integer);\ncreate table extra (n integer);\n');
    const databaseUrl = await postgres.createDatabase('failing');
    const db = await openDb({ databaseUrl, dataDir: '/nonexistent', log: silent });
    await expect(migrate(db, silent, directory)).rejects.toMatchObject({ code: 'database_error' });
    expect((await db.query('select version from schema_migrations order by version')).rows).toEqual(
      versions.map((version) => ({ version })),
    );
    expect((await db.query("select to_regclass('extra')::text as found")).rows).toEqual([{ found: null }]);
    writeFileSync(second, 'create table extra (n integer);\n');
    await migrate(db, silent, directory);
    expect((await db.query('select max(version) as version from schema_migrations')).rows).toEqual([{ version: next }]);
    // Code without the second migration must not touch a database that has it.
    await expect(migrate(db)).rejects.toMatchObject({ code: 'database_newer' });
    await db.close();
  });
});
