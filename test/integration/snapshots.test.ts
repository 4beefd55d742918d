// Images of containers' files, and orders to change containers, on a real store and with played agents.
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { ContainerId, InstanceId, MachineId, WorkspaceId } from '#shared/domain/ids.ts';
import { Snapshots } from '#scheduler/fleet/builds/snapshots.ts';
import { ContainerChanges } from '#scheduler/fleet/inside/changes.ts';
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
