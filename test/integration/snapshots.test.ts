// Images of containers' files, and orders to change containers, on a real store and with played agents.
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { ContainerId, InstanceId, MachineId, WorkspaceId } from '#shared/domain/ids.ts';
import { ImageCollector } from '#scheduler/fleet/builds/collector.ts';
import { Snapshots } from '#scheduler/fleet/builds/snapshots.ts';
import { ContainerChanges } from '#scheduler/fleet/inside/changes.ts';
import type { Machine } from '#scheduler/fleet/machine.ts';
import { claimBuild } from '#scheduler/stores/store/queries/images.ts';
import { aDb, aWorkspace, silent } from './store-fixture.ts';
import type { OpenedDb } from './store-fixture.ts';

let opened: OpenedDb;
beforeAll(async () => {
  opened = await aDb('pglite');
});
afterAll(() => opened.stop());

const aContainer = (workspaceId: WorkspaceId, machineId = 'm-1') => ({
  containerId: `sandbox-${randomUUID()}` as ContainerId,
  workspaceId,
  machineId: machineId as MachineId,
});

test('a snapshot beyond those at once, and one that fails, leave no image', async () => {
  const { db } = opened;
  const { id: workspaceId } = await aWorkspace(db);
  const waiting: ((bytes: number) => void)[] = [];
  const fails = { next: false };
  const changes = {
    change: () =>
      fails.next ? Promise.reject(new Error('disk')) : new Promise<number>((resolve) => waiting.push(resolve)),
  };
  const snapshots = new Snapshots({ db, instance: 'i' as InstanceId, changes, log: silent });
  const taken = [1, 2, 3, 4].map(() => snapshots.take(aContainer(workspaceId)));
  await expect.poll(() => waiting.length).toBe(4);
  await expect(snapshots.take(aContainer(workspaceId))).rejects.toThrow('4 images at once');
  for (const done of waiting) done(10);
  const ids = await Promise.all(taken);
  fails.next = true;
  await expect(snapshots.take(aContainer(workspaceId))).rejects.toThrow('disk');
  const { rows } = await db.query<{ id: string; state: string }>('select id, state from images');
  expect(rows.toSorted((a, b) => a.id.localeCompare(b.id))).toEqual(
    ids.toSorted((a, b) => a.localeCompare(b)).map((id) => ({ id, state: 'READY' })),
  );
});

test('a snapshot whose scheduler died leaves no image, on its machine neither; a build is begun again', async () => {
  const { db } = opened;
  const { id: workspaceId } = await aWorkspace(db);
  const begun = Promise.withResolvers<void>();
  const late = Promise.withResolvers<number>();
  const changes = { change: () => (begun.resolve(), late.promise) };
  const snapshots = new Snapshots({ db, instance: 'i' as InstanceId, changes, log: silent });
  const taken = snapshots.take(aContainer(workspaceId));
  await begun.promise;
  const definition = { pythonVersion: 'python3', steps: [], contextObjectId: '', bases: [] };
  const build = { id: 'a-build', workspaceId, definition, owner: 'i' as InstanceId, most: 4, mostImages: 9 };
  expect(await claimBuild(db, { ...build, forced: false })).toBe('claimed');
  const ofWorkspace = async () =>
    (
      await db.query<{ id: string; state: string }>('select id, state from images where workspace_id = $1', [
        workspaceId,
      ])
    ).rows;
  const snapshot = (await ofWorkspace()).find(({ id }) => id !== 'a-build')?.id;
  const removed: (readonly string[])[] = [];
  const machines = { all: () => [{ row: { id: 'm-1' }, sessionId: 's' } as unknown as Machine] };
  const collector = new ImageCollector({ db, machines, days: 30, log: silent });
  collector.onRemove((_machineId, images) => removed.push(images) > 0);
  await collector.endLost();
  expect((await ofWorkspace()).map(({ state }) => state)).toEqual(['BUILDING', 'BUILDING']);
  // A dead process renews nothing. The one of this test lives: another owner has its snapshot.
  await db.query(`update images set owner = 'dead', renewed_at = now() - interval '1 minute' where workspace_id = $1`, [
    workspaceId,
  ]);
  await collector.endLost();
  expect(await ofWorkspace()).toEqual([{ id: 'a-build', state: 'PENDING' }]);
  expect(removed).toEqual([[snapshot]]);
  late.resolve(5);
  await expect(taken).rejects.toThrow('make another one');
});

test('a snapshot that was taken for lost is an error of its caller, and leaves no image', async () => {
  const { db } = opened;
  const { id: workspaceId } = await aWorkspace(db);
  const unwanted: unknown[] = [];
  const changes = {
    change: async () => {
      await db.query(`update images set state = 'PENDING', owner = null where workspace_id = $1`, [workspaceId]);
      return 5;
    },
  };
  const snapshots = new Snapshots({ db, instance: 'i' as InstanceId, changes, log: silent });
  snapshots.onUnwanted((...all) => void unwanted.push(all));
  await expect(snapshots.take(aContainer(workspaceId))).rejects.toThrow('make another one');
  const { rows } = await db.query('select id from images where workspace_id = $1', [workspaceId]);
  expect([rows, unwanted]).toEqual([[], [['m-1', [expect.any(String)]]]]);
});

test('a machine that answers nothing leaves room for changes at others', async () => {
  const bus = { on: () => undefined, publish: () => undefined };
  const changes = new ContainerChanges({ bus, channel: 'c' });
  changes.onOrder((machineId, { requestId = '' }) => {
    if (machineId === 'm-1') changes.changed(machineId, { requestId, error: '', bytes: 7 });
    return true;
  });
  const workspaceId = 'w' as WorkspaceId;
  const asked = Array.from({ length: 200 }, () =>
    changes.change(aContainer(workspaceId, 'silent'), {}, 1).catch((error: unknown) => (error as Error).message),
  );
  expect(await changes.change(aContainer(workspaceId), {}, 1000)).toBe(7);
  const texts = await Promise.all(asked);
  expect(texts.filter((text) => String(text).includes('try again'))).toHaveLength(72);
});
