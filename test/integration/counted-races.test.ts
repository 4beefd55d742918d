// Counted things of a workspace: calls at once make no more of them than the bound, whichever replicas take the calls.
import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { newId } from '#shared/domain/ids.ts';
import type { InstanceId, ObjectId, OutputId, TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import { openFileObjects } from '#scheduler/stores/objects/files.ts';
import { createObjects } from '#scheduler/stores/objects/service.ts';
import type { Objects } from '#scheduler/stores/objects/service.ts';
import { claimBuild } from '#scheduler/stores/store/queries/images.ts';
import { objectUse } from '#scheduler/stores/store/queries/quotas.ts';
import { insertTaskOutput } from '#scheduler/stores/store/queries/task-outputs.ts';
import { IdempotencyKeys } from '#scheduler/tasks/admission/idempotency-keys.ts';
import { Deployments } from '#scheduler/workspaces/deployments/deployments.ts';
import type { DeploymentsParts } from '#scheduler/workspaces/deployments/deployments.ts';
import { systemClock } from '#shared/clock.ts';
import { ContainerRegistry } from '#scheduler/fleet/containers/container-registry.ts';
import { HandMadeContainers } from '#scheduler/fleet/containers/hand-made.ts';
import { EventWriter } from '#scheduler/workspaces/events/writer.ts';
import { SharedState } from '#scheduler/workspaces/shared-state/service.ts';
import { Secrets } from '#scheduler/workspaces/secrets/service.ts';
import { Volumes } from '#scheduler/workspaces/deployments/volumes.ts';
import { waitFor } from '../helpers/services.ts';
import { aDb, aStub, aWorkspace, silent } from './store-fixture.ts';
import type { OpenedDb } from './store-fixture.ts';
import { aTarget } from './tasks-fixture.ts';

const MOST = 3;
const CALLS = 12;
const CONNECTIONS = 10;
let opened: OpenedDb;
beforeAll(async () => {
  opened = await aDb('postgres');
  await opened.db.query(
    `create function at_gate() returns trigger language plpgsql as
     $$ begin perform pg_advisory_xact_lock_shared(${GATE}); return null; end $$`,
  );
  for (const table of GATED)
    await opened.db.query(
      `create trigger gated before insert on ${table} for each statement execute function at_gate()`,
    );
});
afterAll(() => opened.stop());

/** Statements of these tables' inserts wait here once they have begun, so that each has seen the same rows. */
const GATE = 4711;
const GATED = ['deployments', 'idempotency_keys', 'objects', 'shared_entries', 'task_outputs'];

/** Calls at once: none of their inserts ends before as many wait as have connections. */
async function atOnce<T>(make: (at: number) => Promise<T>): Promise<PromiseSettledResult<T>[]> {
  const { db } = opened;
  const here = Promise.withResolvers<void>();
  const open = Promise.withResolvers<void>();
  const gate = db.transaction(async (tx) => {
    await tx.query('select pg_advisory_xact_lock($1)', [GATE]);
    here.resolve();
    await open.promise;
  });
  await here.promise;
  const calls = Promise.allSettled(Array.from({ length: CALLS }, (_, at) => make(at)));
  const sql = "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
  const waiting = async () => (await db.reads.of('test').query(sql)).rows.length;
  let isOver = false;
  void calls.finally(() => (isOver = true));
  await waitFor(async () => isOver || (await waiting()) >= CONNECTIONS - 1, 'the calls wait for the gate', 20_000);
  open.resolve();
  await gate;
  return await calls;
}
const rowsOf = async (table: string, workspaceId: WorkspaceId): Promise<number> =>
  (await opened.db.query(`select 1 from ${table} where workspace_id = $1`, [workspaceId])).rows.length;

test('builds at once', async () => {
  const { id: workspaceId } = await aWorkspace(opened.db);
  const claims = await atOnce(() =>
    claimBuild(opened.db, {
      id: randomUUID(),
      workspaceId,
      definition: {},
      owner: 'i' as InstanceId,
      most: 2,
      mostImages: MOST,
      forced: false,
    }),
  );
  const ends = claims.map((one) => (one.status === 'fulfilled' ? one.value : one.reason));
  expect(ends.filter((end) => end === 'claimed')).toHaveLength(2);
  expect(await rowsOf('images', workspaceId)).toBe(MOST);
});

test('volumes', async () => {
  const { id: workspaceId } = await aWorkspace(opened.db);
  const volumes = new Volumes(opened.db, 'local', () => MOST);
  await atOnce((at) => volumes.getOrCreate({ workspaceId }, `v-${at}`));
  expect(await rowsOf('volumes', workspaceId)).toBe(MOST);
  expect(await volumes.getOrCreate({ workspaceId }, 'more')).toMatchObject({ kind: 'refused' });
});

test('containers that are made by hand, at two replicas', async () => {
  const { id: workspaceId } = await aWorkspace(opened.db);
  const { id: stubId } = await aStub(opened.db, workspaceId);
  const target = { ...aTarget({ stubType: 'sandbox' }), workspaceId, stubId };
  const replicas = [1, 2].map(() => {
    const containers = new ContainerRegistry({ db: opened.db, log: silent, clock: systemClock });
    return { containers, handMade: new HandMadeContainers({ containers, mostOf: () => Promise.resolve(MOST) }) };
  });
  // Containers that scaling made count for none.
  await replicas[0]?.containers.create(target);
  // Neither replica hears of what the other makes.
  const made = await Promise.all(
    Array.from({ length: CALLS }, async (_, at) => replicas[at % 2]?.handMade.create(target)),
  );
  const ends = made.map((one) => one?.kind);
  expect(ends.filter((end) => end === 'made')).toHaveLength(MOST);
  expect(ends.filter((end) => end === 'full')).toHaveLength(CALLS - MOST);
  expect(await rowsOf('containers', workspaceId)).toBe(MOST + 1);
  // A container that ended makes room, also at the replica that did not hear of it.
  await opened.db.query(
    "update containers set state = 'STOPPED' where id = (select max(id) from containers where workspace_id = $1 and spec->>'byHand' = 'true')",
    [workspaceId],
  );
  expect(await replicas[1]?.handMade.create(target)).toMatchObject({ kind: 'made' });
});

test('secrets', async () => {
  const { id: workspaceId } = await aWorkspace(opened.db);
  const secrets = new Secrets(opened.db, { seal: () => new Uint8Array([1]), open: () => new Uint8Array() } as never);
  await opened.db.query(
    `insert into secrets (id, workspace_id, name, sealed) select 's' || n, $1, 's' || n, '' from generate_series(1, 497) n`,
    [workspaceId],
  );
  const made = await atOnce((at) => secrets.create(workspaceId, `t${at}`, 'x'));
  expect(made.filter(({ status }) => status === 'fulfilled')).toHaveLength(3);
  expect(await rowsOf('secrets', workspaceId)).toBe(500);
});

describe('deployments', () => {
  test.each(['endpoint/deployment', 'schedule/deployment'])('of %s', async (type) => {
    const { id: workspaceId } = await aWorkspace(opened.db);
    const stub = { ...(await aStub(opened.db, workspaceId)), type, config: { schedule: { when: '@hourly' } } };
    const deployments = new Deployments({
      db: opened.db,
      stubs: { find: () => Promise.resolve(stub), pythonProblem: () => undefined },
      images: { resolve: () => Promise.resolve({ kind: 'resolved', digest: '' }) },
      labelKey: new Uint8Array(32),
      events: new EventWriter(),
      targets: { changed: () => Promise.resolve() },
      nowMs: () => Date.now(),
      isServed: () => false,
      limitsOf: () => ({ maxDeployments: MOST }),
    } as unknown as DeploymentsParts);
    const made = await atOnce((at) => deployments.deploy({ workspaceId } as never, stub.id, `d-${at}`));
    const ends = made.map((one) => (one.status === 'fulfilled' ? one.value : one.reason));
    expect(ends.filter((end) => end.kind === 'deployed')).toHaveLength(MOST);
    for (const end of ends) if (end.kind !== 'deployed') expect(end).toMatchObject({ why: 'limit' });
    expect(await rowsOf('deployments', workspaceId)).toBe(MOST);
  });
});

describe('objects', () => {
  const anObjects = async (quota: { objects: number; bytes: number }): Promise<Objects> =>
    createObjects({
      db: opened.db,
      backend: await openFileObjects(join(opened.dataDir, 'objects')),
      installation: { deriveKeys: () => [new Uint8Array(32)] },
      quotaOf: () => quota,
    });
  const announced = (objects: Objects, owner: { workspaceId: WorkspaceId }, at: number, size: number) =>
    objects.create(owner, { hash: `h-${at}`, size, overwrite: false });
  const FULL = { status: 'rejected', reason: expect.objectContaining({ code: 'object_quota_reached' }) };

  test.each([
    ['by their number', { objects: MOST, bytes: 1_000_000 }],
    ['by their bytes', { objects: 1_000, bytes: MOST * 100 }],
  ])('bounded %s', async (_how, quota) => {
    const owner = { workspaceId: (await aWorkspace(opened.db)).id };
    const objects = await anObjects(quota);
    const made = await atOnce((at) => announced(objects, owner, at, 100));
    expect(made.filter(({ status }) => status === 'fulfilled')).toHaveLength(MOST);
    for (const one of made) if (one.status === 'rejected') expect(one).toEqual(FULL);
    expect(await rowsOf('objects', owner.workspaceId)).toBe(MOST);
    // A known hash is no further object.
    await announced(
      objects,
      owner,
      made.findIndex(({ status }) => status === 'fulfilled'),
      100,
    );
  });

  test.each([
    ['that say their length', true],
    ['that do not say their length', false],
  ])('uploads of more bytes than were announced, %s', async (_how, saysLength) => {
    const owner = { workspaceId: (await aWorkspace(opened.db)).id };
    const objects = await anObjects({ objects: 1_000, bytes: MOST * 100 });
    const ids: ObjectId[] = [];
    for (let at = 0; at < CALLS; at += 1) ids.push((await announced(objects, owner, at, 0)).objectId);
    const begun = Promise.withResolvers<void>();
    let sending = 0;
    // Each upload goes on when all of them have been let in, or refused.
    const came = (): void => void ((sending += 1) === CALLS && begun.resolve());
    async function* bytes(): AsyncGenerator<Uint8Array> {
      yield new Uint8Array(40);
      came();
      await begun.promise;
      yield new Uint8Array(60);
    }
    const ends = await atOnce((at) =>
      objects.receive(ids[at]!, bytes(), saysLength ? 100 : undefined).catch((error: unknown) => {
        came();
        throw error;
      }),
    );
    const stored = ends.filter(({ status }) => status === 'fulfilled').length;
    // Bodies that do not say their length may fill the room with their beginnings, and then none of them goes on.
    expect(stored).toBeGreaterThanOrEqual(saysLength ? MOST : 0);
    expect(stored).toBeLessThanOrEqual(MOST);
    for (const one of ends) if (one.status === 'rejected') expect(one).toEqual(FULL);
    expect((await objectUse(opened.db, owner.workspaceId, '')).bytes).toBe(stored * 100);
  });

  test('uploads of one object at once: a few, which count until the last has ended', async () => {
    const owner = { workspaceId: (await aWorkspace(opened.db)).id };
    const objects = await anObjects({ objects: 1_000, bytes: 100 });
    const { objectId } = await announced(objects, owner, 1, 100);
    const go = Promise.withResolvers<void>();
    const slow = async (): Promise<Promise<unknown>[]> => {
      const begun = Promise.withResolvers<void>();
      async function* bytes(): AsyncGenerator<Uint8Array> {
        yield new Uint8Array(50);
        begun.resolve();
        await go.promise;
        yield new Uint8Array(50);
      }
      const upload = objects.receive(objectId, bytes(), 100);
      await begun.promise;
      return [upload];
    };
    async function* none(): AsyncGenerator<Uint8Array> {}
    const uploads = [...(await slow()), ...(await slow()), ...(await slow())];
    // The object has no byte now, and its uploads count on.
    await objects.receive(objectId, none(), 0);
    await expect(announced(objects, owner, 2, 1)).rejects.toMatchObject({ code: 'object_quota_reached' });
    uploads.push(...(await slow()));
    await expect(objects.receive(objectId, none(), 0)).rejects.toMatchObject({ code: 'upload_in_progress' });
    go.resolve();
    await Promise.all(uploads);
    expect((await objectUse(opened.db, owner.workspaceId, '')).bytes).toBe(100);
    await objects.receive(objectId, none(), 0);
    await announced(objects, owner, 2, 100);
  });

  test('a body that does not say its length counts while it comes', async () => {
    const owner = { workspaceId: (await aWorkspace(opened.db)).id };
    const objects = await anObjects({ objects: 1_000, bytes: 100 });
    const { objectId } = await announced(objects, owner, 1, 0);
    let seen: unknown;
    async function* bytes(): AsyncGenerator<Uint8Array> {
      yield new Uint8Array(80);
      seen = await announced(objects, owner, 2, 30).catch((error: unknown) => error);
      yield new Uint8Array(10);
    }
    await objects.receive(objectId, bytes());
    expect(seen).toMatchObject({ code: 'object_quota_reached' });
    expect((await objectUse(opened.db, owner.workspaceId, '')).bytes).toBe(90);
  });

  test('an upload that fails gives its room back', async () => {
    const owner = { workspaceId: (await aWorkspace(opened.db)).id };
    const objects = await anObjects({ objects: 10, bytes: 150 });
    const [first, second] = [await announced(objects, owner, 1, 10), await announced(objects, owner, 2, 10)];
    async function* cut(): AsyncGenerator<Uint8Array> {
      yield new Uint8Array(50);
    }
    await expect(objects.receive(first.objectId, cut(), 140)).rejects.toMatchObject({ code: 'upload_incomplete' });
    async function* whole(): AsyncGenerator<Uint8Array> {
      yield new Uint8Array(140);
    }
    await objects.receive(second.objectId, whole(), 140);
    expect((await objectUse(opened.db, owner.workspaceId, '')).bytes).toBe(150);
  });
});

describe('shared entries', () => {
  const json = (value: string) => ({ encoding: 'json', value }) as const;
  const aState = (room: { entries: number; bytes: number }) =>
    new SharedState({ db: opened.db, mayTakeCode: () => Promise.resolve(true), roomOf: () => Promise.resolve(room) });
  const ROOMY = { entries: 10_000, bytes: 256 * 1024 * 1024 };

  test.each([
    ['entries of maps', 'entries', { entries: MOST, bytes: 1_000_000 }],
    ['items of queues', 'items', { entries: MOST, bytes: 1_000_000 }],
    ['bytes of maps', 'entries', { entries: 1_000, bytes: MOST * 8 }],
    ['bytes of queues', 'items', { entries: 1_000, bytes: MOST * 8 }],
    ['signals', 'signals', { entries: MOST, bytes: 1_000_000 }],
  ])('%s', async (_what, kind, room) => {
    const { id: workspaceId } = await aWorkspace(opened.db);
    const state = aState(room);
    const write = (at: number): Promise<unknown> => {
      if (kind === 'items') return state.push(workspaceId, 'n', json('1234567'), undefined, undefined);
      if (kind === 'signals') return state.setSignal(workspaceId, `s-${at}`, 60, undefined);
      return state.putEntry(workspaceId, 'n', String.fromCodePoint(97 + at), json('123456'), undefined);
    };
    const ends = await atOnce(write);
    expect(ends.filter(({ status }) => status === 'fulfilled')).toHaveLength(MOST);
    const full = { status: 'rejected', reason: expect.objectContaining({ code: 'shared_state_full' }) };
    for (const one of ends) if (one.status === 'rejected') expect(one).toEqual(full);
    expect(await rowsOf('shared_entries', workspaceId)).toBe(MOST);
  });

  test('items of a queue that has a bound of its own', async () => {
    const { id: workspaceId } = await aWorkspace(opened.db);
    const state = aState(ROOMY);
    const ends = await atOnce(() => state.push(workspaceId, 'n', json('1'), MOST, undefined));
    expect(ends.filter(({ status }) => status === 'fulfilled')).toHaveLength(MOST);
    expect(await rowsOf('shared_entries', workspaceId)).toBe(MOST);
  });
});

test('outputs of a task', async () => {
  const { id: workspaceId } = await aWorkspace(opened.db);
  const taskId = newId<TaskId>();
  const objectId = newId<ObjectId>();
  const made = await atOnce((at) =>
    insertTaskOutput(opened.db, { id: newId<OutputId>(), workspaceId, taskId, objectId, name: `${at}`, most: MOST }),
  );
  expect(made.filter((one) => one.status === 'fulfilled' && one.value !== undefined)).toHaveLength(MOST);
  expect(await rowsOf('task_outputs', workspaceId)).toBe(MOST);
});

describe('idempotency keys', () => {
  test.each([
    ['of callers with a token', true, { most: MOST, mostOfOthers: 100, keptSeconds: 60 }],
    ['of other callers', false, { most: 100, mostOfOthers: MOST, keptSeconds: 60 }],
  ])('%s', async (_whose, isOwn, bounds) => {
    const { id: workspaceId } = await aWorkspace(opened.db);
    const keys = new IdempotencyKeys({ db: opened.db, log: silent, bounds });
    const place = { workspaceId, scope: 's', isOwn, fingerprint: 'f', deploymentId: null };
    const made = await atOnce(async (at) => {
      const key = { ...place, key: `k-${at}`, taskId: newId<TaskId>() };
      return (await keys.insert(key)) || (await keys.insertInTurn(key));
    });
    expect(made.filter((one) => one.status === 'fulfilled' && one.value)).toHaveLength(MOST);
    expect(await rowsOf('idempotency_keys', workspaceId)).toBe(MOST);
  });
});
