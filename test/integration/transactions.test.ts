// The contract of a transaction, for both drivers: with a deadline, a refusal, a lost connection or a late statement at
// each await of its life, nothing of a failed transaction is visible, and nothing runs outside of one.
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { Client } from 'pg';
import { AppError } from '#shared/errors.ts';
import type { Db, Transaction } from '#scheduler/stores/store/db.ts';
import { DEADLINES, hadNoEffect } from '#scheduler/stores/store/limits.ts';
import { openPglite } from '#scheduler/stores/store/pglite.ts';
import { openPostgres } from '#scheduler/stores/store/postgres.ts';
import { HeldPostgres } from '../helpers/held-postgres.ts';
import type { Fault } from '../helpers/held-postgres.ts';
import { aPostgres, tempDirectory, waitFor } from '../helpers/services.ts';
import type { PrivatePostgres } from '../helpers/services.ts';
import { KINDS, silent } from './store-fixture.ts';

const SHORT_MS = 100;
const TABLES = `drop table if exists children, marks;
  create table marks (id int primary key, who int not null default 0);
  create table children (parent int references marks (id) deferrable initially deferred)`;

interface World {
  readonly db: Db;
  readonly deadlines: { transactionMs: number };
  readonly stop: () => Promise<void>;
}

let server: PrivatePostgres;
beforeAll(async () => (server = await aPostgres()));
afterAll(() => server.stop());

async function opened(kind: (typeof KINDS)[number]): Promise<World> {
  const deadlines = { ...DEADLINES };
  if (kind === 'postgres') {
    const connections = { platform: 3, reads: 1 };
    const db = await openPostgres({ url: server.url, connections, log: silent, deadlines });
    return { db, deadlines, stop: () => db.close() };
  }
  const directory = tempDirectory('transactions');
  const db = await openPglite({ dataDir: directory.path, log: silent, deadlines });
  const stop = async (): Promise<void> => {
    await db.close();
    directory.remove();
  };
  return { db, deadlines, stop };
}

const mark = (on: Pick<Transaction, 'query'>, id: number) => on.query('insert into marks (id) values ($1)', [id]);
const sleep = (on: Pick<Transaction, 'query'>, ms: number) => on.query('select pg_sleep($1)', [ms / 1000]);

async function marks(db: Db): Promise<readonly number[]> {
  return (await db.query<{ id: number }>('select id from marks order by id')).rows.map(({ id }) => id);
}

const codeOf = (error: unknown): string => (error instanceof AppError ? error.code : String(error));
const outcomeOf = (work: Promise<unknown>): Promise<string> => work.then(() => 'done', codeOf);

/** A promise and its resolution. */
const gate = () => Promise.withResolvers<undefined>();

describe.each(KINDS)('on %s', (kind) => {
  let world: World;
  beforeAll(async () => (world = await opened(kind)));
  beforeEach(() => world.db.transaction((tx) => tx.script(TABLES)));
  afterEach(() => (world.deadlines.transactionMs = DEADLINES.transactionMs));
  afterAll(() => world.stop());

  async function expiring(work: (tx: Transaction) => Promise<unknown>): Promise<string> {
    world.deadlines.transactionMs = SHORT_MS;
    const outcome = await outcomeOf(world.db.transaction(work));
    world.deadlines.transactionMs = DEADLINES.transactionMs;
    return outcome;
  }

  /** Transactions of others, as many as there are connections: each sees and keeps its own statement alone. */
  async function othersWork(): Promise<void> {
    const before = await marks(world.db);
    const ids = [101, 102, 103];
    await Promise.all(ids.map((id) => world.db.transaction((tx) => mark(tx, id))));
    expect(await marks(world.db)).toEqual([...before, ...ids].toSorted((a, b) => a - b));
    await world.db.query('delete from marks where id > 100');
  }

  test('statements after an expiry within a statement are refused, and nothing is kept', async () => {
    const late = gate();
    const outcomes: string[] = [];
    const outcome = await expiring(async (tx) => {
      await mark(tx, 1);
      await sleep(tx, 3 * SHORT_MS).catch(() => undefined);
      outcomes.push(await outcomeOf(mark(tx, 2)), await outcomeOf(mark(tx, 3)));
      late.resolve(undefined);
    });
    expect(outcome).toBe('database_timeout');
    await late.promise;
    expect(outcomes).toEqual(['transaction_ended', 'transaction_ended']);
    expect(await marks(world.db)).toEqual([]);
    await othersWork();
  });

  test('statements after an expiry between statements are refused, and nothing is kept', async () => {
    const goOn = gate();
    const late = gate();
    const outcomes: string[] = [];
    const outcome = await expiring(async (tx) => {
      await mark(tx, 1);
      await goOn.promise;
      const both = await Promise.all([outcomeOf(mark(tx, 2)), outcomeOf(tx.script('delete from marks'))]);
      outcomes.push(...both);
      late.resolve(undefined);
    });
    expect(outcome).toBe('database_timeout');
    goOn.resolve(undefined);
    await late.promise;
    expect(outcomes).toEqual(['transaction_ended', 'transaction_ended']);
    expect(await marks(world.db)).toEqual([]);
    await othersWork();
  });

  test('statements that were sent together and wait when the deadline comes are refused', async () => {
    const settled = gate();
    let outcomes: readonly string[] = [];
    const outcome = await expiring(async (tx) => {
      const sent = [sleep(tx, 3 * SHORT_MS), mark(tx, 1), mark(tx, 2), mark(tx, 3)];
      outcomes = await Promise.all(sent.map((one) => outcomeOf(one)));
      settled.resolve(undefined);
    });
    expect(outcome).toBe('database_timeout');
    await settled.promise;
    expect(outcomes.slice(1)).toEqual(['transaction_ended', 'transaction_ended', 'transaction_ended']);
    expect(await marks(world.db)).toEqual([]);
    await othersWork();
  });

  test('work that never settles ends at its deadline, and others go on', async () => {
    expect(
      await expiring(async (tx) => {
        await mark(tx, 1);
        await new Promise(() => undefined);
      }),
    ).toBe('database_timeout');
    expect(await marks(world.db)).toEqual([]);
    await othersWork();
  });

  test('work that throws later than its deadline is no unhandled rejection', async () => {
    const goOn = gate();
    const work = goOn.promise.then(() => Promise.reject(new Error('late')));
    expect(await expiring(() => work)).toBe('database_timeout');
    goOn.resolve(undefined);
    await expect(work).rejects.toThrow('late');
    await othersWork();
  });

  test('after many expiries in a row there are as many connections as before', async () => {
    for (let count = 0; count < 8; count += 1)
      expect(await expiring((tx) => mark(tx, count).then(() => new Promise(() => undefined)))).toBe('database_timeout');
    await othersWork();
    expect(await marks(world.db)).toEqual([]);
  });

  test('a handle that is kept after the end is refused, after a commit and after a rollback', async () => {
    let kept: Transaction | undefined;
    await world.db.transaction((tx) => mark((kept = tx), 1));
    expect(await outcomeOf(mark(kept as Transaction, 2))).toBe('transaction_ended');
    const failing = world.db.transaction(async (tx) => {
      await mark((kept = tx), 3);
      throw new Error('no');
    });
    await expect(failing).rejects.toThrow('no');
    expect(await outcomeOf(mark(kept as Transaction, 4))).toBe('transaction_ended');
    expect(await outcomeOf((kept as Transaction).script('delete from marks'))).toBe('transaction_ended');
    expect(await marks(world.db)).toEqual([1]);
  });

  test('a handle is refused as soon as the work has returned, before the commit is answered', async () => {
    const outcomes: Promise<string>[] = [];
    await world.db.transaction(async (tx) => {
      await mark(tx, 1);
      queueMicrotask(() => queueMicrotask(() => setImmediate(() => outcomes.push(outcomeOf(mark(tx, 2))))));
    });
    await waitFor(async () => outcomes.length > 0, 'the late statement was sent');
    expect(await Promise.all(outcomes)).toEqual(['transaction_ended']);
    expect(await marks(world.db)).toEqual([1]);
  });

  test('work that hides a refused statement commits nothing, and its call fails with the refusal', async () => {
    await mark(world.db, 1);
    const hiding = world.db.transaction(async (tx) => {
      await mark(tx, 2);
      await mark(tx, 1).catch(() => undefined);
      return 'as if it were kept';
    });
    await expect(hiding).rejects.toMatchObject({ code: 'database_error', details: { sqlState: '23505' } });
    expect(await marks(world.db)).toEqual([1]);
    await othersWork();
  });

  test('statements that nobody waits for belong to the transaction, also their failure', async () => {
    await world.db.transaction(async (tx) => {
      await mark(tx, 1);
      void mark(tx, 2);
      void mark(tx, 3);
    });
    expect(await marks(world.db)).toEqual([1, 2, 3]);
    const failing = world.db.transaction(async (tx) => {
      await mark(tx, 4);
      mark(tx, 1).catch(() => undefined);
    });
    expect(await outcomeOf(failing)).toBe('database_error');
    expect(await marks(world.db)).toEqual([1, 2, 3]);
  });

  test('when one of several statements at once fails, none of the others is kept', async () => {
    await mark(world.db, 1);
    const failing = world.db.transaction((tx) => Promise.all([1, 2, 3, 4].map((id) => mark(tx, id))));
    expect(await outcomeOf(failing)).toBe('database_error');
    expect(await marks(world.db)).toEqual([1]);
    await othersWork();
  });

  test('a refused commit is a refusal, and nothing is kept', async () => {
    const refused = world.db.transaction(async (tx) => {
      await mark(tx, 1);
      await tx.query('insert into children values (7)');
    });
    await expect(refused).rejects.toMatchObject({ code: 'database_error', details: { sqlState: '23503' } });
    expect(await marks(world.db)).toEqual([]);
    await othersWork();
  });
});

describe('on embedded PGlite', () => {
  let world: World;
  beforeAll(async () => (world = await opened('pglite')));
  afterAll(() => world.stop());

  test('a statement or a transaction whose caller gave up in line never begins', async () => {
    const { db, deadlines } = world;
    await db.transaction((tx) => tx.script(TABLES));
    const free = gate();
    const holding = db.transaction(() => free.promise);
    Object.assign(deadlines, { queryMs: SHORT_MS, transactionMs: SHORT_MS, readMs: SHORT_MS });
    const waiting = [mark(db, 1), db.transaction((tx) => mark(tx, 2)), mark(db.reads.of('w'), 3)];
    expect(await Promise.all(waiting.map((one) => outcomeOf(one)))).toEqual(Array(3).fill('database_timeout'));
    Object.assign(deadlines, DEADLINES);
    free.resolve(undefined);
    await holding;
    await mark(db, 4);
    expect(await marks(db)).toEqual([4]);
  });
});

describe('on a Postgres server whose cable is held or cut', () => {
  let cable: HeldPostgres;
  let db: Db;
  let direct: Client;
  beforeAll(async () => {
    const url = await server.createDatabase('cable');
    cable = await HeldPostgres.to(url);
    const deadlines = { ...DEADLINES, queryMs: SHORT_MS, transactionMs: 5_000 };
    db = await openPostgres({ url: cable.url, connections: { platform: 2, reads: 1 }, log: silent, deadlines });
    direct = new Client({ connectionString: url });
    await direct.connect();
  });
  beforeEach(() => direct.query(TABLES));
  afterAll(async () => {
    await db.close();
    cable.stop();
    await direct.end();
  });

  const kept = async (): Promise<readonly number[]> =>
    (await direct.query<{ id: number }>('select id from marks order by id')).rows.map(({ id }) => id);

  /** The pool has all of its connections again, and none is in the middle of a transaction. */
  async function poolIsWhole(): Promise<void> {
    const free = gate();
    let begun = 0;
    const both = [1, 2].map(() =>
      db.transaction(async (tx) => {
        const { rows } = await tx.query<{ alone: boolean }>('select pg_current_xact_id_if_assigned() is null as alone');
        expect(rows).toEqual([{ alone: true }]);
        begun += 1;
        if (begun === 2) free.resolve(undefined);
        await free.promise;
      }),
    );
    await Promise.all(both);
  }

  const faults: readonly Fault[] = (['begin', '/* 1 */', '/* 2 */', 'commit'] as const).flatMap((at) =>
    (['before', 'after'] as const).flatMap((when) => (['hold', 'cut'] as const).map((how) => ({ at, when, how }))),
  );

  test.each(faults)('$how $when the server has “$at”: all or nothing, and the error says which', async (fault) => {
    cable.plant(fault);
    const outcomes: string[] = [];
    const ended = gate();
    let unknown = 0;
    db.onOutcomeUnknown = () => (unknown += 1);
    const outcome = await outcomeOf(
      db.transaction(async (tx) => {
        for (const id of [1, 2, 3])
          outcomes.push(await outcomeOf(tx.query(`insert into marks values (${id}) /* ${id} */`)));
        ended.resolve(undefined);
      }),
    );
    expect(cable.isMet).toBe(true);
    const failure = fault.how === 'hold' ? 'database_timeout' : 'database_unavailable';
    expect(outcome).toBe(fault.at === 'commit' ? 'database_outcome_unknown' : failure);
    expect(unknown).toBe(fault.at === 'commit' ? 1 : 0);
    if (fault.at !== 'begin') await ended.promise;
    const refused = ['transaction_ended', 'transaction_ended', 'transaction_ended'];
    if (fault.at === '/* 1 */') expect(outcomes).toEqual([failure, ...refused.slice(1)]);
    if (fault.at === '/* 2 */') expect(outcomes).toEqual(['done', failure, 'transaction_ended']);
    await poolIsWhole();
    // The server gets what was held, long after the client has left.
    await cable.letGo();
    await poolIsWhole();
    await waitFor(async () => [0, 3].includes((await kept()).length), 'all or nothing is kept');
    const isKept = fault.at === 'commit' && (fault.when === 'after' || fault.how === 'hold');
    expect(await kept()).toEqual(isKept ? [1, 2, 3] : []);
  });

  test('a statement alone that is held discards its connection, and another takes its place', async () => {
    for (const isPrepared of [false, true]) {
      cable.plant({ at: '/* alone */', when: 'before', how: 'hold' });
      const alone = db.query('select 1 /* alone */', [], { isPrepared });
      expect(await outcomeOf(alone)).toBe('database_timeout');
      await poolIsWhole();
      await cable.letGo();
      expect((await db.query('select 1 as one /* alone */', [], { isPrepared })).rows).toHaveLength(1);
    }
  });

  test('a connection that the server ends between two statements commits nothing, and says so', async () => {
    const failing = db.transaction(async (tx) => {
      const { rows } = await tx.query<{ pid: number }>('select pg_backend_pid() as pid');
      await tx.query('insert into marks values (1)');
      await direct.query('select pg_terminate_backend($1)', [rows[0]?.pid]);
      await waitFor(
        async () => (await direct.query('select from pg_stat_activity where pid = $1', [rows[0]?.pid])).rowCount === 0,
        'the connection has ended',
      );
    });
    // A commit that was sent into a dead socket is of unknown outcome; one that was not sent is not.
    expect(['database_unavailable', 'database_outcome_unknown']).toContain(await outcomeOf(failing));
    expect(await kept()).toEqual([]);
    await poolIsWhole();
  });

  test('the connection of an expired transaction ends, and that of a failed one is used again', async () => {
    const pidOf = async (tx: Transaction): Promise<number> =>
      (await tx.query<{ pid: number }>('select pg_backend_pid() as pid')).rows[0]?.pid ?? 0;
    let pid = 0;
    await outcomeOf(db.transaction(async (tx) => Promise.reject(new Error(String((pid = await pidOf(tx)))))));
    expect(await db.transaction(pidOf)).toBe(pid);
    const slow = db.transaction(async (tx) => {
      pid = await pidOf(tx);
      await tx.query('select pg_sleep(10)');
    });
    expect(await outcomeOf(slow)).toBe('database_timeout');
    await waitFor(
      async () => (await direct.query('select from pg_stat_activity where pid = $1', [pid])).rowCount === 0,
      'the server has ended the connection',
    );
    await poolIsWhole();
  });
});

test('a server that has no connection left is unavailable, and answers as soon as it has', async () => {
  const root = new Client(server.url);
  await root.connect();
  const url = new URL(server.url);
  url.username = 'crowded';
  await root.query('create role crowded login connection limit 2');
  const db = await openPostgres({ url: url.href, connections: { platform: 2, reads: 1 }, log: silent });
  const other = new Client(url.href);
  try {
    await db.query('select 1');
    await other.connect();
    const [first, second] = await Promise.allSettled([db.query('select pg_sleep(0.2)'), db.query('select 1')]);
    expect(first.status).toBe('fulfilled');
    expect(second).toMatchObject({ status: 'rejected', reason: { code: 'database_unavailable' } });
    expect(second.status === 'rejected' && hadNoEffect(second.reason)).toBe(true);
    const [held, begun] = await Promise.allSettled([
      db.query('select pg_sleep(0.2)'),
      db.transaction((tx) => tx.query('select 1')),
    ]);
    expect(held.status).toBe('fulfilled');
    expect(begun).toMatchObject({ status: 'rejected', reason: { code: 'database_unavailable' } });
    await other.end();
    await waitFor(() => db.transaction((tx) => tx.query('select 1')).then(Boolean), 'it has one again');
  } finally {
    await other.end();
    await db.close();
    await root.query('drop role crowded');
    await root.end();
  }
});

test('a statement for which there is no connection had no effect, and one that was sent may have one', async () => {
  const cable = await HeldPostgres.to(server.url);
  const db = await openPostgres({ url: cable.url, connections: { platform: 1, reads: 1 }, log: silent });
  const root = new Client(server.url);
  await root.connect();
  try {
    const sent = db.query('select pg_sleep(10)').catch((error: unknown) => error);
    await waitFor(
      async () => (await root.query(`select from pg_stat_activity where query = 'select pg_sleep(10)'`)).rowCount === 1,
      'the statement runs',
    );
    cable.stop();
    expect(hadNoEffect(await sent)).toBe(false);
    const unsent: unknown = await db.query('select 1').catch((error: unknown) => error);
    expect(unsent).toMatchObject({ code: 'database_unavailable' });
    expect(hadNoEffect(unsent)).toBe(true);
  } finally {
    await root.query(`select pg_terminate_backend(pid) from pg_stat_activity where query = 'select pg_sleep(10)'`);
    await root.end();
    await db.close();
  }
});
