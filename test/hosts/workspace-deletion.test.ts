// A workspace is deleted from a whole installation, with containers and files on a machine, and the scheduler is killed
// in the middle. Two schedulers on one database: a token is worthless at both from the answer on.
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test as plain } from 'vitest';
import { aPostgres } from '../helpers/postgres.ts';
import { aRedis } from '../helpers/redis.ts';
import { ReplicaSet } from '../helpers/replicas.ts';
import { jsonOf, test } from '../helpers/platform.ts';
import type { Answer, Platform } from '../helpers/platform.ts';
import { waitFor } from '../helpers/services.ts';

interface Person {
  readonly id: string;
  readonly token: string;
}
interface Deletion {
  readonly state: string;
  readonly hold: string;
  readonly deployments: number;
  readonly containers: number;
  readonly volumes: number;
}
type Call = (
  path: string,
  options?: { readonly method?: string; readonly token?: string; readonly body?: unknown },
) => Promise<Answer>;

const aTeam = async (call: Call, name: string): Promise<Person> =>
  jsonOf<Person>(await call('/api/v1/workspace', { body: { name } }));
const isGone = async (call: Call, { id }: Person): Promise<boolean> =>
  (await call(`/api/v1/workspace/${id}/deletion`)).status === 404;

/** Lets the platform's own makers act for a workspace. */
async function actingFor<T>(platform: Platform, { id, token }: Person, act: () => Promise<T>): Promise<T> {
  const { workspaceId, token: admin } = platform;
  Object.assign(platform, { workspaceId: id, token });
  try {
    return await act();
  } finally {
    Object.assign(platform, { workspaceId, token: admin });
  }
}

/** Number of files below a folder. */
const filesIn = (folder: string): number =>
  existsSync(folder)
    ? readdirSync(folder, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile()).length
    : 0;

describe('one machine', () => {
  test('containers stop, files of volumes and objects go, also when the scheduler is killed', async ({ platform }) => {
    const call: Call = (path, options) => platform.call(path, options);
    const [leaves, stays] = [await aTeam(call, 'leaves'), await aTeam(call, 'stays')];
    const made = new Map<Person, { readonly volume: string; readonly containers: () => Promise<number> }>();
    for (const team of [leaves, stays])
      await actingFor(platform, team, async () => {
        const { volume } = await platform.gateway<{ volume: { id: string } }>('/volumes', { name: 'data' });
        const volumes = [{ id: volume.id, mountPath: 'data' }];
        const app = { app: 'files.py', handler: 'handler', keepWarmSeconds: 600, volumes };
        const files = await platform.deploy({ ...app, name: 'files' });
        const written = await platform.invoke(files, { do: 'write', path: 'a/b.txt', text: team.id });
        expect(written.status).toBe(200);
        const containers = async () => (await platform.containers(files)).length;
        expect(await containers()).toBeGreaterThan(0);
        made.set(team, { volume: volume.id, containers });
      });
    const folderOf = (team: Person): string => join(platform.dataDir, 'volumes', team.id, made.get(team)?.volume ?? '');
    expect([filesIn(folderOf(leaves)), filesIn(folderOf(stays))]).toEqual([1, 1]);
    const objects = filesIn(join(platform.dataDir, 'objects'));

    const begun = jsonOf<Deletion>(await call(`/api/v1/workspace/${leaves.id}`, { method: 'DELETE' }));
    expect(begun).toMatchObject({ state: 'deleting', deployments: 1, containers: 1, volumes: 1 });
    await platform.scheduler.kill();
    await platform.startScheduler();
    expect((await call('/api/v1/workspace/current', { token: leaves.token })).status).toBe(401);
    await waitFor(() => isGone(call, leaves), 'the workspace is gone', 120_000);
    expect(await made.get(leaves)?.containers()).toBe(0);
    expect(filesIn(folderOf(leaves))).toBe(0);
    // The neighbour uploaded the same bytes, which are an object of its own.
    expect(filesIn(join(platform.dataDir, 'objects'))).toBe(objects - 1);

    expect(filesIn(folderOf(stays))).toBe(1);
    expect(await made.get(stays)?.containers()).toBeGreaterThan(0);
    await actingFor(platform, stays, async () => {
      const answer = await platform.call('/endpoint/files', { body: { do: 'list' } });
      expect([answer.status, answer.text]).toEqual([200, '["a/b.txt"]']);
    });
  });
});

describe('two schedulers', () => {
  plain('know at once that a token is worthless, and either carries the deletion on', async ({ onTestFinished }) => {
    const [postgres, redis] = await Promise.all([aPostgres(), aRedis()]);
    const set = new ReplicaSet(postgres, redis);
    onTestFinished(async () => {
      await set.stop();
      await Promise.all([postgres.stop(), redis.stop()]);
    });
    const [first, second] = [await set.add(), await set.add()];
    const team = await aTeam((path, options) => set.call(first, path, options), 'team');
    const current = async (): Promise<readonly number[]> =>
      await Promise.all(
        [first, second].map(
          async (replica) => (await set.call(replica, '/api/v1/workspace/current', { token: team.token })).status,
        ),
      );
    for (let at = 0; at < 100; at += 1) {
      const answer = await set.call(first, '/api/v1/gateway/objects', {
        token: team.token,
        body: { hash: `h${at}`, size: 1, overwrite: true },
      });
      expect(answer.status).toBe(200);
    }
    expect(await current()).toEqual([200, 200]);
    const begun = await set.call(second, `/api/v1/workspace/${team.id}`, { method: 'DELETE' });
    expect(begun.status).toBe(202);
    expect(await current()).toEqual([401, 401]);
    const leader = await waitFor(() => set.leader(), 'a scheduler leads', 60_000);
    await leader.daemon.kill();
    const left = leader === first ? second : first;
    await waitFor(() => isGone((path) => set.call(left, path), team), 'the other one ends the deletion', 120_000);
  });
});
