// Statements that Postgres keeps parsed and planned on a connection; and connections that keep none.
import { pino } from 'pino';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { openDb } from '#scheduler/stores/store/db.ts';
import type { Db } from '#scheduler/stores/store/db.ts';
import { aPostgres, tempDirectory } from '../helpers/services.ts';

const STATEMENT = 'select $1::int + 1 as more';
const lines: string[] = [];
const log = pino({ level: 'info' }, { write: (line) => void lines.push(line) });
let server: Awaited<ReturnType<typeof aPostgres>>;
let db: Db;
const dir = tempDirectory('db');

beforeAll(async () => {
  server = await aPostgres();
  db = await openDb({ databaseUrl: server.url, dataDir: dir.path, connections: { platform: 1, reads: 1 }, log });
});
afterAll(async () => {
  await db.close();
  await server.stop();
  dir.remove();
});

const more = async (of: number) => (await db.query(STATEMENT, [of], { isPrepared: true })).rows;
const kept = async () =>
  (await db.query<{ statement: string }>('select statement from pg_prepared_statements')).rows.map(
    (row) => row.statement,
  );

test('a statement is kept once, others are not', async () => {
  expect(await more(1)).toEqual([{ more: 2 }]);
  expect(await more(2)).toEqual([{ more: 3 }]);
  await db.query('select $1::int', [1]);
  expect(await kept()).toEqual([STATEMENT]);
});

test('errors of a kept statement are those of any', async () => {
  const failing = db.query('select 1 / $1::int', [0], { isPrepared: true });
  await expect(failing).rejects.toMatchObject({ code: 'database_error', details: { sqlState: '22012' } });
  expect(lines).toEqual([]);
});

test('where the connection has forgotten it, it runs without, once and for all', async () => {
  await more(0);
  await db.query('deallocate all');
  expect(await more(3)).toEqual([{ more: 4 }]);
  expect(await more(4)).toEqual([{ more: 5 }]);
  expect(await kept()).toEqual([]);
  expect(lines.filter((line) => line.includes('keeps no prepared statements'))).toHaveLength(1);
});
