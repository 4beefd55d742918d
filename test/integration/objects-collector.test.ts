// The collector deletes uploaded archives and kept bodies that nothing refers to, and never any other object.
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { newId } from '#shared/domain/ids.ts';
import type { AppId, ObjectId, OutputId, StubId, TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import { Registry } from '#shared/metrics.ts';
import { ObjectCollector, ObjectMetrics } from '#scheduler/stores/objects/collector.ts';
import { openFileObjects } from '#scheduler/stores/objects/files.ts';
import { createObjects } from '#scheduler/stores/objects/service.ts';
import type { Objects } from '#scheduler/stores/objects/service.ts';
import { getOrCreateApp } from '#scheduler/stores/store/queries/apps.ts';
import { insertTaskOutput } from '#scheduler/stores/store/queries/task-outputs.ts';
import { insertStub } from '#scheduler/stores/store/queries/stubs.ts';
import { upsertTaskRecords } from '#scheduler/stores/store/queries/tasks.ts';
import { inputKeyOf, taskOfInputKey } from '#scheduler/tasks/dispatch/bodies.ts';
import { KINDS, aDb, aRecord, aWorkspace, silent } from './store-fixture.ts';
import type { OpenedDb } from './store-fixture.ts';

const GRACE_MS = 3_600_000 * 25;
const LATER_MS = GRACE_MS + 60_000;

describe.each(KINDS)('on %s', (kind) => {
  let opened: OpenedDb;
  let objects: Objects;
  let owner: { workspaceId: WorkspaceId };
  beforeAll(async () => {
    opened = await aDb(kind);
    objects = createObjects({
      db: opened.db,
      backend: await openFileObjects(join(opened.dataDir, 'objects')),
      installation: { deriveKeys: () => [new Uint8Array(32)] },
    });
    owner = { workspaceId: (await aWorkspace(opened.db)).id };
  });
  afterAll(() => opened.stop());

  /** A collector whose clock is that much later. */
  const collector = (laterMs: number, most: { readonly mostRemoved?: number; readonly mostLookedAt?: number } = {}) =>
    new ObjectCollector({
      db: opened.db,
      kept: () => objects.keptBytes(),
      remove: (key) => objects.removeBytes(key),
      takeUploads: (beforeMs, most) => objects.takeUploads(beforeMs, most),
      isOthers: (key) => taskOfInputKey(key) !== undefined,
      metrics: new ObjectMetrics(new Registry()),
      clock: { nowMs: () => Date.now() + laterMs } as never,
      log: silent,
      graceMs: GRACE_MS,
      ...most,
    });
  async function* text(content: string): AsyncGenerator<Uint8Array> {
    yield Buffer.from(content);
  }
  async function uploaded(hash: string): Promise<ObjectId> {
    const { objectId } = await objects.create(owner, { hash, size: 3, overwrite: true });
    await objects.receive(objectId, text('abc'), 3);
    return objectId;
  }
  /** Makes an object's last use older than the whole grace. */
  const forget = (id: ObjectId) =>
    opened.db.query("update objects set touched_at = now() - interval '26 hours' where id = $1", [id]);
  const isThere = async (id: ObjectId): Promise<boolean> => (await objects.find(owner, id)) !== undefined;
  async function stubOf(objectId: ObjectId, db = opened.db as Parameters<typeof insertStub>[0]): Promise<void> {
    const app = await getOrCreateApp(db, owner.workspaceId, 'app', newId<AppId>());
    await insertStub(db, {
      id: newId<StubId>(),
      workspaceId: owner.workspaceId,
      appId: app.id,
      name: 's',
      type: 'endpoint',
      objectId,
      config: {},
      configHash: newId(),
      public: false,
    });
  }

  test('an output of a task stays as long as its row', async () => {
    const kept = await uploaded('output');
    const id = newId<OutputId>();
    const output = { id, workspaceId: owner.workspaceId, taskId: newId<TaskId>(), objectId: kept, name: 'a' };
    await insertTaskOutput(opened.db, { ...output, most: 5 });
    await forget(kept);
    await collector(0).round();
    expect(await isThere(kept)).toBe(true);
    await opened.db.query('delete from task_outputs where id = $1', [id]);
    await collector(0).round();
    expect(await isThere(kept)).toBe(false);
  });

  test('what no stub names goes with its bytes after the grace, not before; what one names stays', async () => {
    const [unused, used, young] = [await uploaded('unused'), await uploaded('used'), await uploaded('young')];
    await stubOf(used);
    await forget(unused);
    await forget(used);
    expect(await collector(0).round()).toEqual({ objects: 1, bytes: 0 });
    expect(await Promise.all([unused, used, young].map(isThere))).toEqual([false, true, true]);
    const kept = (await Array.fromAsync(objects.keptBytes())).map(({ key }) => key);
    expect(kept).not.toContain(unused);
    expect(kept).toEqual(expect.arrayContaining([used, young]));
    // The deleted archive's hash counts as new again.
    expect(await objects.head(owner, 'unused')).toBeUndefined();
    expect((await objects.create(owner, { hash: 'unused', size: 3, overwrite: false })).uploadPath).not.toBeNull();
  });

  test.each([
    ['is asked for by its hash', (id: ObjectId) => objects.head(owner, 'again').then((row) => row?.id === id)],
    ['is announced again', () => objects.create(owner, { hash: 'again', size: 3, overwrite: false })],
    ['is named by a stub to come', (id: ObjectId) => objects.use(id)],
    ['is being uploaded', (id: ObjectId) => objects.receive(id, text('abc'), 3)],
  ])('one that %s begins a new grace', async (_, use) => {
    const id = await uploaded('again');
    await forget(id);
    await use(id);
    expect((await collector(0).round()).objects).toBe(0);
    expect(await isThere(id)).toBe(true);
  });

  test('an upload under way is not taken from under its bytes', async () => {
    const { objectId } = await objects.create(owner, { hash: 'slow', size: 6, overwrite: true });
    await forget(objectId);
    let go: () => void = () => undefined;
    const halfway = new Promise<void>((resolve) => (go = resolve));
    let begun: () => void = () => undefined;
    const started = new Promise<void>((resolve) => (begun = resolve));
    async function* slowly(): AsyncGenerator<Uint8Array> {
      yield Buffer.from('abc');
      begun();
      await halfway;
      yield Buffer.from('def');
    }
    const receiving = objects.receive(objectId, slowly(), 6);
    await started;
    expect((await collector(0).round()).objects).toBe(0);
    go();
    expect(await receiving).toMatchObject({ size: 6 });
  });

  test('bytes that neither a row nor a task knows go after the grace; inputs are somebody else’s', async () => {
    const result = await objects.putBytes(Buffer.from('{}'));
    const orphan = await objects.putBytes(Buffer.from('{}'));
    const input = await objects.putBytes(Buffer.from('{}'), inputKeyOf(newId<TaskId>()));
    await upsertTaskRecords(opened.db, [aRecord({ status: 'COMPLETE', rank: 4, resultObjectId: result })]);
    // Rows are younger than their grace by the database's clock; only bytes are old for this collector.
    expect((await collector(0).round()).bytes).toBe(0);
    await opened.db.query("update objects set touched_at = now() + interval '10 years'");
    expect((await collector(LATER_MS).round()).bytes).toBe(1);
    const kept = (await Array.fromAsync(objects.keptBytes())).map(({ key }) => key);
    expect(kept).not.toContain(orphan);
    expect(kept).toEqual(expect.arrayContaining([result, input]));
  });

  test('a round is bounded, and the next one goes on where it stopped', async () => {
    for (let n = 0; n < 5; n += 1) await forget(await uploaded(`many-${n}`));
    const one = collector(0, { mostRemoved: 2 });
    expect([(await one.round()).objects, (await one.round()).objects, (await one.round()).objects]).toEqual([2, 2, 1]);
    for (let n = 0; n < 6; n += 1) await objects.putBytes(Buffer.from('{}'));
    const later = collector(LATER_MS, { mostLookedAt: 3 });
    const all = (await Array.fromAsync(objects.keptBytes())).length;
    let removed = 0;
    for (let looked = 0; looked <= all; looked += 3) removed += (await later.round()).bytes;
    expect(removed).toBe(6);
  });
});

test('a stub that takes an object while it is being collected keeps it', async () => {
  const opened = await aDb('postgres');
  try {
    const { db } = opened;
    const workspaceId = (await aWorkspace(db)).id;
    const objects = createObjects({
      db,
      backend: await openFileObjects(join(opened.dataDir, 'objects')),
      installation: { deriveKeys: () => [new Uint8Array(32)] },
    });
    const { objectId } = await objects.create({ workspaceId }, { hash: 'h', size: 1, overwrite: true });
    const app = await getOrCreateApp(db, workspaceId, 'app', newId<AppId>());
    await db.query("update objects set touched_at = now() - interval '26 hours'");
    const one = new ObjectCollector({
      db,
      kept: () => objects.keptBytes(),
      remove: (key) => objects.removeBytes(key),
      takeUploads: () => Promise.resolve(0),
      isOthers: () => false,
      metrics: new ObjectMetrics(new Registry()),
      clock: { nowMs: () => Date.now() } as never,
      log: silent,
      graceMs: GRACE_MS,
    });
    await db.transaction(async (tx) => {
      const stub = { id: newId<StubId>(), workspaceId, appId: app.id, name: 's', type: 'endpoint', objectId };
      await insertStub(tx, { ...stub, config: {}, configHash: 'c', public: false });
      // The stub is not committed, so no other transaction can see it yet.
      expect((await one.round()).objects).toBe(0);
    });
    expect((await one.round()).objects).toBe(0);
    expect(await objects.find({ workspaceId }, objectId)).toBeDefined();
  } finally {
    await opened.stop();
  }
});
