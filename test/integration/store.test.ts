import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { newId } from '#shared/domain/ids.ts';
import type {
  AppId,
  ContainerId,
  DeliveryId,
  DeploymentId,
  MachineId,
  StubId,
  WorkspaceId,
} from '#shared/domain/ids.ts';
import type { ContainerState } from '#shared/domain/status.ts';
import { isUniqueViolation } from '../../scheduler/stores/store/db.ts';
import type { Db } from '../../scheduler/stores/store/db.ts';
import { getOrCreateApp, listApps } from '../../scheduler/stores/store/queries/apps.ts';
import type { ContainerChange, MoveFrom } from '../../scheduler/stores/store/queries/container-moves.ts';
import {
  containersById,
  endedContainers,
  listLiveContainers,
} from '../../scheduler/stores/store/queries/containers.ts';
import { moveContainers } from '../../scheduler/stores/store/queries/container-moves.ts';
import { insertContainers } from '../../scheduler/stores/store/queries/container-placements.ts';
import {
  deleteDeployment,
  deploymentByName,
  insertDeployment,
  listActiveDeployments,
  listDeployments,
  setDeploymentActive,
  setDeploymentScale,
} from '../../scheduler/stores/store/queries/deployments.ts';
import { claimDeliveries, insertDeliveries } from '../../scheduler/stores/store/queries/deliveries.ts';
import { raiseFence } from '../../scheduler/stores/store/queries/leadership.ts';
import { getOrCreatePool, listPools, poolByName } from '../../scheduler/stores/store/queries/pools.ts';
import { listStubs, reuseStub, stubById } from '../../scheduler/stores/store/queries/stubs.ts';
import { KINDS, aContainerId, aDb, aStub, aWorkspace } from './store-fixture.ts';
import type { OpenedDb } from './store-fixture.ts';
import { logTests } from './store/logs.ts';
import { machineTests } from './store/machines.ts';
import { taskTests } from './store/tasks.ts';

describe.each(KINDS)('on %s', (kind) => {
  let opened: OpenedDb;
  let db: Db;
  beforeAll(async () => {
    opened = await aDb(kind);
    db = opened.db;
  });
  afterAll(() => opened.stop());

  test('values arrive with the same types', async () => {
    const { rows, rowCount } = await db.query(
      `select 7::int8 as small, 9007199254740993::int8 as big, 1.5::float8 as real, null::text as nothing, true as yes,
        '2030-01-02T03:04:05.678Z'::timestamptz as at, '{"a":[1]}'::jsonb as json, '\\x00ff'::bytea as bytes, array['a','b'] as list`,
    );
    const row = rows[0] as Record<string, unknown>;
    expect(rowCount).toBe(1);
    expect(row).toMatchObject({
      small: 7,
      big: 9_007_199_254_740_993n,
      real: 1.5,
      nothing: null,
      yes: true,
      at: new Date('2030-01-02T03:04:05.678Z'),
      json: { a: [1] },
      list: ['a', 'b'],
    });
    expect([...(row['bytes'] as Uint8Array)]).toEqual([0, 255]);
  });

  test('an analysis of a large table reads few rows where it stops the only connection', async () => {
    const { rows } = await db.query<{ rows: number }>(
      `select 300 * current_setting('default_statistics_target')::int as rows`,
    );
    expect(rows).toEqual([{ rows: kind === 'pglite' ? 9_000 : 30_000 }]);
  });

  test('parameters of every kind arrive', async () => {
    const at = new Date(1_800_000_000_123);
    const { rows } = await db.query<Record<string, unknown>>(
      'select $1::text as a, $2::int8 as b, $3::timestamptz as c, $4::jsonb as d, $5::bytea as e, $6::text[] as f, $7::text as g, $8::boolean as h',
      ['x', 12_345_678_901, at, '{"k":"v"}', new Uint8Array([1, 2]), ['p', 'q"{}'], null, false],
    );
    expect(rows[0]).toMatchObject({
      a: 'x',
      b: 12_345_678_901,
      c: at,
      d: { k: 'v' },
      f: ['p', 'q"{}'],
      g: null,
      h: false,
    });
    expect([...(rows[0]!['e'] as Uint8Array)]).toEqual([1, 2]);
  });

  test('changed rows are counted without returning', async () => {
    const workspace = await aWorkspace(db);
    const hit = await db.query('update workspaces set name = $1 where id = $2', ['n', workspace.id]);
    const miss = await db.query('update workspaces set name = $1 where id = $2', ['n', 'nobody']);
    expect([hit.rowCount, miss.rowCount]).toEqual([1, 0]);
  });

  test('a refused statement tells its SQL state and the next one works', async () => {
    const workspace = await aWorkspace(db);
    const again = db.query("insert into workspaces (id, name, signing_key) values ($1, 'n', '\\x00')", [workspace.id]);
    const error = await again.catch((caught: unknown) => caught);
    expect(error).toMatchObject({ code: 'database_error', details: { sqlState: '23505' } });
    expect(isUniqueViolation(error)).toBe(true);
    await expect(db.query('select no_such_column from workspaces')).rejects.toMatchObject({ code: 'database_error' });
    expect((await db.query('select 1 as one')).rows).toEqual([{ one: 1 }]);
  });

  test('a transaction is all or nothing, and others wait or see none of it', async () => {
    const id = newId<WorkspaceId>();
    const insert = "insert into workspaces (id, name, signing_key) values ($1, 'n', '\\x00')";
    const count = async (): Promise<number> =>
      (await db.query('select 1 from workspaces where id = $1', [id])).rowCount;
    const failed = db.transaction(async (tx) => {
      await tx.query(insert, [id]);
      throw new Error('changed my mind');
    });
    await expect(failed).rejects.toThrow('changed my mind');
    expect(await count()).toBe(0);
    await db.transaction((tx) => tx.query(insert, [id]));
    expect(await count()).toBe(1);
    // A statement that fails inside rolls back what came before it.
    const other = newId<WorkspaceId>();
    const clash = db.transaction(async (tx) => {
      await tx.query(insert, [other]);
      await tx.query(insert, [id]);
    });
    await expect(clash).rejects.toMatchObject({ code: 'database_error' });
    expect((await db.query('select 1 from workspaces where id = $1', [other])).rowCount).toBe(0);
  });

  test('statements and transactions at the same time do not mix', async () => {
    const workspace = await aWorkspace(db);
    const names = Array.from({ length: 20 }, (_value, index) => `app-${index}`);
    await Promise.all(
      names.map((name, index) =>
        index % 2 === 0
          ? getOrCreateApp(db, workspace.id, name, newId<AppId>())
          : db.transaction((tx) => getOrCreateApp(tx, workspace.id, name, newId<AppId>())),
      ),
    );
    const apps = await listApps(db, workspace.id, 100);
    expect(apps.map((app) => app.name).toSorted()).toEqual(names.toSorted());
  });

  test('an app of a name is made once and found afterwards', async () => {
    const workspace = await aWorkspace(db);
    const made = await Promise.all([1, 2, 3].map(() => getOrCreateApp(db, workspace.id, 'one', newId<AppId>())));
    expect(new Set(made.map((app) => app.id)).size).toBe(1);
  });

  test('a stub is reused only when everything is the same', async () => {
    const workspace = await aWorkspace(db);
    const stub = await aStub(db, workspace.id);
    expect((await reuseStub(db, stub))?.id).toBe(stub.id);
    for (const change of [
      { name: 'x' },
      { configHash: 'x' },
      { type: 'taskqueue/deployment' },
      { public: true },
      { objectId: newId<never>() },
      { workspaceId: newId<WorkspaceId>() },
    ]) {
      expect(await reuseStub(db, { ...stub, ...change })).toBeUndefined();
    }
    expect((await stubById(db, stub.id))?.config).toEqual({ handler: 'app:handler' });
    expect(await listStubs(db, workspace.id, 10, ['taskqueue/deployment'])).toHaveLength(0);
    expect(await listStubs(db, workspace.id, 10, ['endpoint/deployment'])).toHaveLength(1);
  });

  test('versions count up from 1, never repeat under a race, and survive deletion', async () => {
    const workspace = await aWorkspace(db);
    const stub = await aStub(db, workspace.id);
    const deploy = (stubType = 'endpoint/deployment') =>
      insertDeployment(db, {
        id: newId<DeploymentId>(),
        workspaceId: workspace.id,
        appId: stub.appId,
        stubId: stub.id,
        name: 'hello',
        stubType,
        subdomain: `hello-${workspace.number}`,
      });
    const made = await Promise.all(Array.from({ length: 8 }, () => deploy()));
    expect(made.map((row) => row.version).toSorted((a, b) => a - b)).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
    expect((await deploy('taskqueue/deployment')).version).toBe(1);
    const newest = made.find((row) => row.version === 8);
    await deleteDeployment(db, workspace.id, newest?.id ?? '');
    expect((await deploymentByName(db, workspace.id, 'endpoint', 'hello', null))?.version).toBe(7);
    expect(await deploymentByName(db, workspace.id, 'endpoint', 'hello', 8)).toBeUndefined();
    expect(await deploymentByName(db, workspace.id, 'function', 'hello', null)).toBeUndefined();
    expect((await deploy()).version).toBe(9);
  });

  test('deployments are listed by filter and changed only by their workspace', async () => {
    const workspace = await aWorkspace(db);
    const other = await aWorkspace(db);
    const stub = await aStub(db, workspace.id);
    const row = await insertDeployment(db, {
      id: newId<DeploymentId>(),
      workspaceId: workspace.id,
      appId: stub.appId,
      stubId: stub.id,
      name: 'd',
      stubType: stub.type,
      subdomain: 'd',
    });
    expect(await setDeploymentActive(db, other.id, row.id, false)).toBeUndefined();
    expect(await setDeploymentScale(db, workspace.id, row.id, { min: 2, max: 2 })).toMatchObject({
      scaleMin: 2,
      scaleMax: 2,
    });
    const base = { workspaceId: workspace.id, limit: 10 };
    expect(
      await listDeployments(db, { ...base, name: 'd', active: true, stubIds: [stub.id], version: 1 }),
    ).toHaveLength(1);
    expect(await listDeployments(db, { ...base, active: false })).toHaveLength(0);
    expect(await listDeployments(db, { ...base, ids: [] })).toHaveLength(0);
    expect(await listDeployments(db, { workspaceId: other.id, limit: 10 })).toHaveLength(0);
    expect((await listActiveDeployments(db)).some((found) => found.id === row.id)).toBe(true);
    await setDeploymentActive(db, workspace.id, row.id, false);
    expect((await listActiveDeployments(db)).some((found) => found.id === row.id)).toBe(false);
  });

  test('pool names are unique per owner, shared ones too', async () => {
    const workspace = await aWorkspace(db);
    const name = `pool-${workspace.number}`;
    const shared = await Promise.all([1, 2].map(() => getOrCreatePool(db, { name, workspaceId: null })));
    expect(shared[0]?.id).toBe(shared[1]?.id);
    const own = await getOrCreatePool(db, { name, workspaceId: workspace.id, settings: { cpuOvercommit: 8 } });
    expect(own.id).not.toBe(shared[0]?.id);
    expect((await poolByName(db, { name, workspaceId: workspace.id }))?.settings.cpuOvercommit).toBe(8);
    expect((await poolByName(db, { name, workspaceId: null }))?.id).toBe(shared[0]?.id);
    for (const workspaceId of [null, workspace.id])
      expect((await listPools(db, workspaceId)).filter((pool) => pool.name === name)).toHaveLength(1);
  });

  test('a container moves only from the states, epoch and revision that the writer read', async () => {
    const workspace = await aWorkspace(db);
    const id = aContainerId();
    const common = {
      workspaceId: workspace.id,
      stubId: newId<StubId>(),
      deploymentId: null,
      spec: { cpu: 1 },
      slots: 2,
    };
    const [row] = (await insertContainers(db, [{ id }], common)) ?? [];
    const move = async (from: MoveFrom, to: ContainerState, change?: ContainerChange) => {
      const [outcome] = await moveContainers(db, [{ id, from, to, change: change ?? {} }]);
      return outcome?.kind === 'written' ? outcome.row : undefined;
    };
    expect(row).toMatchObject({ state: 'PENDING', epoch: 0, revision: 1, spec: { cpu: 1 } });
    const machineId = 'abcd0001' as MachineId;
    const reserve = () =>
      move({ states: ['PENDING'], epoch: 0 }, 'ASSIGNED', {
        machineId,
        epoch: 1,
        assignmentId: 'a',
      });
    const winners = (await Promise.all([reserve(), reserve(), reserve()])).filter((won) => won !== undefined);
    expect(winners).toHaveLength(1);
    expect(winners[0]).toMatchObject({ state: 'ASSIGNED', machineId, epoch: 1, revision: 2 });
    expect(await move({ states: ['ASSIGNED'], epoch: 0 }, 'STARTING')).toBeUndefined();
    expect(await move({ states: ['ASSIGNED'], revision: 1 }, 'STARTING')).toBeUndefined();
    const back = await move({ states: ['ASSIGNED'], epoch: 1 }, 'PENDING', {
      machineId: null,
      assignmentId: null,
      rejections: { memory: 2 },
    });
    expect(back).toMatchObject({
      state: 'PENDING',
      machineId: null,
      assignmentId: null,
      epoch: 1,
      rejections: { memory: 2 },
    });
    const endedAtMs = Date.now() - 1_000;
    const failed = await move({ states: ['PENDING'] }, 'FAILED', {
      reason: 'unplaceable',
      message: 'no\0room',
      exitCode: 3,
      endedAtMs,
    });
    expect(failed).toMatchObject({
      state: 'FAILED',
      reason: 'unplaceable',
      message: 'no\ufffdroom',
      exitCode: 3,
      endedAtMs,
    });
    expect((await listLiveContainers(db)).some((live) => live.id === id)).toBe(false);
    expect(await endedContainers(db, { workspaceId: workspace.id, limit: 5 })).toMatchObject([{ id, exitCode: 3 }]);
    expect(await endedContainers(db, { workspaceId: workspace.id, appId: 'other', limit: 5 })).toEqual([]);
  });

  test('many containers move in one statement, each by itself, and two of these at once do not deadlock', async () => {
    const workspace = await aWorkspace(db);
    const common = {
      workspaceId: workspace.id,
      stubId: newId<StubId>(),
      deploymentId: null,
      spec: { cpu: 1 },
      slots: 2,
    };
    const ids = Array.from({ length: 40 }, aContainerId);
    const placements = ids.map((id) => ({ id }));
    const fence = await raiseFence(db, 7);
    expect(await insertContainers(db, placements, common, fence - 1)).toBeUndefined();
    const rows = (await insertContainers(db, placements, common, fence)) ?? [];
    expect(rows.map((row) => row.id).toSorted()).toEqual(ids.toSorted());
    const from: MoveFrom = { states: ['PENDING'], epoch: 0 };
    const [a, b, c, d] = ids as [ContainerId, ContainerId, ContainerId, ContainerId];
    const outcomes = await moveContainers(db, [
      { id: d, from, to: 'STOPPED', change: { reason: 'user_stop', endedAtMs: 1_000 } },
      { id: a, from, to: 'ASSIGNED', change: { epoch: 1, slots: 3, scheduledAtMs: 2_000 }, fence },
      { id: b, from: { states: ['RUNNING'] }, to: 'STOPPING', change: { reason: 'x' } },
      { id: c, from, to: 'ASSIGNED', change: { epoch: 1 }, fence: fence - 1 },
      { id: 'endpoint-none' as ContainerId, from, to: 'ASSIGNED' },
    ]);
    expect(outcomes.map(({ kind }) => kind)).toEqual(['written', 'written', 'elsewhere', 'stale', 'elsewhere']);
    expect((await containersById(db, [a, b, c, d])).map((row) => [row.id, row])).toEqual(
      expect.arrayContaining([
        [a, expect.objectContaining({ state: 'ASSIGNED', epoch: 1, slots: 3, scheduledAtMs: 2_000, reason: null })],
        [b, expect.objectContaining({ state: 'PENDING', revision: 1 })],
        [c, expect.objectContaining({ state: 'PENDING', revision: 1 })],
        [d, expect.objectContaining({ state: 'STOPPED', reason: 'user_stop', endedAtMs: 1_000, epoch: 0 })],
      ]),
    );
    // Each call names the state that it read. So of two that move the same
    // containers in opposite orders, exactly one moves each container.
    const rest = ids.slice(4);
    const all = (order: readonly ContainerId[], reason: string) =>
      moveContainers(
        db,
        order.map((id) => ({ id, from, to: 'FAILED', change: { reason } })),
      );
    const [forth, back] = await Promise.all([all(rest, 'forth'), all(rest.toReversed(), 'back')]);
    const written = (some: typeof forth) => some.filter(({ kind }) => kind === 'written').length;
    expect(written(forth) + written(back)).toBe(rest.length);
  });

  test('what is due is claimed of every workspace in turn, the longest due first', async () => {
    const [many, few, none] = [newId<WorkspaceId>(), newId<WorkspaceId>(), newId<WorkspaceId>()];
    const late = (workspaceId: WorkspaceId, seconds: number) => ({ workspaceId, seconds, id: newId<DeliveryId>() });
    const rows = [
      ...[90, 80, 70, 60, 50].map((seconds) => late(many, seconds)),
      late(few, 20),
      late(few, 30),
      late(none, -60),
    ];
    const more = { kind: 'k', subject: 's', event: 'e', url: 'https://example.com/' };
    const deliveries = rows.map(({ id, workspaceId }) => ({ id, workspaceId, ...more }));
    await insertDeliveries(db, deliveries);
    for (const { id, seconds } of rows) {
      await db.query("update deliveries set due_at = now() - $2 * interval '1 second' where id = $1", [id, seconds]);
    }
    const claimed = async (
      limit: number,
      ofOne: number,
      underWay: readonly (readonly [WorkspaceId, number])[] = [],
    ) => {
      const times = { leastMs: 60_000, firstMs: 1_000, mostMs: 120_000 };
      const found = await claimDeliveries(db, limit, ofOne, new Map(underWay), times);
      return found.map(({ id }) => rows.find((row) => row.id === id)?.seconds ?? 0).toSorted((a, b) => b - a);
    };
    expect(await claimed(2, 3)).toEqual([90, 30]);
    expect(
      await claimed(10, 2, [
        [many, 1],
        [few, 2],
      ]),
    ).toEqual([80]);
    expect(await claimed(10, 1)).toEqual([70, 20]);
    await db.query("update deliveries set due_at = now() - interval '1 second', claim = 30");
    expect(await claimed(10, 1)).toHaveLength(3);
    const { rows: leases } = await db.query<{ seconds: number }>(
      'select distinct round(extract(epoch from due_at - updated_at))::int as seconds from deliveries where claim = 31',
    );
    expect(leases).toEqual([{ seconds: 120 }]);
    await db.query('delete from deliveries');
    expect(await claimed(10, 3)).toEqual([]);
  });

  const open = () => db;
  machineTests(open);
  taskTests(open);
  logTests(open, kind);
});
