// Counted things of a workspace: calls at once make no more of them than the bound, whichever replicas take the calls.
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { InstanceId, WorkspaceId } from '#shared/domain/ids.ts';
import { claimBuild } from '#scheduler/stores/store/queries/images.ts';
import { Secrets } from '#scheduler/workspaces/secrets/service.ts';
import { Volumes } from '#scheduler/workspaces/deployments/volumes.ts';
import { aDb, aWorkspace } from './store-fixture.ts';
import type { OpenedDb } from './store-fixture.ts';

const MOST = 3;
const CALLS = 12;
let opened: OpenedDb;
beforeAll(async () => {
  opened = await aDb('postgres');
});
afterAll(() => opened.stop());

const atOnce = (make: (at: number) => Promise<unknown>) =>
  Promise.allSettled(Array.from({ length: CALLS }, (_, at) => make(at)));
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
