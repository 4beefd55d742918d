// Rows that the leader deletes for their age, on both kinds of stores, and rows that it never deletes.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { newId, newInstanceId } from '#shared/domain/ids.ts';
import type { DeliveryId, MachineId, ObjectId, TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import { Registry } from '#shared/metrics.ts';
import { prunedKinds } from '#scheduler/compose/retention.ts';
import { RetentionMetrics } from '#scheduler/tasks/retention/metrics.ts';
import { Retention } from '#scheduler/tasks/retention/retention.ts';
import { insertDeliveries } from '#scheduler/stores/store/queries/deliveries.ts';
import { insertLogLines } from '#scheduler/stores/store/queries/logs.ts';
import { insertMachine } from '#scheduler/stores/store/queries/machine-joins.ts';
import { getOrCreatePool } from '#scheduler/stores/store/queries/pools.ts';
import { OLDEST, PRUNE, oldestOf } from '#scheduler/stores/store/queries/retention.ts';
import { insertAcceptedTasks, taskById, upsertTaskRecords } from '#scheduler/stores/store/queries/tasks.ts';
import { TestClock } from '../helpers/test-clock.ts';
import { KINDS, aContainerId, aDb, aRecord, silent } from './store-fixture.ts';
import type { OpenedDb } from './store-fixture.ts';

const DAY_MS = 86_400_000;
const DAYS = { tasks: 30, inputs: 7, containers: 20, logs: 10, deliveries: 7, metrics: 8, samples: 0.25, events: 30 };

describe.each(KINDS)('on %s', (kind) => {
  let opened: OpenedDb;
  let clock: TestClock;
  const removed: ObjectId[] = [];
  const machinesGone: MachineId[] = [];
  const forgotten: string[] = [];
  beforeAll(async () => {
    opened = await aDb(kind);
    clock = new TestClock();
  });
  afterAll(() => opened.stop());

  function aRetention(over: { readonly turnMs?: number; readonly isLeader?: () => boolean } = {}) {
    const registry = new Registry();
    const retention = new Retention({
      kinds: prunedKinds({
        db: opened.db,
        clock,
        removeBytes: (id) => {
          removed.push(id);
          return Promise.reject(new Error('the store does not answer'));
        },
        machineGone: (id) => machinesGone.push(id),
        forgetQueue: async (queue) => void forgotten.push(queue),
        days: DAYS,
      }),
      oldest: (table) => oldestOf(opened.db, table),
      metrics: new RetentionMetrics(registry),
      clock,
      log: silent,
      isLeader: () => true,
      ...over,
    });
    return { retention, registry };
  }
  const agoMs = (days: number): number => Date.now() - days * DAY_MS;
  const count = async (table: string): Promise<number> => {
    const { rows } = await opened.db.query<{ n: number }>(`select count(*)::int as n from ${table}`);
    return rows[0]?.n ?? -1;
  };
  /** Writes tasks that ended so many days ago. */
  const manyTasks = (rows: number, days: number) =>
    opened.db.query(
      `insert into tasks (id, workspace_id, stub_id, queue, kind, sync, status, attempt, rank, result, created_at, ended_at)
       select gen_random_uuid()::text, 'w', 's', 'q', 'endpoint', true, 'COMPLETE', 1, 3, '{}', $2::timestamptz, $2::timestamptz
       from generate_series(1, $1::integer)`,
      [rows, new Date(agoMs(days))],
    );

  test('tasks go so many days after their end, with their results; what is not over stays however old', async () => {
    const workspaceId = newId<WorkspaceId>();
    const resultObjectId = newId<ObjectId>();
    const ofDay = (days: number, endedDays: number | null, over: object = {}) =>
      aRecord({
        workspaceId,
        createdAtMs: agoMs(days),
        ...(endedDays === null ? {} : { status: 'COMPLETE', attempt: 1, rank: 3, endedAtMs: agoMs(endedDays) }),
        ...over,
      });
    const old = ofDay(40, 31, { resultObjectId });
    const lately = ofDay(90, 29);
    const running = ofDay(90, null, { status: 'RUNNING', rank: 1 });
    const waiting = ofDay(90, null, { sync: false });
    await upsertTaskRecords(opened.db, [old, lately, running]);
    await insertAcceptedTasks(opened.db, [{ record: waiting, job: '{}', owner: newInstanceId() }]);
    const { retention, registry } = aRetention();
    expect(await retention.turn()).toEqual({ tasks: 1 });
    const isThere = async (id: TaskId) => (await taskById(opened.db, id)) !== undefined;
    const after = await Promise.all([old, lately, running, waiting].map(({ taskId }) => isThere(taskId)));
    expect(after).toEqual([false, true, true, true]);
    // The store did not answer, and no row was kept for that: the object collector finds the bytes.
    expect(removed).toEqual([resultObjectId]);
    expect(await registry.metrics()).toContain('longshore_scheduler_retention_deleted_total{kind="tasks"} 1');
    await opened.db.query('delete from tasks');
  });

  test('shared values go when their time has come, outputs as tasks do', async () => {
    const { db } = opened;
    await db.query(
      `insert into shared_entries (workspace_id, kind, name, key, encoding, value, bytes, expires_at)
       select 'w', 'map', 'm', n::text, 'json', '1', 3, now() + n * interval '1 hour' from unnest(array[-2, -1, 1]) n`,
    );
    await db.query(
      `insert into task_outputs (id, workspace_id, task_id, object_id, name, created_at)
       select n::text, 'w', 't', 'o', 'a', now() - n * interval '1 day' from unnest(array[29, 31]) n`,
    );
    await db.query("insert into workspaces (id, name, signing_key) values ('browsers', 'b', ''::bytea)");
    await db.query(
      "insert into tokens (id, workspace_id, hash, hint, type) values ('t', 'browsers', ''::bytea, '', 'workspace')",
    );
    await db.query(
      `insert into console_sessions (id, workspace_id, token_id, created_at, used_at, expires_at, ends_at)
       select n::text, 'browsers', 't', now(), now(), now() + n * interval '1 hour', now() + interval '1 day'
       from unnest(array[-2, -1, 1]) n`,
    );
    expect(await aRetention().retention.turn()).toEqual({ shared_entries: 2, console_sessions: 2, task_outputs: 1 });
    // The sessions of a token go with it, and so do those of a workspace.
    await db.query("delete from workspaces where id = 'browsers'");
    expect(await count('console_sessions')).toBe(0);
    expect([await count('shared_entries'), await count('task_outputs')]).toEqual([1, 1]);
  });

  test('samples go after their hours, sums of them after their days', async () => {
    const { db } = opened;
    const numbers = (columns: number): string => Array.from({ length: columns }, () => '0').join(', ');
    // Five hours, seven hours, seven days and nine days ago.
    const ages = 'unnest(array[5, 7, 168, 216]) as age';
    await db.query(
      `insert into metric_samples select step, now() - age * interval '1 hour', 'w', 's', 'c', 1, 1, ${numbers(15)}
       from unnest(array[5, 60, 3600]) step, ${ages}`,
    );
    await db.query(
      `insert into pool_samples select step, now() - age * interval '1 hour', 1, 1, ${numbers(11)}
       from unnest(array[5, 60, 300]) step, ${ages}`,
    );
    expect(await aRetention().retention.turn()).toEqual({
      metric_samples: 3,
      metric_minutes: 1,
      metric_hours: 1,
      pool_samples: 3,
      pool_minutes: 1,
      pool_five_minutes: 1,
    });
    expect([await count('metric_samples'), await count('pool_samples')]).toEqual([7, 7]);
  });

  test('events go by the time at which they were stored, those of every workspace', async () => {
    const { db } = opened;
    for (const [workspace, rows] of [
      ['old', 1_500],
      ['older', 20],
      ['young', 0],
    ] as const) {
      await db.query(`insert into event_counters (workspace_id, last_seq) values ($1, 2000)`, [workspace]);
      await db.query(
        `insert into events (workspace_id, seq, id, type, at, stored_at, data)
         select $1, n, n::text, 'task.created', now(), now() - case when n <= $2 then interval '31 days' else interval '1 day' end,
           '{}' from generate_series(1, 1600) n`,
        [workspace, rows],
      );
    }
    expect(await aRetention().retention.turn()).toEqual({ events: 1_520 });
    const { rows } = await db.query('select workspace_id, min(seq)::int as first from events group by 1 order by 1');
    expect(rows).toEqual([
      { workspace_id: 'old', first: 1_501 },
      { workspace_id: 'older', first: 21 },
      { workspace_id: 'young', first: 1 },
    ]);
    await db.query('delete from events');
  });

  test('containers, lines, deliveries and machines that never joined go after their own time; what lives, waits or has joined stays', async () => {
    const { db } = opened;
    const container = (state: string, endedDays: number | null) =>
      db.query(
        `insert into containers (id, workspace_id, stub_id, state, spec, slots, created_at, ended_at)
         values ($1, 'w', 's', $2, '{}', 1, now() - interval '90 days', $3::timestamptz)`,
        [aContainerId(), state, endedDays === null ? null : new Date(agoMs(endedDays))],
      );
    await container('STOPPED', 21);
    await container('LOST', 19);
    await container('RUNNING', null);
    // The container was lost and came back, so its row has had an end.
    await container('UNKNOWN', 25);
    const line = (atMs: number) => ({
      workspaceId: newId<WorkspaceId>(),
      stubId: aRecord().stubId,
      deploymentId: null,
      containerId: aContainerId(),
      taskId: null,
      stream: 'stdout' as const,
      line: 'x',
      atMs,
    });
    await insertLogLines(
      db,
      [11, 11, 9, -400, 12, 1].map((days) => line(agoMs(days))),
    );
    const delivery = (): DeliveryId => newId<DeliveryId>();
    const [over, lately, waits] = [delivery(), delivery(), delivery()];
    const about = {
      workspaceId: newId<WorkspaceId>(),
      kind: 'k',
      subject: 's',
      event: 'e',
      url: 'https://example.com/',
    };
    await insertDeliveries(
      db,
      [over, lately, waits].map((id) => ({ id, ...about })),
    );
    const aged = (id: string, days: number, isOver: boolean) =>
      db.query('update deliveries set updated_at = $2, due_at = $3 where id = $1', [
        id,
        new Date(agoMs(days)),
        isOver ? null : new Date(agoMs(days)),
      ]);
    await aged(over, 8, true);
    await aged(lately, 6, true);
    await aged(waits, 8, false);
    const pool = await getOrCreatePool(db, { name: 'default', workspaceId: null });
    const machine = async (id: string, expiredDays: number, joined: boolean) => {
      await insertMachine(db, {
        id: id as MachineId,
        poolId: pool.id,
        joinSecretHash: Buffer.from(id),
        joinExpiresAtMs: agoMs(expiredDays),
      });
      if (joined) await db.query('update machines set joined_at = now() where id = $1', [id]);
    };
    await machine('m-never', 2, false);
    await machine('m-lately', 0.5, false);
    await machine('m-joined', 90, true);

    await db.query('delete from workspace_usage');
    const usage = (days: number) =>
      db.query(`insert into workspace_usage (day, workspace_id) values (current_date - $1::integer, 'w')`, [days]);
    await usage(14);
    await usage(9);
    await usage(0);
    expect(await aRetention().retention.turn()).toEqual({
      workspace_usage: 1,
      containers: 1,
      log_lines: 4,
      deliveries: 1,
      machines: 1,
    });
    expect(machinesGone).toEqual(['m-never']);
    expect(
      await Promise.all(['containers', 'log_lines', 'deliveries', 'machines', 'workspace_usage'].map(count)),
    ).toEqual([3, 2, 2, 2, 2]);
    expect(await aRetention().retention.turn()).toEqual({});
  });

  test('deleted deployments and machines go last, and stubs that nothing names; a stub in use is looked at again later', async () => {
    const { db } = opened;
    const pool = await getOrCreatePool(db, { name: 'default', workspaceId: null });
    await db.query(
      `insert into machines (id, pool_id, joined_at, deleted_at)
       select 'm-' || n, $1, now(), now() - n * interval '1 day' from unnest(array[29, 31]) n`,
      [pool.id],
    );
    await db.query("insert into workspaces (id, name, signing_key) values ('ws', 'ws', ''::bytea)");
    await db.query("insert into apps (id, workspace_id, name) values ('app', 'ws', 'app')");
    const stub = (id: string, touchedDays: number) =>
      db.query(
        `insert into stubs (id, workspace_id, app_id, name, type, config, config_hash, touched_at)
         values ($1, 'ws', 'app', $1, 'function', '{}', $1, $2)`,
        [id, new Date(agoMs(touchedDays))],
      );
    const deployment = (stubId: string, version: number, deletedDays: number | null) =>
      db.query(
        `insert into deployments (id, workspace_id, app_id, stub_id, name, stub_type, version, subdomain, deleted_at)
         values ($1 || $2, 'ws', 'app', $1, $1, 'function', $2::integer, $1, $3)`,
        [stubId, version, deletedDays === null ? null : new Date(agoMs(deletedDays))],
      );
    for (const id of ['never-used', 'deleted', 'deleted-lately', 'deployed', 'has-task', 'has-container'])
      await stub(id, 31);
    await stub('asked-for', 29);
    await deployment('deleted', 1, 31);
    await deployment('deleted', 2, 40);
    await deployment('deleted-lately', 1, 29);
    await deployment('deployed', 1, 31);
    await deployment('deployed', 2, null);
    await db.query(
      `insert into tasks (id, workspace_id, stub_id, queue, kind, sync, status, attempt, rank, created_at)
       values (gen_random_uuid()::text, 'ws', 'has-task', 'q', 'function', true, 'RUNNING', 1, 1, now())`,
    );
    await db.query(
      `insert into containers (id, workspace_id, stub_id, state, spec, slots) values ($1, 'ws', 'has-container', 'RUNNING', '{}', 1)`,
      [aContainerId()],
    );
    await db.query(
      `insert into breakers (queue, fence, breaker) select 'tq-' || s, 1, '{}' from unnest(array['never-used', 'deployed']) s`,
    );
    const { retention } = aRetention();
    expect(await retention.turn()).toEqual({ deployments: 3, deleted_machines: 1, stubs: 2 });
    const ids = async (sql: string) => (await db.query<{ id: string }>(sql)).rows.map(({ id }) => id);
    expect(await ids('select id from stubs order by id')).toEqual([
      'asked-for',
      'deleted-lately',
      'deployed',
      'has-container',
      'has-task',
    ]);
    expect(await ids('select id from deployments order by id')).toEqual(['deleted-lately1', 'deployed2']);
    expect(await ids("select id from machines where id like 'm-%' and deleted_at is not null")).toEqual(['m-29']);
    expect(forgotten.toSorted()).toEqual(['tq-deleted', 'tq-never-used']);
    expect(await ids('select queue as id from breakers')).toEqual(['tq-deployed']);
    // Each one in use was looked at once.
    expect(await ids("select id from stubs where touched_at < now() - interval '30 days'")).toEqual([]);
    expect(await retention.turn()).toEqual({});
    for (const table of ['tasks', 'containers', 'breakers']) await db.query(`delete from ${table}`);
  });

  test('a turn has an end, the next one goes on, a replica that leads no more stops, and the metric says what is left', async () => {
    await manyTasks(300, 40);
    // A turn's time is over after one batch.
    const { retention, registry } = aRetention({ turnMs: 0.001 });
    await retention.turn();
    expect(await count('tasks')).toBe(300);
    expect(await registry.metrics()).toMatch(/retention_overdue_seconds\{kind="tasks"\} 8640\d\d/);
    let asked = 0;
    await aRetention({ isLeader: () => ++asked < 4 }).retention.turn();
    const left = await count('tasks');
    expect(left).toBeGreaterThan(0);
    expect(left).toBeLessThan(300);
    const last = aRetention();
    expect(await last.retention.turn()).toEqual({ tasks: left });
    expect(await last.registry.metrics()).toContain('retention_overdue_seconds{kind="tasks"} 0');
  });

  test('many rows go while queries of others are answered between any two batches', async () => {
    const rows = 8_000;
    await manyTasks(rows, 40);
    const kept = aRecord({ status: 'COMPLETE', rank: 3, endedAtMs: Date.now() });
    await upsertTaskRecords(opened.db, [kept]);
    const { retention, registry } = aRetention();
    let isOver = false;
    const turn = retention.turn().finally(() => (isOver = true));
    let answered = 0;
    while (!isOver) {
      expect((await taskById(opened.db, kept.taskId))?.taskId).toBe(kept.taskId);
      answered += 1;
    }
    expect(await turn).toEqual({ tasks: rows });
    const page = await registry.metrics();
    const batches = Number(/batch_duration_seconds_count\{kind="tasks"\} (\d+)/.exec(page)?.[1]);
    expect(batches).toBeGreaterThanOrEqual(rows / 1_000);
    expect(answered).toBeGreaterThan(batches);
    expect(await count('tasks')).toBe(1);
  });
});

describe('the plan of each statement', () => {
  let opened: OpenedDb;
  beforeAll(async () => {
    opened = await aDb('postgres');
    await opened.db.query(`
      insert into tasks (id, workspace_id, stub_id, queue, kind, sync, status, attempt, rank, created_at, ended_at)
      select n::text, 'w', 's', 'q', 'k', true, 'COMPLETE', 1, 3, now() - n * interval '1 minute', now() - n * interval '1 minute'
      from generate_series(1, 20000) n`);
    await opened.db.query(`
      insert into containers (id, workspace_id, stub_id, state, spec, slots, ended_at)
      select n::text, 'w', 's', 'STOPPED', '{}', 1, now() - n * interval '1 minute' from generate_series(1, 20000) n`);
    await opened.db.query(`
      insert into log_lines (workspace_id, stub_id, container_id, stream, line, at)
      select 'w', 's', 'c', 'stdout', 'x', now() - (20000 - n) * interval '1 minute' from generate_series(1, 20000) n`);
    await opened.db.query(`
      insert into deliveries (id, workspace_id, kind, subject, event, url, updated_at)
      select n::text, 'w', 'k', 's', 'e', 'u', now() - n * interval '1 minute' from generate_series(1, 20000) n`);
    await opened.db.query(`
      insert into workspaces (id, name, signing_key) values ('w', 'w', ''::bytea)`);
    await opened.db.query(`
      insert into webhooks (id, workspace_id, url, event_types, secret_hint, cursor_seq) values ('h', 'w', 'u', '[]', '', 0)`);
    await opened.db.query(`
      insert into webhook_deliveries (id, webhook_id, event_id, event_type, subject, state, attempts, created_at, updated_at)
      select n::text, 'h', n::text, 't', 's', 'delivered', 1, now(), now() - n * interval '1 minute' from generate_series(1, 20000) n`);
    await opened.db.query(`
      insert into idempotency_keys (workspace_id, scope, key, is_own, fingerprint, task_id, expires_at)
      select 'w', 's', n::text, true, 'f', n::text, now() - n * interval '1 minute' from generate_series(1, 20000) n`);
    await opened.db.query(
      "insert into tokens (id, workspace_id, hash, hint, type) values ('w', 'w', ''::bytea, '', 'workspace')",
    );
    await opened.db.query(`
      insert into console_sessions (id, workspace_id, token_id, created_at, used_at, expires_at, ends_at)
      select n::text, 'w', 'w', now(), now(), now() - n * interval '1 minute', now() from generate_series(1, 20000) n`);
    await opened.db.query(`
      insert into shared_entries (workspace_id, kind, name, key, encoding, value, bytes, expires_at)
      select 'w', 'map', 'm', n::text, 'json', '1', 3, now() - n * interval '1 minute' from generate_series(1, 20000) n`);
    await opened.db.query(`
      insert into task_outputs (id, workspace_id, task_id, object_id, name, created_at)
      select n::text, 'w', n::text, n::text, 'a', now() - n * interval '1 minute' from generate_series(1, 20000) n`);
    await opened.db.query(`
      insert into task_inputs (task_id, workspace_id, kept_at, bytes, job)
      select n::text, 'w', now() - n * interval '1 minute', 2, '{}' from generate_series(1, 20000) n`);
    await opened.db.query(`
      insert into events (workspace_id, seq, id, type, at, stored_at, data)
      select 'w', n, n::text, 'task.created', now(), now() - (20000 - n) * interval '1 minute', '{}' from generate_series(1, 20000) n`);
    await opened.db.query("insert into event_counters (workspace_id, last_seq) values ('w', 20000)");
    const pool = await getOrCreatePool(opened.db, { name: 'p', workspaceId: null });
    await opened.db.query(
      `insert into machines (id, pool_id, join_expires_at) select n::text, $1, now() - n * interval '1 minute' from generate_series(1, 20000) n`,
      [pool.id],
    );
    await opened.db.query(
      `insert into workspace_usage (day, workspace_id) select current_date - n % 100, n::text from generate_series(1, 20000) n`,
    );
    await opened.db.query(
      `insert into task_stats (workspace_id, bucket, stub_id, deployment_id, status)
       select 'w', now() - n * interval '1 minute', n::text, '', 'COMPLETE' from generate_series(1, 20000) n`,
    );
    await opened.db.query(
      `insert into machines (id, pool_id, joined_at, deleted_at)
       select 'd' || n, $1, now(), now() - n * interval '1 minute' from generate_series(1, 20000) n`,
      [pool.id],
    );
    await opened.db.query("insert into apps (id, workspace_id, name) values ('a', 'w', 'a')");
    await opened.db.query(
      `insert into stubs (id, workspace_id, app_id, name, type, config, config_hash, touched_at)
       select n::text, 'w', 'a', n::text, 'function', '{}', '', now() - n * interval '1 minute' from generate_series(1, 20000) n`,
    );
    await opened.db.query(
      `insert into deployments (id, workspace_id, app_id, stub_id, name, stub_type, version, subdomain, deleted_at)
       select n::text, 'w', 'a', n::text, n::text, 'function', 1, '', now() - n * interval '1 minute' from generate_series(1, 20000) n`,
    );
    const numbers = (columns: number): string => Array.from({ length: columns }, () => '0').join(', ');
    await opened.db.query(
      `insert into metric_samples select step, now() - n * interval '1 minute', 'w', 's', 'c' || n, 1, 1, ${numbers(15)}
       from generate_series(1, 20000) n, unnest(array[5, 60, 3600]) step`,
    );
    await opened.db.query(
      `insert into pool_samples select step, now() - n * interval '1 minute', n, 1, ${numbers(11)}
       from generate_series(1, 20000) n, unnest(array[5, 60, 300]) step`,
    );
    await opened.db.query('analyze');
  });
  afterAll(() => opened.stop());

  test.each(Object.keys(PRUNE) as (keyof typeof PRUNE)[])(
    'of %s reads an index, never the whole table',
    async (table) => {
      const before = new Date(Date.now() - 5 * DAY_MS);
      const others: Partial<Record<typeof table, readonly unknown[]>> = {
        log_lines: [0, 500, before, new Date()],
        events: [before, 500, ''],
      };
      const params = others[table] ?? [before, 500];
      for (const [sql, values] of [
        [PRUNE[table], params],
        [OLDEST[table], []],
      ] as const) {
        const { rows } = await opened.db.query<Record<string, string>>(`explain ${sql}`, values);
        const plan = rows.map((row) => Object.values(row)[0]).join('\n');
        expect(plan).toMatch(/Index/);
        // Counters of events have a row for each workspace, and breakers are few.
        expect(plan).not.toMatch(/Seq Scan on (?!event_counters|breakers)/);
      }
    },
  );
});
