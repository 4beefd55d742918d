/** Limits of a workspace in the memory of several replicas. */
import { expect } from 'vitest';
import { newId } from '#shared/domain/ids.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import { createInvalidation } from '../../scheduler/workspaces/identity/invalidation.ts';
import { Rates } from '../../scheduler/workspaces/identity/rates.ts';
import { Limits } from '../../scheduler/workspaces/identity/workspace-limits.ts';
import { keysOf } from '../../scheduler/stores/queues/keys.ts';
import type { Db, Transaction } from '../../scheduler/stores/store/db.ts';
import { TestClock } from '../helpers/test-clock.ts';
import { test, waitFor } from '../helpers/services.ts';
import { aDb, aWorkspace, silent } from './store-fixture.ts';

test('a change counts on every replica when it was answered, also for who was away, and a database that is away takes nothing back', async ({
  redis,
}) => {
  const opened = await aDb('pglite');
  try {
    let fails = false;
    const { db: whole } = opened;
    const db: Db = {
      kind: whole.kind,
      reads: whole.reads,
      query: <R>(sql: string, params?: readonly unknown[]) =>
        fails ? Promise.reject(new Error('the database is away')) : whole.query<R>(sql, params),
      transaction: <T>(work: (tx: Transaction) => Promise<T>) => whole.transaction(work),
      close: () => whole.close(),
    };
    const workspace = await aWorkspace(opened.db);
    const clock = new TestClock();
    const aReplica = async () => {
      const invalidation = createInvalidation({
        publisher: redis.connect({ enableOfflineQueue: false }),
        subscriber: redis.connect({ retryStrategy: () => 20 }),
        log: silent,
      });
      await invalidation.start();
      return { invalidation, limits: new Limits({ db, clock, invalidation, maxContainers: 50 }) };
    };
    const [here, there] = [await aReplica(), await aReplica()];
    expect((await there.limits.of(workspace.id)).stub.max_replicas).toBe(50);
    expect(there.limits.of(workspace.id)).not.toBeInstanceOf(Promise);
    const told: string[] = [];
    there.limits.onChange((id) => told.push(id));
    const changed = await here.limits.change(workspace.id, {
      stub: { max_replicas: 3 },
      concurrency: { gpu_limit: 0 },
    });
    expect(changed.stub.max_replicas).toBe(3);
    expect(told).toEqual([workspace.id]);
    expect(await there.limits.stubLimits(workspace.id)).toMatchObject({ maxContainers: 3, gpuConcurrency: 0 });
    await expect(here.limits.change('nobody' as typeof workspace.id, {})).rejects.toMatchObject({
      code: 'workspace_not_found',
    });

    fails = true;
    clock.aheadMs = 120_000;
    expect((await there.limits.of(workspace.id)).stub.max_replicas).toBe(3);
    // Usage is counted over `db.reads`, beside the platform's own statements.
    expect(await there.limits.counts(workspace.id)).toMatchObject({ stubs: 0, queueBytes: 0 });
    fails = false;
    await redis.crash();
    await waitFor(() => !there.invalidation.isLive, 'no messages arrive');
    void here.limits.change(workspace.id, { stub: { max_replicas: null } });
    clock.aheadMs += 2_000;
    await waitFor(async () => (await there.limits.of(workspace.id)).stub.max_replicas === 50, 'it looks by itself');
    await redis.restart();
    await here.invalidation.stop();
    await there.invalidation.stop();
  } finally {
    await opened.stop();
  }
});

test('requests are counted over all replicas, a minute at a time, and a Redis that is away refuses nobody', async ({
  redis,
}) => {
  const workspace = { id: newId<WorkspaceId>() };
  const clock = { ms: 1_800_000_030_000, nowMs: () => clock.ms };
  const limited: string[] = [];
  const client = redis.connect({ enableOfflineQueue: false, retryStrategy: () => null });
  await waitFor(() => client.status === 'ready', 'connected');
  const rates = () =>
    new Rates({ redis: client, keys: keysOf('rates'), clock, onLimited: (kind) => void limited.push(kind) });
  const [here, there] = [rates(), rates()];
  expect(await here.take(workspace.id, 'rest', 2)).toBeUndefined();
  expect(await there.take(workspace.id, 'rest', 2)).toBeUndefined();
  expect(await here.take(workspace.id, 'rest', 2)).toBe(30);
  expect(await here.take(workspace.id, 'invoke', 2)).toBeUndefined();
  clock.ms += 30_000;
  expect(await there.take(workspace.id, 'rest', 2)).toBeUndefined();
  expect(limited).toEqual(['rest']);
  client.disconnect();
  await waitFor(() => client.status === 'end', 'cut off');
  for (let count = 0; count < 5; count++) expect(await here.take(workspace.id, 'rest', 2)).toBeUndefined();
});
