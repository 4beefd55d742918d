import { readdirSync, readFileSync } from 'node:fs';
import { createHash, randomBytes } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { newId } from '#shared/domain/ids.ts';
import type {
  AppId,
  ContainerId,
  DeliveryId,
  DeploymentId,
  MachineId,
  StubId,
  TaskId,
  WorkspaceId,
} from '#shared/domain/ids.ts';
import type { ContainerState } from '#shared/domain/status.ts';
import { isUniqueViolation } from '../../scheduler/stores/store/db.ts';
import type { Db } from '../../scheduler/stores/store/db.ts';
import { getOrCreateApp, listApps } from '../../scheduler/stores/store/queries/apps.ts';
import type { ContainerChange, MoveFrom } from '../../scheduler/stores/store/queries/containers.ts';
import {
  containersById,
  insertContainers,
  listContainers,
  listLiveContainers,
  moveContainers,
} from '../../scheduler/stores/store/queries/containers.ts';
import {
  deleteDeployment,
  deploymentByName,
  deploymentBySubdomain,
  insertDeployment,
  listActiveDeployments,
  listDeployments,
  setDeploymentActive,
  setDeploymentScale,
} from '../../scheduler/stores/store/queries/deployments.ts';
import {
  dueDeliveriesOf,
  insertDeliveries,
  overdueDeliveries,
} from '../../scheduler/stores/store/queries/deliveries.ts';
import { HostLabels } from '../../scheduler/workspaces/deployments/host-labels.ts';
import { subdomainOf } from '../../scheduler/workspaces/deployments/urls.ts';
import { claimLabel } from '../../scheduler/stores/store/queries/host-labels.ts';
import { LogReader } from '../../scheduler/fleet/logs/log-reads.ts';
import type { LogFilter } from '../../scheduler/fleet/logs/log-service.ts';
import type { Queryable } from '../../scheduler/stores/store/db.ts';
import { insertLogLines } from '../../scheduler/stores/store/queries/logs.ts';
import { raiseFence } from '../../scheduler/stores/store/queries/leadership.ts';
import {
  deleteMachine,
  expireJoinSecrets,
  insertMachine,
  joinMachine,
  listMachines,
  machineById,
  recordHello,
  offerCredential,
  renewJoinSecret,
  replaceCredentials,
  updateMachine,
  useCredential,
} from '../../scheduler/stores/store/queries/machines.ts';
import { getOrCreatePool, listPools, poolByName } from '../../scheduler/stores/store/queries/pools.ts';
import { listStubs, reuseStub, stubById } from '../../scheduler/stores/store/queries/stubs.ts';
import {
  insertAcceptedTasks,
  listOpenAcceptedTasks,
  listTasks,
  taskById,
  upsertTaskRecords,
} from '../../scheduler/stores/store/queries/tasks.ts';
import { KINDS, aContainerId, aDb, aRecord, aStub, aWorkspace } from './store-fixture.ts';
import type { OpenedDb } from './store-fixture.ts';

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
    expect((await deploymentBySubdomain(db, `hello-${workspace.number}`, 3))?.version).toBe(3);
  });

  test('a host label is one name’s for ever: versions keep it, another workspace is refused', async () => {
    const [mine, others] = [await aWorkspace(db), await aWorkspace(db)];
    const labels = new HostLabels(db, new Uint8Array(32).fill(7));
    const mineNamed = { workspaceId: mine.id, name: 'shop', stubType: 'endpoint/deployment' };
    const [first, second] = await Promise.all([labels.of(mineNamed), labels.of(mineNamed)]);
    expect(first).toEqual({ kind: 'label', label: expect.stringMatching(/^shop-[0-9a-f]{16}$/) as string });
    expect(second).toEqual(first);
    // The label survives a change of the key.
    expect(await new HostLabels(db, new Uint8Array(32)).of(mineNamed)).toEqual(first);
    // A deployment that takes a label before its regular owner keeps it. The owner's name is refused, never shared.
    const taken = { workspaceId: mine.id, name: 'next', stubType: 'endpoint/deployment' };
    const label = subdomainOf(new Uint8Array(32).fill(7), taken);
    expect(await claimLabel(db, label, { ...taken, workspaceId: others.id })).toBe(true);
    expect(await labels.of(taken)).toEqual({ kind: 'held', label });
    expect(await claimLabel(db, label, { ...taken, workspaceId: others.id })).toBe(true);
  });

  test('labels from before they had rows stay with the name that had them first', async () => {
    const [mine, others] = [await aWorkspace(db), await aWorkspace(db)];
    const old = `old-${String(mine.number).padStart(7, '0')}`;
    for (const workspace of [mine, others]) {
      const stub = await aStub(db, workspace.id);
      await insertDeployment(db, {
        id: newId<DeploymentId>(),
        workspaceId: workspace.id,
        appId: stub.appId,
        stubId: stub.id,
        name: 'old',
        stubType: stub.type,
        subdomain: old,
      });
    }
    const migrations = new URL('../../scheduler/stores/store/migrations/', import.meta.url);
    const file = readdirSync(migrations).find((name) => name.endsWith('_host_labels.sql')) ?? '';
    const migration = readFileSync(new URL(file, migrations), 'utf8');
    await db.query('delete from host_labels');
    await db.query(migration.slice(migration.indexOf('insert into')).replace(/;\s*$/, ''));
    const labels = new HostLabels(db, new Uint8Array(32));
    const named = { name: 'old', stubType: 'endpoint/deployment' };
    expect(await labels.of({ workspaceId: mine.id, ...named })).toEqual({ kind: 'label', label: old });
    expect((await labels.of({ workspaceId: others.id, ...named })).label).toMatch(/^old-[0-9a-f]{16}$/);
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

  describe('machines', () => {
    const sha256 = (text: string): Uint8Array => createHash('sha256').update(text).digest();
    const nowMs = Date.now();
    async function aMachine(secret: string, joinExpiresAtMs = nowMs + 60_000) {
      const pool = await getOrCreatePool(db, { name: 'default', workspaceId: null });
      const id = randomBytes(4).toString('hex') as MachineId;
      return insertMachine(db, { id, poolId: pool.id, joinSecretHash: sha256(secret), joinExpiresAtMs });
    }
    const join = (secret: string, nonce: string, fingerprint = 'f', atMs = nowMs) =>
      joinMachine(db, {
        secretHash: sha256(secret),
        nonce,
        fingerprint,
        publicKey: 'k',
        hostname: 'host',
        agentVersion: '1',
        nowMs: atMs,
      });

    test('a join secret is burned by its first use; the same nonce gets the same answer for ten minutes', async () => {
      const machine = await aMachine('s1');
      const first = await join('s1', 'n1');
      expect(first).toMatchObject({ id: machine.id, fingerprint: 'f', credentialVersion: 1, poolName: 'default' });
      expect((await join('s1', 'n1', 'f', nowMs + 599_000))?.credentialVersion).toBe(1);
      expect(await join('s1', 'n1', 'f', nowMs + 601_000)).toBeUndefined();
      expect(await join('s1', 'n2')).toBeUndefined();
      expect(await join('s1', 'n1', 'another')).toBeUndefined();
      expect(await join('wrong', 'n1')).toBeUndefined();
    });

    test('of many that join with one secret one wins', async () => {
      await aMachine('s2');
      const outcomes = await Promise.all(
        Array.from({ length: 6 }, (_value, index) => join('s2', `n${index}`, `f${index}`)),
      );
      expect(outcomes.filter((row) => row !== undefined)).toHaveLength(1);
    });

    test('an expired secret is refused, shown as EXPIRED, and can be renewed', async () => {
      const machine = await aMachine('s3', nowMs - 1);
      expect(await join('s3', 'n')).toBeUndefined();
      expect(await expireJoinSecrets(db, nowMs)).toBeGreaterThanOrEqual(1);
      expect((await machineById(db, machine.id))?.health).toBe('EXPIRED');
      expect((await renewJoinSecret(db, machine.id, sha256('s4'), nowMs + 60_000))?.health).toBe('PENDING');
      expect((await join('s4', 'n'))?.id).toBe(machine.id);
      expect(await renewJoinSecret(db, machine.id, sha256('s5'), nowMs + 60_000)).toBeUndefined();
    });

    test('an offered credential takes the place of the one before when it is used, and is offered again until then', async () => {
      const { id } = await aMachine('s7');
      await join('s7', 'n');
      expect((await offerCredential(db, id, nowMs))?.credentialNext).toBe(2);
      expect(await offerCredential(db, id, nowMs + 60_000)).toMatchObject({
        credentialVersion: 1,
        credentialNext: 2,
        credentialNextAtMs: nowMs,
      });
      expect(await useCredential(db, id, 3)).toBeUndefined();
      expect(await useCredential(db, id, 2)).toMatchObject({ credentialVersion: 2, credentialNext: null });
      await offerCredential(db, id, nowMs);
      expect(await replaceCredentials(db, id)).toMatchObject({ credentialVersion: 4, credentialNext: null });
      expect(await useCredential(db, id, 3)).toBeUndefined();
    });

    test('an agent that comes back after another has taken its place is noted, one that only starts anew is not', async () => {
      const { id } = await aMachine('s8');
      const hello = (agentInstance: string) =>
        recordHello(db, {
          id,
          bootId: 'b',
          agentVersion: '1',
          hostname: 'h',
          inventory: {},
          conditions: null,
          replica: null,
          agentInstance,
        });
      for (const instance of ['a', 'a', 'b', 'c', 'd', 'e']) expect((await hello(instance))?.contestedAtMs).toBeNull();
      // Only the last four instances are remembered.
      expect((await hello('a'))?.contestedAtMs).toBeNull();
      expect((await hello('e'))?.contestedAtMs).not.toBeNull();
    });

    test('an older session changes nothing, and a deleted machine is gone', async () => {
      const machine = await aMachine('s6');
      const hello = {
        id: machine.id,
        bootId: 'b',
        agentVersion: '1',
        hostname: 'h',
        inventory: { cpu: 4 },
        conditions: null,
        replica: null,
        agentInstance: 'a',
      };
      const first = await recordHello(db, hello);
      const second = await recordHello(db, hello);
      expect(second?.sessionEpoch).toBe((first?.sessionEpoch ?? 0) + 1);
      const old = first?.sessionEpoch ?? 0;
      expect(await updateMachine(db, machine.id, { health: 'READY', ifSessionEpoch: old })).toBe(false);
      expect(
        await updateMachine(db, machine.id, { health: 'READY', conditions: ['DiskPressure'], ifSessionEpoch: old + 1 }),
      ).toBe(true);
      expect(await machineById(db, machine.id)).toMatchObject({
        health: 'READY',
        conditions: ['DiskPressure'],
        inventory: { cpu: 4 },
        intent: 'active',
      });
      expect((await recordHello(db, hello))?.conditions).toEqual(['DiskPressure']);
      expect((await recordHello(db, { ...hello, conditions: [] }))?.conditions).toEqual([]);
      expect(await deleteMachine(db, machine.id)).toBe(true);
      expect(await machineById(db, machine.id)).toBeUndefined();
      expect((await listMachines(db)).some((row) => row.id === machine.id)).toBe(false);
      expect(await join('s6', 'n')).toBeUndefined();
    });
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
    expect(await listContainers(db, { workspaceId: workspace.id, liveOnly: false, limit: 5 })).toHaveLength(1);
    expect(await listContainers(db, { workspaceId: workspace.id, liveOnly: true, limit: 5 })).toHaveLength(0);
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
      { id: a, from, to: 'ASSIGNED', change: { epoch: 1, gpuUuids: ['g'], scheduledAtMs: 2_000 }, fence },
      { id: b, from: { states: ['RUNNING'] }, to: 'STOPPING', change: { reason: 'x' } },
      { id: c, from, to: 'ASSIGNED', change: { epoch: 1 }, fence: fence - 1 },
      { id: 'endpoint-none' as ContainerId, from, to: 'ASSIGNED' },
    ]);
    expect(outcomes.map(({ kind }) => kind)).toEqual(['written', 'written', 'elsewhere', 'stale', 'elsewhere']);
    expect((await containersById(db, [a, b, c, d])).map((row) => [row.id, row])).toEqual(
      expect.arrayContaining([
        [
          a,
          expect.objectContaining({ state: 'ASSIGNED', epoch: 1, gpuUuids: ['g'], scheduledAtMs: 2_000, reason: null }),
        ],
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

  describe('tasks', () => {
    test('a record is read back as it was written, with what belongs to it', async () => {
      const workspace = await aWorkspace(db);
      const stub = await aStub(db, workspace.id, 'named');
      const record = aRecord({
        workspaceId: workspace.id,
        stubId: stub.id,
        status: 'COMPLETE',
        attempt: 1,
        rank: 3,
        startedAtMs: 1_800_000_000_200,
        endedAtMs: 1_800_000_000_301,
        durationMs: 100.5,
        containerHostname: 'host-1',
        deadlineMs: 1_800_000_600_000,
        result: '{"a":"\\u0000 é 😀"}',
      });
      await upsertTaskRecords(db, [record]);
      expect(await taskById(db, record.taskId)).toMatchObject({ ...record, stubName: 'named', deploymentName: null });
      const [listed] = await listTasks(db, { workspaceId: workspace.id, limit: 5 });
      expect(listed?.taskId).toBe(record.taskId);
      expect(listed?.result).toBeUndefined();
    });

    test('whatever the order and however often records come, the furthest one stands', async () => {
      const base = aRecord();
      const steps = [
        { status: 'PENDING', attempt: 0, rank: 0 },
        { status: 'RUNNING', attempt: 1, rank: 1 },
        { status: 'RETRY', attempt: 1, rank: 2 },
        { status: 'RUNNING', attempt: 2, rank: 1 },
        { status: 'ERROR', attempt: 2, rank: 3 },
        { status: 'COMPLETE', attempt: 2, rank: 4 },
      ] as const;
      for (const order of [steps, steps.toReversed(), [...steps.slice(3), ...steps.slice(0, 3)]]) {
        const taskId = newId<TaskId>();
        for (const step of [...order, ...order]) await upsertTaskRecords(db, [{ ...base, taskId, ...step }]);
        expect(await taskById(db, taskId)).toMatchObject(steps[5]);
      }
    });

    test('a final status stays, but for a completion of an attempt that none came after', async () => {
      const record = aRecord();
      const status = async (): Promise<string | undefined> => (await taskById(db, record.taskId))?.status;
      await upsertTaskRecords(db, [{ ...record, status: 'TIMEOUT', attempt: 2, rank: 3 }]);
      for (const late of [
        { status: 'RUNNING', attempt: 3, rank: 1 },
        { status: 'ERROR', attempt: 3, rank: 3 },
        { status: 'COMPLETE', attempt: 1, rank: 4 },
      ] as const) {
        await upsertTaskRecords(db, [{ ...record, ...late }]);
        expect(await status()).toBe('TIMEOUT');
      }
      await upsertTaskRecords(db, [{ ...record, status: 'COMPLETE', attempt: 2, rank: 4 }]);
      await upsertTaskRecords(db, [{ ...record, status: 'CANCELLED', attempt: 3, rank: 3 }]);
      expect(await status()).toBe('COMPLETE');
    });

    test('500 records go in one statement, and a batch above that is refused', async () => {
      const workspaceId = newId<WorkspaceId>();
      const records = Array.from({ length: 500 }, (_value, index) =>
        aRecord({ workspaceId, createdAtMs: 1_800_000_000_000 + index, failureReason: 'bad \ud800 text\0' }),
      );
      await upsertTaskRecords(db, records);
      const page = await listTasks(db, { workspaceId, limit: 3 });
      expect(page.map((row) => row.createdAtMs)).toEqual([1_800_000_000_499, 1_800_000_000_498, 1_800_000_000_497]);
      const last = page[2];
      const next = await listTasks(db, {
        workspaceId,
        limit: 2,
        before: { createdAtMs: last?.createdAtMs ?? 0, taskId: last?.taskId ?? '' },
      });
      expect(next.map((row) => row.createdAtMs)).toEqual([1_800_000_000_496, 1_800_000_000_495]);
      await expect(upsertTaskRecords(db, [...records, aRecord()])).rejects.toThrow(RangeError);
    });

    test('lists follow their filters and stay in their workspace', async () => {
      const workspaceId = newId<WorkspaceId>();
      const containerId = aContainerId();
      const one = aRecord({ workspaceId, status: 'COMPLETE', rank: 3, containerId });
      const two = aRecord({ workspaceId, createdAtMs: 1_800_000_001_000 });
      await upsertTaskRecords(db, [one, two]);
      const ids = async (filter: object): Promise<string[]> =>
        (await listTasks(db, { workspaceId, limit: 10, ...filter })).map((row) => row.taskId);
      expect(await ids({})).toEqual([two.taskId, one.taskId]);
      expect(await ids({ statuses: ['COMPLETE'] })).toEqual([one.taskId]);
      expect(await ids({ stubIds: [two.stubId] })).toEqual([two.taskId]);
      expect(await ids({ containerIds: [containerId] })).toEqual([one.taskId]);
      expect(await ids({ deploymentIds: [one.deploymentId] })).toEqual([one.taskId]);
      expect(await ids({ ids: [one.taskId, 'not-a-uuid'] })).toEqual([one.taskId]);
      expect(await ids({ ids: [] })).toEqual([]);
      expect(await ids({ createdFromMs: 1_800_000_000_500 })).toEqual([two.taskId]);
      expect(await ids({ createdToMs: 1_800_000_000_500 })).toEqual([one.taskId]);
      expect(await ids({ workspaceId: newId<WorkspaceId>() })).toEqual([]);
    });

    test('an accepted task keeps its queue entry until it ends, whichever is written first', async () => {
      const record = aRecord({ sync: false, kind: 'taskqueue' });
      const job = JSON.stringify({ taskId: record.taskId, input: '{"a":1}' });
      const early = aRecord({
        sync: false,
        kind: 'taskqueue',
        queue: record.queue,
        status: 'RUNNING',
        attempt: 1,
        rank: 1,
      });
      await upsertTaskRecords(db, [early]);
      await insertAcceptedTasks(db, [
        { record, job },
        { record: { ...early, status: 'PENDING', attempt: 0, rank: 0 }, job },
      ]);
      await insertAcceptedTasks(db, [{ record, job: 'other' }]);
      const open = await listOpenAcceptedTasks(db, { queue: record.queue, limit: 10 });
      expect(new Map(open.map((task) => [task.taskId, [task.status, task.job]]))).toEqual(
        new Map([
          [record.taskId, ['PENDING', job]],
          [early.taskId, ['RUNNING', job]],
        ]),
      );
      await upsertTaskRecords(db, [{ ...record, status: 'COMPLETE', attempt: 1, rank: 3 }]);
      expect(await listOpenAcceptedTasks(db, { queue: record.queue, limit: 10 })).toHaveLength(1);
      await insertAcceptedTasks(db, [{ record, job }]);
      expect((await taskById(db, record.taskId))?.status).toBe('COMPLETE');
      expect(await listOpenAcceptedTasks(db, { queue: record.queue, limit: 10 })).toHaveLength(1);
    });
  });

  test('log lines are read by container, task, stub, deployment, app or machine, the last ones first cut, in order', async () => {
    const workspaceId = newId<WorkspaceId>();
    const containerId = aContainerId();
    const taskId = newId<TaskId>();
    const stubId = newId<StubId>();
    const deploymentId = newId<DeploymentId>();
    const lines = Array.from({ length: 10 }, (_value, index) => ({
      workspaceId,
      stubId,
      deploymentId,
      containerId,
      taskId: index < 5 ? taskId : null,
      stream: index % 2 === 0 ? ('stdout' as const) : ('stderr' as const),
      line: `Line ${index}\0`,
      atMs: 1_800_000_000_000 + index,
    }));
    await insertLogLines(db, lines);
    const reader = new LogReader(db);
    const linesOf = async ({ owner = workspaceId, ...filter }: Partial<LogFilter> & { owner?: WorkspaceId }) =>
      (await reader.read(owner, { limit: 100, page: 0, ...filter })).lines;
    const read = async (filter: Partial<LogFilter> & { owner?: WorkspaceId }): Promise<string[]> =>
      (await linesOf(filter)).map((row) => row.line.slice(0, 6));
    expect(await read({ containerId, limit: 3 })).toEqual(['Line 7', 'Line 8', 'Line 9']);
    expect(await read({ containerId, limit: 3, page: 1 })).toEqual(['Line 4', 'Line 5', 'Line 6']);
    expect(await read({ taskId })).toEqual(['Line 0', 'Line 1', 'Line 2', 'Line 3', 'Line 4']);
    expect(await read({ stubId, deploymentId, query: 'LINE 3' })).toEqual(['Line 3']);
    expect(await read({ containerId, owner: newId<WorkspaceId>() })).toEqual([]);
    const [first] = await linesOf({ containerId, limit: 10 });
    expect(first).toMatchObject({ stream: 'stdout', atMs: 1_800_000_000_000, taskId });
    expect(await read({ containerId, afterSeq: first?.seq ?? 0, limit: 2 })).toEqual(['Line 1', 'Line 2']);
    // Filters by the stub's app and the container's machine.
    expect([await read({ appId: newId<AppId>() }), await read({ machineId: 'm-1' })]).toEqual([[], []]);
    const owner = await aWorkspace(db);
    const stub = await aStub(db, owner.id);
    const onMachine = aContainerId();
    await db.query(
      `insert into containers (id, workspace_id, stub_id, state, machine_id, spec, slots) values ($1, $2, $3, 'STOPPED', 'm-1', '{}', 1)`,
      [onMachine, owner.id, stub.id],
    );
    const theirs = { ...lines[0], workspaceId: owner.id, stubId: stub.id, deploymentId: null, taskId: null };
    await insertLogLines(db, [
      { ...theirs, containerId: onMachine, stream: 'stdout', line: 'On it.', atMs: 1_900_000_000_000 },
      { ...theirs, containerId: aContainerId(), stream: 'stdout', line: 'Other.', atMs: 1_900_000_000_001 },
    ]);
    const ofOwner = { owner: owner.id };
    expect(await read({ ...ofOwner, appId: stub.appId })).toEqual(['On it.', 'Other.']);
    expect(await read({ ...ofOwner, machineId: 'm-1' })).toEqual(['On it.']);
    expect(await read({ appId: stub.appId })).toEqual([]);
  });

  test('a search looks at 50 000 lines in statements of few, and goes on from there', async () => {
    const [mine, others] = [newId<WorkspaceId>(), newId<WorkspaceId>()];
    const many = (workspaceId: WorkspaceId, count: number, word: string): Promise<unknown> =>
      db.query(
        `insert into log_lines (workspace_id, stub_id, container_id, stream, line, at)
         select $1, 's', 'c', 'stdout', $2 || n, now() from generate_series(1, $3::int) n`,
        [workspaceId, word, count],
      );
    await many(mine, 3, 'Needle ');
    await many(others, 1_000, 'Needle ');
    await many(mine, 50_500, 'hay ');
    const statements: string[] = [];
    const of = (workspaceId: string): Queryable => ({
      query: (sql, params) => {
        statements.push(sql);
        return db.reads.of(workspaceId).query(sql, params);
      },
    });
    const reader = new LogReader({ kind: db.kind, reads: { ...db.reads, of } });
    const ask = (filter: Partial<LogFilter>) => reader.read(mine, { limit: 2, page: 0, query: 'NEEDLE', ...filter });
    const first = await ask({});
    expect(first.lines).toEqual([]);
    expect(statements.length).toBeLessThan(70);
    const second = await ask({ beforeSeq: first.nextSeq ?? 0 });
    expect(second.lines.map(({ line }) => line)).toEqual(['Needle 2', 'Needle 3']);
    const third = await ask({ beforeSeq: second.nextSeq ?? 0 });
    expect([third.lines.map(({ line }) => line), third.nextSeq]).toEqual([['Needle 1'], undefined]);
    // Readers that follow the log page forward.
    const from = await ask({ afterSeq: 0, limit: 3 });
    expect(from.lines).toHaveLength(3);
    const rest = await ask({ afterSeq: from.nextSeq ?? 0 });
    expect(rest.lines).toEqual([]);
    expect((await ask({ afterSeq: rest.nextSeq ?? 0 })).nextSeq).toBeUndefined();
    // The answer gives no hint of another workspace's lines, however many there are.
    const stranger = await reader.read(newId<WorkspaceId>(), { limit: 2, page: 0, containerId: 'c' });
    expect(stranger).toEqual({ lines: [], isFull: false, nextSeq: undefined });
    // A window in the past that lies before everything ends at once.
    statements.length = 0;
    expect((await ask({ fromMs: Date.now() + 2 * 60 * 60_000 })).nextSeq).toBeUndefined();
    expect(statements).toHaveLength(2);
  });

  test.runIf(kind === 'pglite')(
    'a hundred statements of the platform pass a tenant’s read, and then it has its turn',
    async () => {
      const order: string[] = [];
      const begun = Promise.withResolvers<void>();
      const gate = Promise.withResolvers<void>();
      const holding = db.transaction(async () => {
        begun.resolve();
        await gate.promise;
      });
      await begun.promise;
      const read = db.reads
        .of('w')
        .query('select 1')
        .then(() => order.push('read'));
      const platform = Array.from({ length: 150 }, () => db.query('select 1').then(() => order.push('platform')));
      gate.resolve();
      await Promise.all([holding, read, ...platform]);
      expect(order.indexOf('read')).toBe(100);
    },
  );

  test('one search of a workspace runs at a time; four wait, and the sixth is told so', async () => {
    const workspaceId = newId<WorkspaceId>();
    const gate = Promise.withResolvers<void>();
    let [running, most] = [0, 0];
    const of = (): Queryable => ({
      query: async () => {
        running += 1;
        most = Math.max(most, running);
        await gate.promise;
        running -= 1;
        return { rows: [], rowCount: 0 };
      },
    });
    const reader = new LogReader({ kind: db.kind, reads: { ...db.reads, of } });
    const search = () => reader.read(workspaceId, { limit: 1, page: 0, query: 'x' });
    const five = Array.from({ length: 5 }, search);
    await expect(search()).rejects.toMatchObject({ code: 'rate_limited' });
    gate.resolve();
    await Promise.all(five);
    expect(most).toBe(1);
  });

  test('what is overdue comes of every workspace in turn, the longest due first', async () => {
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
    const secondsOf = (found: readonly { readonly id: string }[]) =>
      found.map(({ id }) => rows.find((row) => row.id === id)?.seconds);
    expect(secondsOf(await overdueDeliveries(db, 2_000, 10, 3))).toEqual([90, 30, 80, 20, 70]);
    expect(secondsOf(await overdueDeliveries(db, 2_000, 2, 3))).toEqual([90, 30]);
    expect(secondsOf(await overdueDeliveries(db, 25_000, 10, 1))).toEqual([90, 30]);
    expect(secondsOf(await dueDeliveriesOf(db, few, 10))).toEqual([30, 20]);
    expect(await dueDeliveriesOf(db, none, 10)).toEqual([]);
    await db.query('delete from deliveries');
    expect(await overdueDeliveries(db, 0, 10, 3)).toEqual([]);
  });
});
