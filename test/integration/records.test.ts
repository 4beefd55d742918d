import { describe, expect, onTestFinished, vi } from 'vitest';
import type { QueueName, StubId, TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import { newId } from '#shared/domain/ids.ts';
import { createLog } from '#shared/log.ts';
import { Registry } from '#shared/metrics.ts';
import { keysOf } from '#scheduler/stores/queues/keys.ts';
import type { Keys } from '#scheduler/stores/queues/keys.ts';
import { Drainer } from '#scheduler/tasks/records/drainer.ts';
import type { DrainerOptions } from '#scheduler/tasks/records/drainer.ts';
import { encodeTaskRecord, isNewer } from '#scheduler/tasks/records/task-record.ts';
import { TaskRecords } from '#scheduler/tasks/records/records.ts';
import type { TaskRecord } from '#scheduler/tasks/records/task-record.ts';
import type { TaskRecordsOptions } from '#scheduler/tasks/records/records.ts';
import type { Redis } from 'ioredis';
import { test as base, waitFor } from '../helpers/services.ts';

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
  readonly write = async (records: readonly TaskRecord[]): Promise<void> => {
    if (this.failure !== undefined) throw this.failure;
    this.writes.push([...records]);
    for (const record of records) {
      const held = this.rows.get(record.taskId);
      if (held === undefined || !isNewer(held, record)) this.rows.set(record.taskId, record);
    }
  };
}

interface World {
  readonly client: Redis;
  readonly eye: Redis;
  readonly keys: Keys;
  readonly table: Table;
  readonly records: TaskRecords;
  readonly drainer: Drainer;
  readonly make: (options?: Partial<TaskRecordsOptions>) => TaskRecords;
  readonly drain: (options?: Partial<DrainerOptions>) => Drainer;
}

const test = base.extend('world', async ({ redis }, { onCleanup }): Promise<World> => {
  const client = redis.connect({
    maxRetriesPerRequest: 1,
    enableOfflineQueue: false,
    commandTimeout: 300,
    retryStrategy: () => 20,
  });
  await waitFor(async () => client.status === 'ready', 'the client is connected');
  const keys = keysOf(`r${newId().slice(0, 8)}`);
  const table = new Table();
  const made: TaskRecords[] = [];
  const make = (options: Partial<TaskRecordsOptions> = {}): TaskRecords => {
    const records = new TaskRecords({ client, keys, log, loadFromDb: async (id) => table.rows.get(id), ...options });
    made.push(records);
    return records;
  };
  const drain = (options: Partial<DrainerOptions> = {}): Drainer =>
    new Drainer({ client, keys, log, write: table.write, ...options });
  onCleanup(async () => {
    for (const records of made) await records.close();
    client.disconnect();
  });
  return { client, eye: redis.connect(), keys, table, records: make(), drainer: drain(), make, drain };
});

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

  test('after the drain a record is read from the database', async ({
    world: { records, drainer, eye, keys, table },
  }) => {
    const record = aRecord();
    await records.append(complete(record));
    expect(await eye.ttl(keys.task(record.taskId))).toBeGreaterThan(200);
    await drainer.flush();
    expect(await eye.ttl(keys.task(record.taskId))).toBeLessThanOrEqual(300);
    await eye.del(keys.task(record.taskId));
    expect(table.rows.get(record.taskId)).toEqual(complete(record));
    expect(await records.read(record.taskId)).toEqual(complete(record));
  });

  test('a large result leaves Redis a minute after the database has it', async ({ world }) => {
    const { records, drainer, eye, keys } = world;
    const record = { ...complete(aRecord()), result: 'x'.repeat(100_000) };
    await records.append(record);
    expect(await eye.ttl(keys.task(record.taskId))).toBeGreaterThan(3500);
    await drainer.flush();
    expect(await eye.ttl(keys.task(record.taskId))).toBeLessThanOrEqual(60);
  });

  test('a record that may wait is written once it has, and not at all when a newer one came first', async ({
    world,
  }) => {
    const { records, eye, keys } = world;
    const slow = running(aRecord());
    records.appendSoon(slow);
    expect(await records.read(slow.taskId)).toEqual(slow);
    expect(await eye.exists(keys.task(slow.taskId))).toBe(0);
    await waitFor(async () => (await eye.exists(keys.task(slow.taskId))) === 1, 'it was written');
    const quick = running(aRecord());
    const before = await eye.xlen(keys.records);
    records.appendSoon(quick);
    await records.append(complete(quick));
    await records.flush();
    expect(await eye.xlen(keys.records)).toBe(before + 1);
  });

  test('a final record drops the lease of its attempt', async ({ world: { records, eye, keys } }) => {
    const record = aRecord();
    await eye.set(keys.lease(record.taskId), 'held');
    await records.append(running(record));
    expect(await eye.exists(keys.lease(record.taskId))).toBe(1);
    await records.append(complete(record));
    expect(await eye.exists(keys.lease(record.taskId))).toBe(0);
  });

  test('a result above 256 KiB is refused, one of just that size is not', async ({ world: { records } }) => {
    const record = aRecord();
    expect(() => records.append({ ...record, result: 'ü'.repeat(131_073) })).toThrow(TypeError);
    expect(await records.append({ ...record, result: 'ü'.repeat(131_072) })).toBe(true);
  });

  test('what Redis does not take is kept, read, and sent once it answers', async ({ redis, world }) => {
    const { records, drainer, client, table } = world;
    const record = aRecord();
    await redis.crash();
    await waitFor(async () => client.status !== 'ready', 'the client noticed');
    expect(await records.append(running(record))).toBe(false);
    expect(await records.append(complete(record))).toBe(false);
    expect(await records.append(running(record))).toBe(false);
    expect(await records.read(record.taskId)).toEqual(complete(record));
    await redis.restart();
    await waitFor(async () => (await drainer.flush().catch(() => 0)) > 0 || table.rows.size > 0, 'it was sent');
    expect(table.rows.get(record.taskId)).toEqual(complete(record));
  });

  test('what is on its way while Redis does not answer is read all the same', async ({ redis, world }) => {
    const { records } = world;
    const record = aRecord();
    redis.freeze();
    try {
      const written = records.append(complete(record));
      expect(await records.read(record.taskId)).toEqual(complete(record));
      // The record is kept and sent again: it is visible at every moment between two tries.
      await written;
      for (let look = 0; look < 5; look += 1) expect(await records.read(record.taskId)).toEqual(complete(record));
    } finally {
      redis.thaw();
    }
  });

  test('a task that only Redis may know is not unknown while Redis does not answer', async ({ redis, world }) => {
    const { records, table } = world;
    const [record, stored] = [aRecord(), aRecord()];
    await records.append(complete(record));
    table.rows.set(stored.taskId, stored);
    redis.freeze();
    try {
      const other = world.make();
      await expect(other.read(record.taskId)).rejects.toMatchObject({ code: 'queues_unavailable' });
      expect(await other.read(stored.taskId)).toEqual(stored);
    } finally {
      redis.thaw();
    }
    expect(await records.read(record.taskId)).toEqual(complete(record));
  });

  test('admission closes while too many records wait, and opens by itself once they are drained', async ({ world }) => {
    const registry = new Registry();
    const records = world.make({ overloadedRecords: 10, registry });
    for (let count = 0; count < 10; count += 1) await records.append(aRecord());
    expect(records.isOverloaded()).toBe(false);
    await records.append(aRecord());
    expect(records.isOverloaded()).toBe(true);
    expect(await registry.metrics()).toContain('longshore_task_records_backlog 11');
    await world.drainer.flush();
    await waitFor(async () => !records.isOverloaded(), 'admission is open again');
  });
});

describe('what comes too late', () => {
  test('is refused and goes nowhere: an older attempt, an earlier moment, anything but a late COMPLETE after the end', async ({
    world: { records, eye, keys },
  }) => {
    const record = aRecord();
    const error: TaskRecord = { ...record, status: 'ERROR', attempt: 2, rank: 3 };
    for (const one of [running(record, 2), running(record, 1), record, error, running(record, 3)])
      expect(await records.append(one)).toBe(true);
    expect(await records.read(record.taskId)).toEqual(error);
    expect(await eye.xlen(keys.records)).toBe(2);
    await records.append({ ...complete(record, 1), rank: 4 });
    expect(await records.read(record.taskId)).toEqual(error);
    const late: TaskRecord = { ...complete(record, 2), rank: 4 };
    await records.append(late);
    for (const one of [
      { ...error, attempt: 3 },
      { ...late, attempt: 3, result: '{}' },
    ])
      await records.append(one);
    expect(await records.read(record.taskId)).toEqual(late);
    expect(await eye.xlen(keys.records)).toBe(3);
  });

  test('a superseded attempt’s end changes nothing while a newer one has the lease, and leaves it that', async ({
    world: { records, client, keys },
  }) => {
    const record = aRecord();
    const lease = JSON.stringify({ lock: 'i.h', attempt: 2, containerId: 'c', machineId: 'm' });
    await client.set(keys.lease(record.taskId), lease);
    await records.append({ ...complete(record, 1), rank: 4 });
    expect(await records.read(record.taskId)).toBeUndefined();
    expect(await client.get(keys.lease(record.taskId))).toBe(lease);
    await records.append({ ...complete(record, 2), rank: 4 });
    expect(await records.read(record.taskId)).toMatchObject({ status: 'COMPLETE', attempt: 2 });
    expect(await client.exists(keys.lease(record.taskId))).toBe(0);
  });
});

describe('draining', () => {
  test('records of one task are collapsed to the newest, the others kept', async ({ world }) => {
    const { records, drainer, table, eye, keys } = world;
    const [one, two] = [aRecord(), aRecord()];
    for (const record of [one, running(one), complete(one), two]) await records.append(record);
    expect(await drainer.flush()).toBe(4);
    expect(table.writes).toEqual([[complete(one), two]]);
    expect(await eye.xlen(keys.records)).toBe(0);
  });

  test('a thousand and one records go in batches of 500', async ({ world: { records, drainer, table } }) => {
    // Not all at once: the client gives a command 300 ms.
    for (let group = 0; group < 11; group += 1)
      await Promise.all(Array.from({ length: 91 }, () => records.append(aRecord())));
    expect(await drainer.flush()).toBe(1001);
    expect(table.writes.map((batch) => batch.length)).toEqual([500, 500, 1]);
  });

  test('batches out of order end with the newest record in the database', async ({ world }) => {
    const { drain, table, eye, keys } = world;
    const record = aRecord();
    for (const one of [complete(record, 2), running(record, 1), record, running(record, 2)])
      await eye.xadd(keys.records, '*', 'record', encodeTaskRecord(one));
    await drain({ batch: 1 }).flush();
    expect(table.writes).toHaveLength(4);
    expect(table.rows.get(record.taskId)).toEqual(complete(record, 2));
  });

  test('after a crash between the commit and the trim a second drain changes nothing', async ({ redis, world }) => {
    const { records, drain, drainer, table, eye, keys } = world;
    const record = aRecord();
    await records.append(record);
    await records.append(complete(record));
    // The process ends right after the commit: nothing it sends later arrives.
    const dying = redis.connect({ maxRetriesPerRequest: 0, enableOfflineQueue: false });
    await waitFor(async () => dying.status === 'ready', 'the client is connected');
    const crashing = drain({
      client: dying,
      write: async (batch) => {
        await table.write(batch);
        dying.disconnect();
      },
    });
    await expect(crashing.flush()).rejects.toThrow();
    const before = structuredClone(table.rows);
    expect(await eye.xlen(keys.records)).toBe(2);
    expect(await drainer.flush()).toBe(2);
    expect(table.rows).toEqual(before);
    expect(await eye.xlen(keys.records)).toBe(0);
  });

  test('a record appended while a batch is being written stays for the next one', async ({ world }) => {
    const { records, drain, table } = world;
    const record = aRecord();
    await records.append(record);
    let late = true;
    const drainer = drain({
      write: async (batch) => {
        await table.write(batch);
        if (late) await records.append(complete(record));
        late = false;
      },
    });
    await drainer.flush();
    await drainer.flush();
    expect(table.rows.get(record.taskId)).toEqual(complete(record));
  });

  test('a database that fails loses nothing and is tried again until it answers', async ({ world }) => {
    const { records, drainer, table, eye, keys } = world;
    const stop = new AbortController();
    table.failure = new Error('connection refused');
    const draining = drainer.start(stop.signal);
    const off = records.onAppended(() => drainer.wake());
    const record = aRecord();
    await records.append(record);
    await expect(drainer.flush()).rejects.toThrow('connection refused');
    expect(await eye.xlen(keys.records)).toBe(1);
    table.failure = undefined;
    await waitFor(async () => table.rows.has(record.taskId), 'it is written in the end');
    await waitFor(async () => (await eye.xlen(keys.records)) === 0, 'the stream is empty');
    off();
    stop.abort();
    await draining;
  });

  test('a record that the database refuses is set aside and holds up no other', async ({ world }) => {
    const { records, drain, table, eye, keys } = world;
    const bad = aRecord();
    const all = [aRecord(), aRecord(), bad, aRecord(), aRecord()];
    for (const record of all) await records.append(record);
    await eye.xadd(keys.records, '*', 'record', 'not a record');
    const refusal = Object.assign(new Error('no such workspace'), { code: '23503' });
    const drainer = drain({
      write: async (batch) => {
        if (batch.some(({ taskId }) => taskId === bad.taskId)) throw new Error('cannot write', { cause: refusal });
        await table.write(batch);
      },
    });
    expect(await drainer.flush()).toBe(6);
    expect([...table.rows.keys()].toSorted()).toEqual(
      all
        .filter((record) => record !== bad)
        .map(({ taskId }) => taskId)
        .toSorted(),
    );
    const aside = (await eye.xrange(keys.recordsAside, '-', '+')).map(([, fields]) => fields[1]);
    expect(aside).toHaveLength(2);
    expect(aside).toContain('not a record');
  });

  test('an append wakes the drainer of its process; a sweep finds those of others', async ({ world }) => {
    const { records, drain, make, table } = world;
    const stop = new AbortController();
    const drainer = drain({ sweepMs: 60_000 });
    records.onAppended(() => drainer.wake());
    const draining = drainer.start(stop.signal);
    const mine = aRecord();
    await records.append(mine);
    await waitFor(async () => table.rows.has(mine.taskId), 'the wake-up drained it');
    stop.abort();
    await draining;
    const sweeping = new AbortController();
    const swept = drain({ sweepMs: 20 }).start(sweeping.signal);
    const others = aRecord();
    await make().append(others);
    await waitFor(async () => table.rows.has(others.taskId), 'the sweep drained it');
    sweeping.abort();
    await swept;
  });

  test('two drainers at once write nothing wrong and leave nothing', async ({ world }) => {
    const { records, drain, table, eye, keys } = world;
    const all = Array.from({ length: 300 }, () => aRecord());
    await Promise.all(all.flatMap((record) => [records.append(running(record)), records.append(complete(record))]));
    await Promise.all([drain({ batch: 50 }).flush(), drain({ batch: 70 }).flush()]);
    expect(await eye.xlen(keys.records)).toBe(0);
    expect([...table.rows.values()].every(({ status }) => status === 'COMPLETE')).toBe(true);
    expect(table.rows.size).toBe(300);
  });
});

describe('a Redis that came back older', () => {
  test('is told again what it was told last: the end of a task, on its way to the database, too', async ({ world }) => {
    const { records, client, eye, keys, table, drainer } = world;
    const waiting = aRecord();
    await records.append(waiting);
    const older = await eye.get(keys.task(waiting.taskId));
    await records.append(complete(waiting));
    await eye.set(keys.task(waiting.taskId), String(older));
    await eye.del(keys.records);
    await records.redisLost();
    expect(await records.read(waiting.taskId)).toMatchObject({ status: 'COMPLETE' });
    expect(await client.xlen(keys.records)).toBeGreaterThan(0);
    await drainer.flush();
    expect(table.rows.get(waiting.taskId)).toMatchObject({ status: 'COMPLETE' });
  });

  test('after a long outage is told again what it was told before, however often other records were tried', async ({
    world,
    redis,
  }) => {
    const { records, client, table, drainer } = world;
    const [now, skipped] = [performance.now.bind(performance), { ms: 0 }];
    const clock = vi.spyOn(performance, 'now').mockImplementation(() => now() + skipped.ms);
    onTestFinished(() => clock.mockRestore());
    const rollBack = redis.keep();
    const [ended, during] = [complete(aRecord()), aRecord()];
    await records.append(ended);
    await redis.crash();
    await waitFor(() => client.status !== 'ready', 'the connection is lost');
    for (let turn = 0; turn < 4; turn += 1) {
      skipped.ms += 6_000;
      expect(await records.append(running(during, turn + 1))).toBe(false);
    }
    await rollBack();
    await waitFor(() => client.status === 'ready', 'Redis is back');
    await records.redisLost();
    await drainer.flush();
    expect(table.rows.get(ended.taskId)).toEqual(ended);
    expect(table.rows.get(during.taskId)).toMatchObject({ attempt: 4 });
  });

  test('does not hide the end that the database has', async ({ world }) => {
    const { records, eye, keys, table, make } = world;
    const waiting = aRecord({ sync: false, status: 'RETRY', attempt: 1, rank: 0 });
    await records.append(waiting);
    table.rows.set(waiting.taskId, complete(waiting, 2));
    expect(await make().read(waiting.taskId)).toMatchObject({ status: 'COMPLETE', attempt: 2 });
    expect(await eye.exists(keys.task(waiting.taskId))).toBe(1);
  });
});
