// Rows of a workspace that is deleted, on both kinds of databases: every table of the schema is emptied or listed as
// kept, another workspace keeps its rows, and a process that is killed at any statement leaves a deletion that goes on.
import { inputKeyOf } from '#scheduler/tasks/dispatch/bodies.ts';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { newId } from '#shared/domain/ids.ts';
import type { ContainerId, ObjectId, WorkspaceId } from '#shared/domain/ids.ts';
import { SYSTEM } from '#scheduler/workspaces/events/audit.ts';
import { EventWriter } from '#scheduler/workspaces/events/writer.ts';
import { WorkspaceDeletion } from '#scheduler/workspaces/deletion/deletion.ts';
import type { DeletionNeeds } from '#scheduler/workspaces/deletion/needs.ts';
import { DeletionRounds } from '#scheduler/workspaces/deletion/rounds.ts';
import { KEPT, wasDeleted } from '#scheduler/stores/store/queries/workspace-rows.ts';
import { publicModels } from '#scheduler/stores/store/queries/models.ts';
import { useObject } from '#scheduler/stores/store/queries/objects.ts';
import { scheduleById } from '#scheduler/stores/store/queries/schedules.ts';
import {
  targetByName,
  targetBySubdomain,
  targetOfDeployment,
  targetOfPlainStub,
  targetOfStub,
  warmTargets,
} from '#scheduler/stores/store/queries/targets.ts';
import { tokenByHash } from '#scheduler/stores/store/queries/tokens.ts';
import { deleteVolume, volumeById } from '#scheduler/stores/store/queries/volumes.ts';
import { activeWebhooks } from '#scheduler/stores/store/queries/webhooks.ts';
import type { Db } from '#scheduler/stores/store/db.ts';
import { workspaceById } from '#scheduler/stores/store/queries/workspaces.ts';
import { countsOf, fillTables, tablesOfWorkspaces } from '../helpers/filled-tables.ts';
import { KillableDb } from '../helpers/killable-db.ts';
import { TestClock } from '../helpers/test-clock.ts';
import { KINDS, aDb, aDeployment, aStub, aWorkspace, silent } from './store-fixture.ts';
import type { OpenedDb } from './store-fixture.ts';

const NOW = new Date();
const HOUR_MS = 3_600_000;

describe.each(KINDS)('on %s', (kind) => {
  let opened: OpenedDb;
  let db: Db;
  const removedBytes = new Set<ObjectId>();
  beforeAll(async () => {
    opened = await aDb(kind);
    ({ db } = opened);
  });
  afterAll(() => opened.stop());

  /** A workspace with a row in every table; its task waits, and its container runs. */
  async function aFullWorkspace(): Promise<WorkspaceId> {
    const { id } = await aWorkspace(db);
    const stub = newId();
    await fillTables(db, id, {
      'stubs.id': stub,
      'tasks.queue': `tq-${stub}`,
      'tasks.rank': 1,
      'containers.state': 'RUNNING',
      'containers.started_at': new Date(NOW.getTime() - HOUR_MS),
      'images.state': 'BUILDING',
      'machines.deleted_at': NOW,
      'events.type': 'audit.token.created',
      'metric_samples.step': 60,
      'volumes.driver': 'cache',
      'webhooks.active': true,
    });
    await db.query("insert into breakers (queue, fence, breaker) values ($1, 1, '{}')", [`tq-${stub}`]);
    await db.query(
      `insert into events (workspace_id, seq, id, type, at, data) values ($1, 2, $2, 'task.updated', now(), '{}')`,
      [id, newId()],
    );
    return id;
  }

  const needsOn = (on: Db): DeletionNeeds => ({
    endQueue: async () => {},
    deploymentChanged: async () => {},
    cancelTask: async (task) => void (await on.query('update tasks set rank = 3 where id = $1', [task])),
    cancelDeferredCall: async (task) =>
      void (await on.query("update deferred_calls set state = 'ended' where task_id = $1", [task])),
    runningContainers: () => [],
    stopContainer: async () => {},
    deleteMachine: async (_id, machine) =>
      (await on.query('update machines set deleted_at = now() where id = $1', [machine])).rowCount === 1,
    deletePool: async (workspaceId, name) => {
      await on.query('update pools set deleted_at = now() where workspace_id = $1 and name = $2', [workspaceId, name]);
      return true;
    },
    emptyVolume: () => Promise.resolve(true),
    forgetVolume: async ({ workspaceId, id }) => void (await deleteVolume(on, workspaceId, id)),
    deleteImage: async (workspaceId, image) =>
      await on.query("delete from images where workspace_id = $1 and id = $2 and state <> 'BUILDING'", [
        workspaceId,
        image,
      ]),
    removeBytes: async (object) => void removedBytes.add(object),
    removeInput: async (task) => void removedBytes.add(inputKeyOf(task)),
    recordsCaughtUp: async () => true,
  });

  const roundsOn = (on: Db, needs: Partial<DeletionNeeds> = {}): DeletionRounds =>
    new DeletionRounds({
      db: on,
      needs: { ...needsOn(on), ...needs },
      invalidation: { on: () => undefined },
      isLeader: () => true,
      clock: new TestClock(),
      log: silent,
      settledMs: 0,
    });
  const deletionOn = (on: Db): WorkspaceDeletion =>
    new WorkspaceDeletion({
      db: on,
      events: new EventWriter(),
      invalidation: { publish: async () => true },
      clock: new TestClock(),
      volumeBytes: () => 0,
    });
  const trail = newId<WorkspaceId>();
  const stopContainers = (id: WorkspaceId) =>
    db.query("update containers set state = 'STOPPED', ended_at = $2 where workspace_id = $1", [id, NOW]);

  /** Runs rounds until no workspace is being deleted. */
  const toTheEnd = async (rounds = roundsOn(db)): Promise<void> => {
    for (let at = 0; await rounds.round(); at += 1) if (at > 20) throw new Error('a deletion does not end');
  };

  test('every table with a workspace is emptied, or listed as kept; another workspace keeps all', async () => {
    const [gone, other] = [await aFullWorkspace(), await aFullWorkspace()];
    const before = await countsOf(db, other);
    expect(Object.keys(before).toSorted()).toEqual([...(await tablesOfWorkspaces(db))].toSorted());
    expect(Object.entries(before).filter(([, count]) => count === 0)).toEqual([]);
    const all = await countsOf(db);
    await deletionOn(db).begin(gone, SYSTEM, trail);
    const rounds = roundsOn(db);
    for (let at = 0; at < 5; at += 1) expect(await rounds.round()).toBe(true);
    // The container runs on: its tasks have ended, and nothing that it may use goes before it.
    expect((await deletionOn(db).state(gone)).workspace.deletionHold).toMatch(/^1 containers stop: id-/);
    expect((await countsOf(db, gone))['objects']).toBe(1);
    await stopContainers(gone);
    await toTheEnd(rounds);
    const left = Object.entries(await countsOf(db, gone)).filter(([, count]) => count > 0);
    expect(left.map(([table]) => table).toSorted()).toEqual(Object.keys(KEPT).toSorted());
    const { rows } = await db.query<{ type: string }>('select type from events where workspace_id = $1', [gone]);
    expect(rows).toEqual([{ type: 'audit.token.created' }]);
    // The time of the last container is billed, though its row went.
    const billed = await db.query<{ ms: number }>(
      "select sum(container_ms)::float8 as ms from credit_ledger where workspace_id = $1 and kind = 'compute'",
      [gone],
    );
    expect(billed.rows[0]?.ms).toBe(HOUR_MS);
    expect(removedBytes.size).toBeGreaterThan(0);
    expect(await countsOf(db, other)).toEqual(before);
    // Tables without a workspace lost the rows that belonged to it.
    const now = await countsOf(db);
    for (const table of ['webhook_secrets', 'webhook_deliveries', 'image_machines', 'machines', 'breakers'])
      expect([table, now[table]]).toEqual([table, (all[table] ?? 0) - 1]);
    expect(await workspaceById(db, gone)).toBeUndefined();
    expect(await wasDeleted(db, gone)).toBe(true);
    expect(await wasDeleted(db, other)).toBe(false);
  });

  test('what fails is told in the workspace, and keeps nothing else from going', async () => {
    const id = await aFullWorkspace();
    await deletionOn(db).begin(id, SYSTEM, trail);
    const containers = [newId<ContainerId>(), newId<ContainerId>()];
    const stopped: ContainerId[] = [];
    const rounds = roundsOn(db, {
      runningContainers: () => containers,
      stopContainer: async (one) => {
        if (one === containers[0]) throw new Error('no answer');
        stopped.push(one);
      },
      removeBytes: async () => Promise.reject(new Error('the store is away')),
    });
    const hold = async (): Promise<string> => (await deletionOn(db).state(id)).workspace.deletionHold;
    for (let at = 0; at < 5; at += 1) await rounds.round();
    expect(stopped).toContain(containers[1]);
    expect(await hold()).toContain(`container ${containers[0]}: no answer`);
    containers.length = 0;
    await stopContainers(id);
    for (let at = 0; at < 5; at += 1) expect(await rounds.round()).toBe(true);
    expect(await hold()).toBe('1 objects: the store is away');
    const counts = await countsOf(db, id);
    expect([counts['objects'], counts['stubs'], counts['secrets']]).toEqual([1, 0, 0]);
    await toTheEnd();
  });

  test('statements that let callers in find nothing of it from the commit on', async () => {
    const id = await aFullWorkspace();
    const stub = await aStub(db, id, 'open');
    const deployment = await aDeployment(db, stub);
    const hash = (await db.query<{ hash: Uint8Array }>('select hash from tokens where workspace_id = $1', [id]))
      .rows[0];
    const idOf = async (table: string): Promise<string> =>
      (await db.query<{ id: string }>(`select id from ${table} where workspace_id = $1`, [id])).rows[0]?.id ?? '';
    await db.query(
      `update stubs set type = 'schedule', config = '{"schedule": {"when": "* * * * *", "timezone": "UTC"}}' where id = $1`,
      [stub.id],
    );
    await db.query("update deployments set stub_type = 'schedule', scale_min = 1, scale_max = 1 where id = $1", [
      deployment.id,
    ]);
    await db.query('update models set is_public = true where workspace_id = $1', [id]);
    const [object, volume] = [await idOf('objects'), await idOf('volumes')];
    const found = async (): Promise<readonly boolean[]> => [
      (await tokenByHash(db, hash?.hash ?? new Uint8Array())) !== undefined,
      (await targetOfDeployment(db, deployment.id)) !== undefined,
      (await targetByName(db, id, 'schedule', 'named', null)) !== undefined,
      (await targetBySubdomain(db, deployment.subdomain, null)) !== undefined,
      (await targetOfStub(db, stub.id)) !== undefined,
      (await targetOfPlainStub(db, stub.id)) !== undefined,
      (await warmTargets(db)).some((one) => one.workspaceId === id),
      (await scheduleById(db, deployment.id)) !== undefined,
      (await publicModels(db, 1_000)).some((one) => one.workspaceId === id),
      (await useObject(db, object)) !== undefined,
      (await volumeById(db, volume)) !== undefined,
      (await activeWebhooks(db)).has(id),
    ];
    expect(await found()).toEqual(Array.from({ length: 12 }, () => true));
    await deletionOn(db).begin(id, SYSTEM, trail);
    // The token is gone by its row, too; its statement is looked at with the row back.
    await db.query("insert into tokens (id, workspace_id, hash, hint, type) values ($1, $2, $3, '', 'workspace')", [
      newId(),
      id,
      hash?.hash,
    ]);
    expect(await found()).toEqual(Array.from({ length: 12 }, () => false));
    await stopContainers(id);
    await toTheEnd();
  });

  test('a begin that is killed at any statement leaves nothing begun, or a deletion', async () => {
    const id = await aFullWorkspace();
    const tokens = async () =>
      (await db.query<{ n: number }>('select count(*)::int as n from tokens where workspace_id = $1', [id])).rows[0]?.n;
    let killed = 0;
    for (const isAfter of [false, true])
      for (let at = 0; at < 14; at += 1) {
        const killable = new KillableDb(db);
        killable.killAt(at, isAfter);
        await deletionOn(killable)
          .begin(id, SYSTEM, trail)
          .catch(() => undefined);
        killed += killable.isDead ? 1 : 0;
        const row = await workspaceById(db, id);
        expect(await tokens()).toBe(row?.deletingAtMs === null ? 1 : 0);
      }
    expect(killed).toBeGreaterThan(8);
    expect((await deletionOn(db).begin(id, SYSTEM, trail)).workspace.deletingAtMs).not.toBeNull();
    await stopContainers(id);
    await toTheEnd();
  });

  test('rounds that are killed again and again come to the end', async () => {
    const [id, other] = [await aFullWorkspace(), await aFullWorkspace()];
    const before = await countsOf(db, other);
    await deletionOn(db).begin(id, SYSTEM, trail);
    await stopContainers(id);
    let deaths = 0;
    for (let at = 1; at < 100 && (await workspaceById(db, id)) !== undefined; at += 1) {
      const killable = new KillableDb(db);
      killable.killAt(at * 3, at % 2 === 0);
      await roundsOn(killable)
        .round()
        .catch(() => undefined);
      if (killable.isDead) deaths += 1;
    }
    expect(deaths).toBeGreaterThan(8);
    const left = Object.entries(await countsOf(db, id)).filter(([, count]) => count > 0);
    expect(left.map(([table]) => table).toSorted()).toEqual(Object.keys(KEPT).toSorted());
    expect(await countsOf(db, other)).toEqual(before);
  });

  test('a deletion does not end while records of its tasks may be on their way', async () => {
    const { id } = await aWorkspace(db);
    await deletionOn(db).begin(id, SYSTEM, trail);
    let asked = 0;
    const rounds = roundsOn(db, { recordsCaughtUp: async () => (asked += 1) > 3 });
    for (let at = 0; asked < 3; at += 1) {
      if (at > 20) throw new Error('the records are never asked for');
      await rounds.round();
      expect(await workspaceById(db, id)).toBeDefined();
    }
    await toTheEnd(rounds);
    expect(await workspaceById(db, id)).toBeUndefined();
    expect(asked).toBe(4);
  });

  test('machines and the administrator keep a workspace; an unknown one is none', async () => {
    const { id, name } = await aWorkspace(db);
    const ids = await fillTables(db, id, { 'machines.deleted_at': null });
    await expect(deletionOn(db).begin(id, SYSTEM, trail)).rejects.toMatchObject({
      code: 'workspace_has_machines',
      message: expect.stringMatching(new RegExp(`^workspace ${name} has machines of its own, in these pools: name-`)),
    });
    expect((await deletionOn(db).state(id)).refusal).toContain('longshore machine delete');
    await db.query('update machines set deleted_at = now() where id = $1', [ids.get('machines')]);
    await db.query(`update pools set settings = '{"provider": "cloud"}' where workspace_id = $1`, [id]);
    await expect(deletionOn(db).begin(id, SYSTEM, trail)).rejects.toMatchObject({ code: 'workspace_has_machines' });
    await db.query('update workspaces set is_admin = true where id = $1', [id]);
    await expect(deletionOn(db).begin(id, SYSTEM, trail)).rejects.toMatchObject({
      code: 'workspace_is_administrators',
    });
    for (const unknown of [newId(), 'nobody'])
      await expect(deletionOn(db).begin(unknown, SYSTEM, trail)).rejects.toMatchObject({ code: 'workspace_not_found' });
    const { rows } = await db.query('select id from tokens where workspace_id = $1', [id]);
    expect(rows).toHaveLength(1);
  });
});
