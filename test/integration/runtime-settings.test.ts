// Settings that change while schedulers run, on two replicas with a real Redis: what an answer to a change says holds.
import { afterAll, beforeAll, describe, expect } from 'vitest';
import type { Db } from '#scheduler/stores/store/db.ts';
import { SYSTEM } from '#scheduler/workspaces/events/audit.ts';
import { InstallationTrail } from '#scheduler/workspaces/events/installation-trail.ts';
import { EventWriter } from '#scheduler/workspaces/events/writer.ts';
import { createInvalidation } from '#scheduler/workspaces/identity/invalidation.ts';
import { RuntimeSettings } from '#scheduler/workspaces/identity/runtime-settings.ts';
import type { PrivateRedis } from '../helpers/redis.ts';
import { test, waitFor } from '../helpers/services.ts';
import { aDb, aWorkspace, silent } from './store-fixture.ts';
import type { OpenedDb } from './store-fixture.ts';

describe('a change of a setting', () => {
  let opened: OpenedDb;
  beforeAll(async () => {
    opened = await aDb('pglite');
    const { id } = await aWorkspace(opened.db);
    await opened.db.query('update workspaces set is_admin = (id = $1)', [id]);
  });
  afterAll(() => opened.stop());

  /** @param beforeRead - runs before each read of the rows */
  async function aReplica(redis: PrivateRedis, beforeRead: () => Promise<void> = () => Promise.resolve()) {
    const invalidation = createInvalidation({
      publisher: redis.connect({ enableOfflineQueue: false }),
      subscriber: redis.connect(),
      log: silent,
    });
    const used: string[] = [];
    const db = Object.assign(Object.create(opened.db) as Db, {
      query: async (sql: string, params?: readonly unknown[]) => {
        await beforeRead();
        return await opened.db.query(sql, params);
      },
    });
    const settings = new RuntimeSettings({
      db,
      invalidation,
      trail: new InstallationTrail(opened.db, new EventWriter(), Date.now),
      kinds: {
        color: {
          environment: 'grey',
          variable: 'COLOR',
          description: '',
          problem: () => undefined,
          apply: (value) => void used.push(value),
        },
      },
      log: silent,
    });
    await invalidation.start();
    await settings.start();
    return {
      settings,
      uses: () => used.at(-1),
      stop: async () => {
        await settings.stop();
        await invalidation.stop();
      },
    };
  }

  test('is in use at every replica when it is answered, also where one reads slowly', async ({ redis }) => {
    const gate = Promise.withResolvers<void>();
    let isShut = false;
    let reads = 0;
    const here = await aReplica(redis);
    const there = await aReplica(redis, async () => {
      reads += 1;
      if (isShut) await gate.promise;
    });
    expect([here.uses(), there.uses()]).toEqual(['grey', 'grey']);
    isShut = true;
    const before = reads;
    let isAnswered = false;
    const change = here.settings.set('color', 'red', SYSTEM).finally(() => (isAnswered = true));
    await waitFor(() => reads > before, 'the other replica reads');
    await waitFor(() => here.uses() === 'red', 'this replica uses it');
    expect([isAnswered, there.uses()]).toEqual([false, 'grey']);
    gate.resolve();
    expect(await change).toMatchObject({ value: 'red', isEverywhere: true });
    expect(there.uses()).toBe('red');
    expect(await there.settings.reset('color', SYSTEM)).toMatchObject({ value: 'grey', isEverywhere: true });
    expect(here.uses()).toBe('grey');
    await Promise.all([here.stop(), there.stop()]);
  });

  test('says so where a replica cannot read it', async ({ redis }) => {
    let isAway = false;
    const here = await aReplica(redis);
    const there = await aReplica(redis, () => (isAway ? Promise.reject(new Error('away')) : Promise.resolve()));
    isAway = true;
    expect(await here.settings.set('color', 'blue', SYSTEM)).toMatchObject({ value: 'blue', isEverywhere: false });
    expect([here.uses(), there.uses()]).toEqual(['blue', 'grey']);
    await Promise.all([here.stop(), there.stop()]);
  });
});
