// A workspace is deleted over HTTP on a real scheduler with real stores: nobody comes in from the answer on, its tasks
// end as cancelled, its data goes, and another workspace notices nothing.
import { Client } from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { waitFor } from '../helpers/programs.ts';
import { aPlatform } from './verbs-fixture.ts';
import type { Answer, Json, Platform } from './verbs-fixture.ts';

let platform: Platform;
let sql: Client;
beforeAll(async () => {
  platform = await aPlatform();
  sql = new Client({ connectionString: platform.servers?.postgres.url });
  await sql.connect();
  // Every end of a task as the database saw it, which outlives the task's row.
  await sql.query(`create table ends (task text, status text);
    create function note_end() returns trigger language plpgsql as $$ begin
      if new.rank >= 3 and old.rank < 3 then insert into ends values (new.id, new.status); end if; return new; end $$;
    create trigger note_end after update on tasks for each row execute function note_end();`);
});
afterAll(async () => {
  await sql.end();
  await platform.stop();
});

const asAdmin = () => ({ token: platform.admin.token });
const deletion = (method: 'GET' | 'DELETE', id = platform.own.workspaceId): Promise<Answer> =>
  platform.call(
    method === 'GET' ? `GET /api/v1/workspace/${id}/deletion` : `DELETE /api/v1/workspace/${id}`,
    undefined,
    asAdmin(),
  );
const listed = async (id: string): Promise<Json | undefined> =>
  ((await platform.call('GET /api/v1/workspace', undefined, asAdmin())).json['data'] as Json[]).find(
    (one) => one['id'] === id,
  );

test('a workspace is deleted, and its neighbour stays whole', async () => {
  const { own, other } = platform;
  const byOther = { token: other.token };
  const theirs = await platform.deploy('theirs', { stubType: 'taskqueue/deployment' }, other.token);
  const kept = await platform.call('POST /taskqueue/theirs', {}, byOther);
  await platform.deploy('queue', { stubType: 'taskqueue/deployment' });
  const open = await platform.deploy('open', { authorized: false });
  const tasks = await Promise.all(
    Array.from({ length: 5 }, async () => String((await platform.call('POST /taskqueue/queue', {})).json['task_id'])),
  );
  expect((await platform.call(`POST /api/v1/secret/${own.workspaceId}`, { name: 'KEY', value: 'v' })).status).toBe(201);
  await platform.gateway('POST /volumes', { name: 'data' });
  const { json: object } = await platform.gateway('POST /objects', { hash: 'h', size: 3, overwrite: true });
  const upload = new URL(String(object['presignedUrl']));
  const put = () => platform.call(`PUT ${upload.pathname}${upload.search}`, 'abc', { token: '' });
  expect((await put()).status).toBe(200);

  const machine = await platform.gateway('POST /machines', { poolName: 'mine' });
  const machineId = String((machine.json['machine'] as Json)['id']);
  const kept409 = await deletion('DELETE');
  expect([kept409.status, kept409.json]).toEqual([
    409,
    expect.objectContaining({ code: 'workspace_has_machines', message: expect.stringContaining('mine (1)') }),
  ]);
  expect((await platform.gateway(`DELETE /machines/${machineId}`)).json['ok']).toBe(true);
  for (const token of ['', own.token, other.token, platform.restricted])
    expect((await platform.call(`DELETE /api/v1/workspace/${own.workspaceId}`, undefined, { token })).status).toBe(401);
  const there = await deletion('GET');
  expect([there.status, there.json]).toEqual([
    200,
    expect.objectContaining({
      name: 'own',
      state: 'present',
      refusal: '',
      deployments: 2,
      volumes: 1,
      objects: 1,
      object_bytes: 3,
      secrets: 1,
      machines: 0,
    }),
  ]);

  // A machine comes in with the begin, past everything that keeps it out.
  const stray = await platform.gateway('POST /machines', { poolName: 'mine' });
  const strayId = String((stray.json['machine'] as Json)['id']);
  await sql.query(`update machines set deleted_at = now() where id = '${strayId}';
    create function come_in() returns trigger language plpgsql as $$ begin
      update machines set deleted_at = null where id = '${strayId}'; return new; end $$;
    create trigger come_in after update of deleting_at on workspaces for each row execute function come_in();`);

  // A caller of another workspace waits for the public deployment.
  const openPath = `/endpoint/public/${open.stubId}`;
  const waiting = platform.call(`POST ${openPath}`, {}, byOther);
  await waitFor(async () => {
    const { rows } = await sql.query('select 1 from tasks where stub_id = $1', [open.stubId]);
    return rows.length > 0;
  }, 'the call is recorded');

  const begun = await deletion('DELETE');
  expect([begun.status, begun.json['state']]).toEqual([202, 'deleting']);
  for (const token of [own.token, platform.restricted])
    expect((await platform.call('GET /api/v1/workspace/current', undefined, { token })).status).toBe(401);
  expect((await platform.call('POST /taskqueue/queue', {})).status).toBe(401);
  // As for a stub that never was.
  expect((await platform.call(`POST ${openPath}`, {}, byOther)).status).toBe(400);
  expect((await platform.call(`POST ${openPath}`, {}, { token: '' })).status).toBe(401);
  expect((await put()).status).toBe(404);
  const limits = await platform.call(`GET /api/v1/workspace/${own.workspaceId}/limits`, undefined, asAdmin());
  expect(limits.status).toBe(400);
  // A second deletion answers the same, also while the first one ends.
  const again = await deletion('DELETE');
  if (again.status !== 404) expect(again.json['deleting_at']).toBe(begun.json['deleting_at']);
  expect((await waiting).status).toBeGreaterThanOrEqual(500);

  await waitFor(async () => (await listed(own.workspaceId)) === undefined, 'the workspace is gone', 30_000);
  expect((await deletion('GET')).status).toBe(404);
  expect((await deletion('DELETE')).status).toBe(404);
  const ends = await sql.query<{ task: string; status: string }>('select task, status from ends order by task');
  expect(ends.rows.filter(({ task }) => tasks.includes(task))).toEqual(
    tasks.toSorted().map((task) => ({ task, status: 'CANCELLED' })),
  );

  // An operator keeps the audit trail and the ledger, by the workspace's id.
  const trailOf = async (id: string, type: string): Promise<readonly Json[]> => {
    const path = `/api/v1/events/${id}/history?event_types=${type}`;
    return (await platform.call(`GET ${path}`, undefined, asAdmin())).json['events'] as Json[];
  };
  expect(await trailOf(platform.admin.workspaceId, 'audit.workspace.deleted')).toHaveLength(1);
  expect((await trailOf(own.workspaceId, 'audit.secret.created')).length).toBe(1);
  expect((await trailOf(own.workspaceId, 'audit.machine.deleted')).length).toBe(2);
  const ledger = await platform.call(`GET /api/v1/credit/${own.workspaceId}/ledger`, undefined, asAdmin());
  expect(ledger.status).toBe(200);

  // The neighbour.
  const stays = await platform.gateway('GET /deployments', undefined, byOther);
  expect((stays.json['deployments'] as Json[]).map(({ id }) => id)).toEqual([theirs.id]);
  const task = await platform.call(
    `GET /api/v1/task/${other.workspaceId}/${String(kept.json['task_id'])}`,
    undefined,
    byOther,
  );
  expect(task.json['status']).toBe('PENDING');
  // The name is free.
  const anew = await platform.call('POST /api/v1/workspace', { name: 'own' }, asAdmin());
  expect(anew.status).toBe(201);
  expect((await deletion('DELETE', platform.admin.workspaceId)).json['code']).toBe('workspace_is_administrators');
});
