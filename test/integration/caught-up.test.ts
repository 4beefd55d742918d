// A list of tasks contains everything that its caller has seen:
// it waits until the records in Redis have reached the database.
import { describe, expect } from 'vitest';
import type { Redis } from 'ioredis';
import { newId } from '#shared/domain/ids.ts';
import type { QueueName, StubId, TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Keys } from '#scheduler/stores/queues/keys.ts';
import { keysOf } from '#scheduler/stores/queues/keys.ts';
import { CaughtUp } from '#scheduler/tasks/records/caught-up.ts';
import type { CaughtUpParts } from '#scheduler/tasks/records/caught-up.ts';
import { Drainer } from '#scheduler/tasks/records/drainer.ts';
import { TaskRecords } from '#scheduler/tasks/records/records.ts';
import type { TaskRecord } from '#scheduler/tasks/records/task-record.ts';
import { test as base, waitFor } from '../helpers/services.ts';
import { quiet } from './tasks-fixture.ts';

const aRecord = (): TaskRecord => ({
  taskId: newId<TaskId>(),
  workspaceId: newId<WorkspaceId>(),
  stubId: newId<StubId>(),
  deploymentId: null,
  queue: 'tq-a' as QueueName,
  kind: 'endpoint',
  sync: true,
  status: 'COMPLETE',
  attempt: 1,
  rank: 3,
  containerId: null,
  failureReason: '',
  createdAtMs: 1,
  startedAtMs: 1,
  endedAtMs: 2,
  durationMs: 1,
  deadlineMs: 2,
});

const test = base
  .extend('client', async ({ redis }): Promise<Redis> => {
    const client = redis.connect({ maxRetriesPerRequest: 1, commandTimeout: 1000 });
    await client.ping();
    return client;
  })
  .extend('keys', () => keysOf(`c${newId().slice(0, 8)}`))
  .extend('records', async ({ client, keys }, { onCleanup }) => {
    const loadFromDb = (): Promise<undefined> => Promise.resolve(undefined);
    const records = new TaskRecords({ client, keys, log: quiet, loadFromDb });
    onCleanup(() => records.close());
    return records;
  });

function aList(client: Redis, keys: Keys, changes: Partial<CaughtUpParts> = {}): CaughtUp {
  return new CaughtUp({ client, keys, log: quiet, drainSoon: () => undefined, ...changes });
}

/** Commits when the test says so. */
function aDrainer(client: Redis, keys: Keys) {
  const written: TaskId[] = [];
  const go = Promise.withResolvers<void>();
  const drainer = new Drainer({
    client,
    keys,
    log: quiet,
    write: async (records) => {
      await go.promise;
      written.push(...records.map(({ taskId }) => taskId));
    },
  });
  return { drainer, written, commit: () => go.resolve() };
}

describe('a list of tasks', () => {
  test('waits for the commit of what was recorded before it, at any replica', async ({ client, keys, records }) => {
    const played = aDrainer(client, keys);
    const record = aRecord();
    await records.append(record);
    let isOver = false;
    let looks = 0;
    const list = aList(client, keys, { drainSoon: () => (looks += 1) })
      .caughtUp()
      .finally(() => (isOver = true));
    // Another replica leads, whose drainer writes, and trims after the commit.
    const draining = played.drainer.flush();
    await waitFor(() => looks >= 3, 'the list looks again and again');
    expect(isOver).toBe(false);
    played.commit();
    expect(await list).toBe(true);
    expect(played.written).toEqual([record.taskId]);
    await draining;
  });

  test('does not wait for what is recorded after it', async ({ client, keys, records }) => {
    const played = aDrainer(client, keys);
    await records.append(aRecord());
    const asked = Promise.withResolvers<void>();
    const list = aList(client, keys, { drainSoon: () => asked.resolve() }).caughtUp();
    await asked.promise;
    played.commit();
    await played.drainer.flush();
    await records.append(aRecord());
    expect(await list).toBe(true);
    expect(await client.xlen(keys.records)).toBe(1);
    await played.drainer.flush();
  });

  test('has the leader drain at once', async ({ client, keys, records }) => {
    const played = aDrainer(client, keys);
    played.commit();
    await records.append(aRecord());
    expect(await aList(client, keys, { drainSoon: () => void played.drainer.flush() }).caughtUp()).toBe(true);
    expect(played.written).toHaveLength(1);
  });

  test('asks once where nothing is on its way, and does not wait for ever', async ({ client, keys, records }) => {
    expect(await aList(client, keys).caughtUp()).toBe(true);
    await records.append(aRecord());
    expect(await aList(client, keys, { waitMs: 50 }).caughtUp()).toBe(false);
    await client.del(keys.records);
    client.disconnect();
    await waitFor(() => client.status === 'end', 'the connection is over');
    expect(await aList(client, keys, { waitMs: 50 }).caughtUp()).toBe(false);
  });
});
