import { describe, expect } from 'vitest';
import type { InstanceId, QueueName, StubId, TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import { newId, newInstanceId } from '#shared/domain/ids.ts';
import { createLog } from '#shared/log.ts';
import { Registry } from '#shared/metrics.ts';
import { keysOf } from '#scheduler/stores/queues/keys.ts';
import type { Keys } from '#scheduler/stores/queues/keys.ts';
import { RedisBus } from '#scheduler/cluster/bus.ts';
import { writeRecords } from '#scheduler/tasks/webhooks/callbacks.ts';
import { mayReplace } from '#scheduler/tasks/state.ts';
import { MAX_EVENT_BATCH } from '#scheduler/stores/store/queries/events.ts';
import { taskEvents } from '#scheduler/tasks/records/task-events.ts';
import type { RecordedChange } from '#scheduler/tasks/records/task-events.ts';
import { TaskRecords } from '#scheduler/tasks/records/records.ts';
import type { TaskRecord } from '#scheduler/tasks/records/task-record.ts';
import type { TaskRecordsOptions } from '#scheduler/tasks/records/records.ts';
import type { Redis } from 'ioredis';
import { test as base, waitFor } from '../helpers/services.ts';
import type { PrivateRedis } from '../helpers/services.ts';
import { aDb, KINDS } from './store-fixture.ts';
import { rowsOf } from './tasks-world.ts';

const log = createLog({ name: 'test', level: 'silent' });

function aRecord(changes: Partial<TaskRecord> = {}): TaskRecord {
  return {
    taskId: newId<TaskId>(),
    workspaceId: newId<WorkspaceId>(),
    stubId: newId<StubId>(),
    deploymentId: null,
    queue: 'tq-a' as QueueName,
    kind: 'endpoint',
    sync: true,
    status: 'PENDING',
    attempt: 0,
    rank: 0,
    containerId: null,
    failureReason: '',
    createdAtMs: 1,
    startedAtMs: null,
    endedAtMs: null,
    durationMs: null,
    deadlineMs: 2,
    ...changes,
  };
}
const running = (record: TaskRecord, attempt = 1): TaskRecord => ({ ...record, status: 'RUNNING', attempt, rank: 1 });
const complete = (record: TaskRecord, attempt = 1): TaskRecord => ({
  ...record,
  status: 'COMPLETE',
  attempt,
  rank: 3,
  result: '{"ok":true}',
});

/** The store's table and its guard in memory, with the promises of the real statement. */
class Table {
  readonly rows = new Map<TaskId, TaskRecord>();
  readonly writes: TaskRecord[][] = [];
  failure: Error | undefined;
  /** Awaited by every write. */
  gate: Promise<void> | undefined;
  readonly write = async (records: readonly TaskRecord[]): Promise<void> => {
    await this.gate;
    if (this.failure !== undefined) throw this.failure;
    this.writes.push([...records]);
    for (const record of records) {
      const held = this.rows.get(record.taskId);
      if (held === undefined || mayReplace(record, held)) this.rows.set(record.taskId, record);
    }
  };
  readonly load = (taskId: TaskId): Promise<TaskRecord | undefined> => Promise.resolve(this.rows.get(taskId));
  readonly ended = (taskIds: readonly TaskId[]): Promise<readonly TaskId[]> =>
    Promise.resolve(taskIds.filter((taskId) => (this.rows.get(taskId)?.rank ?? 0) >= 3));
}

interface World {
  readonly client: Redis;
  readonly eye: Redis;
  readonly keys: Keys;
  readonly table: Table;
  readonly records: TaskRecords;
  readonly make: (options?: Partial<TaskRecordsOptions>) => TaskRecords;
}

/** A client as the product's: it fails fast. */
async function aClient(redis: PrivateRedis): Promise<Redis> {
  const client = redis.connect({
    maxRetriesPerRequest: 1,
    enableOfflineQueue: false,
    commandTimeout: 300,
    retryStrategy: () => 20,
  });
  await waitFor(async () => client.status === 'ready', 'the client is connected');
  return client;
}

const test = base.extend('world', async ({ redis }, { onCleanup }): Promise<World> => {
  const client = await aClient(redis);
  const keys = keysOf(`r${newId().slice(0, 8)}`);
  const table = new Table();
  const made: TaskRecords[] = [];
  const make = (options: Partial<TaskRecordsOptions> = {}): TaskRecords => {
    const { load, ended, write } = table;
    const running = () => Promise.resolve(new Map<TaskId, number>());
    const parts = { client, keys, log, instance: newInstanceId(), load, ended, running, write };
    const records = new TaskRecords({ ...parts, collectMs: 20, patienceMs: 200, ...options });
    made.push(records);
    return records;
  };
  onCleanup(async () => {
    for (const records of made) await records.close();
    client.disconnect();
  });
  return { client, eye: redis.connect(), keys, table, records: make(), make };
});

const never = new AbortController().signal;

describe('appending and reading', () => {
  test('a record is readable from the moment it was appended', async ({ world: { records } }) => {
    const record = aRecord();
    void records.append(record);
    expect(await records.read(record.taskId)).toEqual(record);
    void records.append(complete(record));
    expect(await records.read(record.taskId)).toEqual(complete(record));
    expect(await records.read(newId<TaskId>())).toBeUndefined();
  });

  test('an older record that comes late does not hide a newer one', async ({ world: { records } }) => {
    const record = aRecord();
    await records.append(complete(record, 2));
    await records.append(running(record, 2));
    await records.append(complete(record, 1));
    expect(await records.read(record.taskId)).toEqual(complete(record, 2));
  });

  test('a record that nobody waits for is collected with others, newest per task, sorted by task', async ({
    world,
  }) => {
    const { make, table } = world;
    const records = make({ collectMs: 50 });
    const all = Array.from({ length: 20 }, () => aRecord());
    const safe = all.flatMap((record) => [record, running(record), complete(record)]).map((one) => records.append(one));
    expect(table.writes).toEqual([]);
    expect(await Promise.all(safe)).not.toContain(false);
    const sorted = all.map(complete).toSorted((a, b) => (a.taskId < b.taskId ? -1 : 1));
    expect(table.writes).toEqual([sorted.map((record) => ({ ...record, attempt: 1 }))]);
  });

  test('an open synchronous task is left for a moment, and one that ended within it is written once', async ({
    world,
  }) => {
    const { make, table } = world;
    const records = make({ collectMs: 100 });
    const [quick, slow, queued] = [running(aRecord()), running(aRecord()), running(aRecord({ sync: false }))];
    void records.append(queued);
    await records.append(queued);
    const open = records.append(slow);
    void records.append(quick);
    await records.append(complete(aRecord()), true);
    expect(table.rows.has(slow.taskId)).toBe(true);
    await open;
    await records.append(complete(quick));
    expect(table.writes.flat().filter(({ taskId }) => taskId === slow.taskId)).toHaveLength(1);
  });

  test('an end that somebody waits for goes out at once', async ({ world }) => {
    const { make, table } = world;
    const records = make({ collectMs: 60_000 });
    const [waits, ended] = [aRecord({ sync: false }), complete(aRecord())];
    void records.append(waits);
    expect(await records.append(ended, true)).toBe(true);
    expect([...table.rows.keys()].toSorted()).toEqual([waits.taskId, ended.taskId].toSorted());
  });

  test('a final record drops the lease of its attempt once it is written', async ({ world }) => {
    const { make, table, eye, keys } = world;
    const records = make();
    const record = aRecord({ sync: false });
    await eye.set(keys.lease(record.taskId), 'held');
    await records.append(running(record), true);
    expect(await eye.exists(keys.lease(record.taskId))).toBe(1);
    const gate = Promise.withResolvers<void>();
    table.gate = gate.promise;
    const written = records.append(complete(record), true);
    expect(await eye.exists(keys.lease(record.taskId))).toBe(1);
    gate.resolve();
    await written;
    await waitFor(async () => (await eye.exists(keys.lease(record.taskId))) === 0, 'the lease is gone');
  });

  test('the lease of a newer attempt stays', async ({ world: { records, client, keys } }) => {
    const record = aRecord({ sync: false });
    const lease = JSON.stringify({ lock: 'i.h', attempt: 2, containerId: 'c', machineId: 'm' });
    await client.set(keys.lease(record.taskId), lease);
    await records.append({ ...complete(record, 1), rank: 4 }, true);
    await client.ping();
    expect(await client.get(keys.lease(record.taskId))).toBe(lease);
  });

  test('a result above 256 KiB is refused, one of just that size is not', async ({ world: { records } }) => {
    const record = aRecord();
    expect(() => records.append({ ...record, result: 'ü'.repeat(131_073) })).toThrow(TypeError);
    expect(await records.append({ ...record, result: 'ü'.repeat(131_072) })).toBe(true);
  });

  test('a thousand and one records go in batches of 500', async ({ world: { records, table } }) => {
    await Promise.all(Array.from({ length: 1001 }, () => records.append(complete(aRecord()))));
    expect(table.writes.map((batch) => batch.length)).toEqual([500, 500, 1]);
  });

  test('a batch has 8 MiB at most', async ({ world: { records, table } }) => {
    const result = JSON.stringify('x'.repeat(200_000));
    await Promise.all(Array.from({ length: 60 }, () => records.append({ ...complete(aRecord()), result })));
    expect(table.writes.map((batch) => batch.length)).toEqual([41, 19]);
  });

  test('a batch has no more changes than one write may have events, also of a single task', async ({ world }) => {
    const { make } = world;
    const batches: (readonly RecordedChange[])[] = [];
    const [begun, gate] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const records = make({
      patienceMs: 60_000,
      write: async (_batch, changes) => {
        begun.resolve();
        await gate.promise;
        batches.push(changes);
        if (taskEvents(changes).length > MAX_EVENT_BATCH) throw new RangeError('too many events');
      },
    });
    void records.append(complete(aRecord()), true);
    await begun.promise;
    const all = Array.from({ length: 10 }, () => aRecord({ sync: false }));
    const safe = all.flatMap((record, nth) =>
      Array.from({ length: nth === 0 ? 1_500 : 250 }, (_, at) => records.append(running(record, at + 1))),
    );
    gate.resolve();
    expect(await Promise.all(safe)).not.toContain(false);
    const rows = batches.map((changes) => taskEvents(changes).length);
    expect(Math.max(...rows)).toBeLessThanOrEqual(MAX_EVENT_BATCH);
    expect(batches.flat().filter(({ record }) => record.taskId === all[1]?.taskId)).toHaveLength(250);
    const first = batches.flat().filter(({ record }) => record.taskId === all[0]?.taskId);
    expect([first[0]?.record.attempt, first.at(-1)?.record.attempt]).toEqual([1, 1_500]);
  });

  test('a record appended while a batch is being written stays for the next one', async ({ world }) => {
    const { records, table } = world;
    const record = aRecord({ sync: false });
    const gate = Promise.withResolvers<void>();
    table.gate = gate.promise;
    void records.append(record, true);
    await waitFor(() => !table.rows.has(record.taskId), 'it is under way');
    const ended = records.append(complete(record), true);
    gate.resolve();
    expect(await ended).toBe(true);
    expect(table.rows.get(record.taskId)).toEqual(complete(record));
  });

  test('a record that the database refuses is set aside and holds up no other', async ({ world }) => {
    const { make, table, eye, keys } = world;
    const bad = aRecord();
    const all = [aRecord(), aRecord(), bad, aRecord(), aRecord()];
    const refusal = Object.assign(new Error('no such workspace'), { code: '23503' });
    const records = make({
      write: async (batch) => {
        if (batch.some(({ taskId }) => taskId === bad.taskId)) throw new Error('cannot write', { cause: refusal });
        await table.write(batch);
      },
    });
    await Promise.all(all.map((record) => records.append(record, true)));
    const good = all.filter((record) => record !== bad).map(({ taskId }) => taskId);
    expect([...table.rows.keys()].toSorted()).toEqual(good.toSorted());
    expect((await eye.xrange(keys.recordsAside, '-', '+')).map(([, fields]) => fields[1])).toEqual([
      JSON.stringify(bad),
    ]);
  });
});

test('records that come while a process ends are written, and nothing that comes later is safe', async ({ world }) => {
  const { make, table } = world;
  const [first, second] = [complete(aRecord()), complete(aRecord())];
  const [begun, gate] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const records = make({
    collectMs: 300,
    patienceMs: 10_000,
    write: async (batch) => {
      begun.resolve();
      await gate.promise;
      await table.write(batch);
    },
  });
  void records.append(first, true);
  await begun.promise;
  const closing = records.close();
  const safe = records.append(second);
  gate.resolve();
  await closing;
  expect(await safe).toBe(true);
  expect(table.rows.has(second.taskId)).toBe(true);
  expect(await records.append(first)).toBe(false);
  expect(await records.safe(first.taskId)).toBe(false);
});

describe('what comes too late', () => {
  test('changes nothing: an older attempt, an earlier moment, anything but a late COMPLETE after the end', async ({
    world: { records },
  }) => {
    const record = aRecord();
    const error: TaskRecord = { ...record, status: 'ERROR', attempt: 2, rank: 3 };
    for (const one of [running(record, 2), running(record, 1), record, error, running(record, 3)])
      expect(await records.append(one, true)).toBe(true);
    expect(await records.read(record.taskId)).toEqual(error);
    await records.append({ ...complete(record, 1), rank: 4 }, true);
    expect(await records.read(record.taskId)).toEqual(error);
    const late: TaskRecord = { ...complete(record, 2), rank: 4 };
    for (const one of [late, { ...error, attempt: 3 }, { ...late, attempt: 3, result: '{}' }])
      await records.append(one, true);
    expect(await records.read(record.taskId)).toEqual(late);
  });

  test('batches out of order end with the newest record in the database', async ({ world }) => {
    const { make, table } = world;
    const record = aRecord();
    for (const one of [complete(record, 2), running(record, 1), record, running(record, 2)])
      await make().append(one, true);
    expect(table.rows.get(record.taskId)).toEqual(complete(record, 2));
  });
});

describe('a database that is away', () => {
  test('loses nothing for a moment, and is tried again until it answers', async ({ world }) => {
    const { make, table, keys, eye } = world;
    let tries = 0;
    const records = make({ patienceMs: 60_000, write: (batch) => ((tries += 1), table.write(batch)) });
    table.failure = new Error('connection refused');
    const record = complete(aRecord());
    const safe = records.append(record);
    await waitFor(() => tries === 2, 'it is tried again');
    table.failure = undefined;
    expect(await safe).toBe(true);
    expect(table.rows.get(record.taskId)).toEqual(record);
    expect(await eye.exists(keys.spilledRecords)).toBe(0);
  });

  test('has its records spilled after that, and moved back by the leader', async ({ world }) => {
    const { make, table } = world;
    const registry = new Registry();
    const records = make({ registry });
    table.failure = new Error('connection refused');
    const all = Array.from({ length: 7 }, () => complete(aRecord()));
    expect(await Promise.all(all.map((record) => records.append(record)))).not.toContain(false);
    expect(table.rows.size).toBe(0);
    expect(await registry.metrics()).toContain('longshore_task_records_backlog 7');
    await expect(records.moveSpilled(never)).rejects.toThrow('connection refused');
    table.failure = undefined;
    const leader = make();
    const reading = records.read(all[0]?.taskId as TaskId);
    await leader.moveSpilled(never);
    expect(await reading).toEqual(all[0]);
    expect([...table.rows.values()].toSorted(byTask)).toEqual(all.toSorted(byTask));
    expect(await records.readSurely(newId<TaskId>())).toBeUndefined();
  });

  test('does not keep a spilled batch that it can never take at the head of the list', async ({ world }) => {
    const { make, table, eye, keys } = world;
    table.failure = new Error('connection refused');
    const all = Array.from({ length: 3 }, () => complete(aRecord()));
    await Promise.all(all.map((record) => make().append(record)));
    table.failure = undefined;
    const bad = all[1]?.taskId as TaskId;
    const leader = make({
      write: async (batch) => {
        if (batch.some(({ taskId }) => taskId === bad)) throw new RangeError('too much');
        await table.write(batch);
      },
    });
    await leader.moveSpilled(never);
    const good = all.map(({ taskId }) => taskId).filter((taskId) => taskId !== bad);
    expect([...table.rows.keys()].toSorted()).toEqual(good.toSorted());
    expect(await eye.exists(keys.spilledRecords)).toBe(0);
    expect(await eye.xlen(keys.recordsAside)).toBe(1);
  });

  test('two leaders at once move every batch, and lose none', async ({ world }) => {
    const { make, table } = world;
    table.failure = new Error('connection refused');
    const records = make();
    const all = Array.from({ length: 1200 }, () => complete(aRecord()));
    await Promise.all(all.map((record) => records.append(record)));
    table.failure = undefined;
    await Promise.all([make().moveSpilled(never), make().moveSpilled(never)]);
    expect(table.rows.size).toBe(1200);
    expect(await make().caughtUp()).toBe(true);
  });

  test('that does not answer at all holds up no record for longer, and is asked once', async ({ world }) => {
    const { make, table } = world;
    const gate = Promise.withResolvers<void>();
    table.gate = gate.promise;
    let asked = 0;
    const records = make({ write: (batch) => ((asked += 1), table.write(batch)) });
    const [first, second] = [complete(aRecord()), complete(aRecord())];
    expect(await records.append(first)).toBe(true);
    expect(await records.append(second)).toBe(true);
    expect(asked).toBe(1);
    gate.resolve();
    await make().moveSpilled(never);
    expect(table.rows.size).toBe(2);
  });

  test('whose spill Redis loses gets the last batches again', async ({ world }) => {
    const { make, table, eye, keys } = world;
    table.failure = new Error('connection refused');
    const records = make();
    const record = complete(aRecord());
    await records.append(record);
    await eye.del(keys.spilledRecords, keys.spilledTotals);
    await records.redisLost();
    await records.redisLost();
    table.failure = undefined;
    await records.moveSpilled(never);
    expect(table.rows.get(record.taskId)).toEqual(record);
  });

  test('whose spill Redis loses later gets nothing again: the row may be gone for a reason', async ({ world }) => {
    const { make, table, eye, keys } = world;
    table.failure = new Error('connection refused');
    const records = make({ keptMs: 500 });
    await records.append(complete(aRecord()));
    await records.redisLost();
    expect(await eye.llen(keys.spilledRecords)).toBe(2);
    await waitFor(async () => {
      await eye.del(keys.spilledRecords, keys.spilledTotals);
      await records.redisLost();
      return (await eye.exists(keys.spilledRecords)) === 0;
    }, 'the batch is forgotten');
  });

  test('with Redis away, too, nothing is safe, and nothing is lost', async ({ redis, world }) => {
    const { make, table, client } = world;
    table.failure = new Error('connection refused');
    const records = make();
    await redis.crash();
    await waitFor(() => client.status !== 'ready', 'the client noticed');
    const record = complete(aRecord());
    const safe = records.append(record);
    expect(await records.flush()).toBe(false);
    await expect(records.read(record.taskId)).rejects.toMatchObject({ code: 'queues_unavailable' });
    table.failure = undefined;
    expect(await safe).toBe(true);
    expect(table.rows.get(record.taskId)).toEqual(record);
    await redis.restart();
  });

  test('admission closes while too many records wait, and opens by itself once they are moved', async ({ world }) => {
    const { make, table } = world;
    const records = make({ overloadedRecords: 10 });
    table.failure = new Error('connection refused');
    await Promise.all(Array.from({ length: 10 }, () => records.append(complete(aRecord()))));
    expect(records.isOverloaded()).toBe(false);
    await records.append(complete(aRecord()));
    expect(records.isOverloaded()).toBe(true);
    table.failure = undefined;
    await make().moveSpilled(never);
    await waitFor(async () => !records.isOverloaded(), 'admission is open again');
  });
});

describe('several replicas', () => {
  const replicas = async (redis: PrivateRedis, world: World, count: number) => {
    const instances = Array.from({ length: count }, () => newInstanceId());
    const made = instances.map(async (instance) => {
      const subscriber = redis.connect({ maxRetriesPerRequest: null, retryStrategy: () => 20 });
      const bus = new RedisBus(world.client, subscriber, log);
      const present = (): Promise<readonly InstanceId[]> => Promise.resolve(instances);
      const records = world.make({ instance, bus, present, collectMs: 60_000 });
      await bus.start();
      return { records, stop: () => bus.stop() };
    });
    type One = Awaited<(typeof made)[number]>;
    return (await Promise.all(made)) as unknown as readonly [One, One];
  };

  test('a reader at one sees what another holds, and a list too', async ({ redis, world }) => {
    const [one, two] = await replicas(redis, world, 3);
    const [first, second] = [aRecord(), complete(aRecord())];
    void one.records.append(first);
    expect(await two.records.read(first.taskId)).toEqual(first);
    void one.records.append(second);
    expect(await two.records.caughtUp()).toBe(true);
    expect(world.table.rows.get(second.taskId)).toEqual(second);
    expect(await two.records.readOver([first.taskId, second.taskId])).toEqual({
      over: new Map([[second.taskId, second]]),
      isComplete: true,
    });
  });

  test('readers of a moment share a question, and a final row asks nobody', async ({ redis, world }) => {
    const [one] = await replicas(redis, world, 2);
    const ended = complete(aRecord());
    world.table.rows.set(ended.taskId, ended);
    let questions = 0;
    const listener = redis.connect();
    await listener.subscribe(world.keys.pendingRecordsChannel);
    listener.on('message', () => (questions += 1));
    expect(await one.records.read(ended.taskId)).toEqual(ended);
    await Promise.all(Array.from({ length: 50 }, () => one.records.read(newId<TaskId>())));
    expect(questions).toBe(1);
  });

  test('one that is silent is waited for a second, once, and makes a read incomplete', async ({ redis, world }) => {
    const [one, two] = await replicas(redis, world, 2);
    two.stop();
    const open = aRecord();
    world.table.rows.set(open.taskId, open);
    expect(await one.records.read(open.taskId)).toEqual(open);
    const sinceMs = performance.now();
    expect(await one.records.caughtUp()).toBe(false);
    expect(await one.records.readOver([open.taskId])).toMatchObject({ isComplete: false });
    await expect(one.records.read(newId<TaskId>())).rejects.toMatchObject({ code: 'queues_unavailable' });
    // The silent one may know that the task ran: it must not be sent again.
    await expect(one.records.readSurely(open.taskId)).rejects.toMatchObject({ code: 'queues_unavailable' });
    expect(performance.now() - sinceMs).toBeLessThan(900);
  });
});

test('a task that only another replica may know is not unknown while Redis does not answer', async ({
  redis,
  world,
}) => {
  const { make, table } = world;
  const stored = aRecord();
  table.rows.set(stored.taskId, stored);
  const other = make();
  redis.freeze();
  try {
    await expect(other.read(newId<TaskId>())).rejects.toMatchObject({ code: 'queues_unavailable' });
    expect(await other.read(stored.taskId)).toEqual(stored);
  } finally {
    redis.thaw();
  }
});

const byTask = (a: TaskRecord, b: TaskRecord): number => (a.taskId < b.taskId ? -1 : 1);

test.for(KINDS)(
  'three writers with overlapping tasks write all, and never deadlock, on %s',
  async (kind, { world }) => {
    const opened = await aDb(kind);
    try {
      const { db } = opened;
      const failures: unknown[] = [];
      const writers = Array.from({ length: 3 }, () =>
        world.make({
          ...rowsOf(db),
          patienceMs: 30_000,
          write: (batch, changes) =>
            writeRecords(db, batch, changes).catch((error: unknown) => {
              failures.push(error);
              throw error;
            }),
        }),
      );
      const all = Array.from({ length: 300 }, () => aRecord());
      for (const attempt of [1, 2]) {
        const appended = writers.flatMap((writer, nth) =>
          (nth === 1 ? all.toReversed() : all).map((record) =>
            writer.append(nth === 2 ? complete(record, attempt) : running(record, attempt)),
          ),
        );
        expect(await Promise.all(appended)).not.toContain(false);
      }
      expect(failures).toEqual([]);
      const { rows } = await db.query<{ status: string; n: number }>(
        'select status, count(*)::int as n from tasks where queue = $1 group by status',
        ['tq-a'],
      );
      expect(rows).toEqual([{ status: 'COMPLETE', n: 300 }]);
    } finally {
      await opened.stop();
    }
  },
);
