// Rows of providers' machines whose writes nobody answered: the leader finds out before it makes another machine, and
// goes on with a row that was written without its knowledge.
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { openInstallation } from '#scheduler/workspaces/identity/installation.ts';
import { deleteMachine } from '#scheduler/stores/store/queries/machines.ts';
import { aPool, nextFence, Process, sealer } from '../helpers/provisioning-story.ts';
import { waitFor } from '../helpers/services.ts';
import { TestClock } from '../helpers/test-clock.ts';
import { unansweredCommit } from '../helpers/unanswered-commit.ts';
import { randomFrom, UnrulyCloud } from '../helpers/unruly-cloud.ts';
import { aDb, KINDS } from './store-fixture.ts';
import type { OpenedDb } from './store-fixture.ts';

describe.each(KINDS)('on %s', (kind) => {
  let opened: OpenedDb;
  beforeAll(async () => {
    opened = await aDb(kind);
    await openInstallation(opened.db, sealer);
  });
  afterAll(() => opened.stop());

  async function aLeader(isMade: Promise<boolean>, onLookUp: () => void) {
    const pool = await aPool(opened.db, `doubt-${randomUUID().slice(0, 4)}`);
    const clock = new TestClock();
    const cloud = new UnrulyCloud(pool.provider, randomFrom(1), () => clock.nowMs());
    cloud.isUnruly = false;
    const db = unansweredCommit(opened.db, isMade, onLookUp);
    const leader = new Process(db, await nextFence(opened.db), pool, [cloud], clock);
    await leader.machines.start();
    await leader.provisioner.tick();
    return { pool, cloud, leader, provisioner: leader.provisioner };
  }
  const rowsOf = async (poolId: number) =>
    (await opened.db.query<{ state: string }>('select state from provisioned_machines where pool_id = $1', [poolId]))
      .rows;

  test.each([true, false])(
    'a machine whose row is in doubt (made: %s) is looked up before its pool grows by another',
    async (isMade) => {
      const made = Promise.withResolvers<boolean>();
      const { pool, cloud, leader, provisioner } = await aLeader(made.promise, () =>
        setImmediate(() => made.resolve(isMade)),
      );
      await expect(provisioner.grow(pool.id, 'wanted')).rejects.toMatchObject({ code: 'database_outcome_unknown' });
      expect(provisioner.capacity(pool.id).notBeforeMs).toBe(Infinity);
      await expect(provisioner.grow(pool.id, 'wanted again')).rejects.toThrow('may have a machine');
      await provisioner.tick();
      expect(provisioner.capacity(pool.id)).toMatchObject({ alive: isMade ? 1 : 0, notBeforeMs: 0 });
      if (!isMade) await provisioner.grow(pool.id, 'wanted still');
      expect(await rowsOf(pool.id)).toHaveLength(1);
      // As the half-minute's comparison of the machines does.
      await leader.machines.readMissed(() => undefined);
      await waitFor(async () => {
        await provisioner.tick();
        return cloud.creates > 0;
      }, 'the machine is made');
      await provisioner.settled();
      expect(cloud.creates).toBe(1);
    },
  );

  test('a row that was written and not answered is read again, and its machine can still be ended', async () => {
    const { pool, cloud, leader, provisioner } = await aLeader(Promise.resolve(true), () => undefined);
    await expect(provisioner.grow(pool.id, 'wanted')).rejects.toMatchObject({ code: 'database_outcome_unknown' });
    // The look-up waits for the commit.
    await provisioner.tick();
    await leader.machines.readMissed(() => undefined);
    await waitFor(async () => {
      await provisioner.tick();
      return (await rowsOf(pool.id))[0]?.state === 'created';
    }, 'the machine is created');
    await provisioner.settled();
    // A write of this leader landed that it believes to have failed.
    await opened.db.query('update provisioned_machines set revision = revision + 1 where pool_id = $1', [pool.id]);
    for (const machineId of provisioner.pending(pool.id)) {
      await deleteMachine(opened.db, machineId);
      leader.machines.deleted(machineId);
    }
    await waitFor(async () => {
      await provisioner.tick();
      return ['terminating', 'gone'].includes((await rowsOf(pool.id))[0]?.state ?? '');
    }, 'the machine is on its way out');
    expect(cloud.creates).toBe(1);
  });
});
