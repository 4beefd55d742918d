// The counts behind the gauges of open tasks, on both kinds of database.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { DeploymentId } from '#shared/domain/ids.ts';
import { newId } from '#shared/domain/ids.ts';
import type { Db } from '#scheduler/stores/store/db.ts';
import { countOpenTasks } from '#scheduler/stores/store/queries/task-counts.ts';
import { upsertTaskRecords } from '#scheduler/stores/store/queries/tasks.ts';
import { KINDS, aDb, aRecord } from './store-fixture.ts';
import type { OpenedDb } from './store-fixture.ts';

describe.each(KINDS)('on %s', (kind) => {
  let opened: OpenedDb;
  let db: Db;
  beforeAll(async () => {
    opened = await aDb(kind);
    db = opened.db;
  });
  afterAll(() => opened.stop());

  test('open tasks are counted by deployment, kind and status, with the oldest; ended ones are not', async () => {
    expect(await countOpenTasks(db)).toEqual([]);
    const deploymentId = newId<DeploymentId>();
    const task = (over: Parameters<typeof aRecord>[0]) => aRecord({ deploymentId, kind: 'taskqueue', ...over });
    await upsertTaskRecords(db, [
      task({ createdAtMs: 1_800_000_002_000 }),
      task({ createdAtMs: 1_800_000_001_000 }),
      task({ status: 'RUNNING', attempt: 1, rank: 1, createdAtMs: 1_800_000_003_000 }),
      task({ status: 'COMPLETE', attempt: 1, rank: 3, createdAtMs: 1_800_000_000_000 }),
      task({ deploymentId: null, kind: 'function', createdAtMs: 1_800_000_004_000 }),
    ]);
    const found = await countOpenTasks(db);
    expect(found).toHaveLength(3);
    expect(found).toEqual(
      expect.arrayContaining([
        { deploymentId, kind: 'taskqueue', status: 'PENDING', count: 2, oldestAtMs: 1_800_000_001_000 },
        { deploymentId, kind: 'taskqueue', status: 'RUNNING', count: 1, oldestAtMs: 1_800_000_003_000 },
        { deploymentId: null, kind: 'function', status: 'PENDING', count: 1, oldestAtMs: 1_800_000_004_000 },
      ]),
    );
  });
});
