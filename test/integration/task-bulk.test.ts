// Many tasks at once, by the filter of the list: counted, run again, cancelled.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { MOST_CHANGED } from '#shared/api/rest/tasks.ts';
import { withSql } from './contract-lists.ts';
import { NOBODY, aPlatform } from './verbs-fixture.ts';
import type { Answer, Json, Platform } from './verbs-fixture.ts';

const QUEUE = { stubType: 'taskqueue/deployment', maxPendingTasks: 10_000 };

let platform: Platform;
beforeAll(async () => {
  platform = await aPlatform();
});
afterAll(() => platform.stop());

const ask = (verb: string, query: Readonly<Record<string, string>>, token = platform.own.token): Promise<Answer> =>
  platform.call(
    `POST /api/v1/task/${platform.own.workspaceId}/${verb}?${new URLSearchParams(query).toString()}`,
    {},
    { token },
  );

async function queued(name: string, count: number): Promise<{ readonly deploymentId: string; readonly ids: string[] }> {
  const { id } = await platform.deploy(name, QUEUE);
  const calls = await Promise.all(
    Array.from({ length: count }, (_, n) => platform.call(`POST /taskqueue/${name}`, { n })),
  );
  return { deploymentId: id, ids: calls.map(({ json }) => String(json['task_id'])) };
}

const statusOf = async (id: string): Promise<unknown> =>
  (await platform.call(`GET /api/v1/task/${platform.own.workspaceId}/${id}`)).json['status'];

test('open tasks are counted, then cancelled, a bounded number at a time', async () => {
  const { deploymentId, ids } = await queued('many', MOST_CHANGED + 5);
  const others = await queued('others', 1);
  const filter = { deployment_ids: deploymentId };
  const counted = await ask('cancel', { ...filter, dry_run: 'true' });
  expect(counted.json).toEqual({ matched: ids.length, more: false, cancelled: [], refused: [] });
  expect(await statusOf(ids[0] ?? '')).toBe('PENDING');
  const first = await ask('cancel', filter);
  expect([first.json['matched'], first.json['more'], (first.json['cancelled'] as string[]).length]).toEqual([
    MOST_CHANGED,
    true,
    MOST_CHANGED,
  ]);
  const rest = await ask('cancel', filter);
  expect([rest.json['matched'], rest.json['more']]).toEqual([5, false]);
  expect(await Promise.all(ids.slice(0, 3).map(statusOf))).toEqual(['CANCELLED', 'CANCELLED', 'CANCELLED']);
  expect(await statusOf(others.ids[0] ?? '')).toBe('PENDING');
});

test('tasks run again once: those that were run again are left out, and their reruns count', async () => {
  const { deploymentId, ids } = await queued('again', 3);
  const filter = { deployment_ids: deploymentId, status: 'CANCELLED' };
  await ask('cancel', { deployment_ids: deploymentId });
  const counted = await ask('rerun', { ...filter, dry_run: 'true' });
  expect(counted.json).toEqual({ matched: 3, left_out: 0, rerun: [], refused: [], next: '' });
  const page = await ask('rerun', { ...filter, limit: '2' });
  const next = String(page.json['next']);
  expect([(page.json['rerun'] as Json[]).length, next]).toEqual([2, expect.stringMatching(/./)]);
  const last = await ask('rerun', { ...filter, cursor: next });
  expect([(last.json['rerun'] as Json[]).length, last.json['next']]).toEqual([1, '']);
  const made = [...(page.json['rerun'] as Json[]), ...(last.json['rerun'] as Json[])];
  expect(made.map((one) => String(one['rerun_of'])).toSorted()).toEqual(ids.toSorted());
  expect((await ask('rerun', filter)).json).toMatchObject({ matched: 0, left_out: 3, rerun: [] });
  // A rerun that ended badly itself runs again in its turn.
  await ask('cancel', { deployment_ids: deploymentId });
  expect((await ask('rerun', { ...filter, dry_run: 'true' })).json).toMatchObject({ matched: 3, left_out: 3 });
});

test('a task that cannot run again is named, and keeps no other from running', async () => {
  const { deploymentId, ids } = await queued('lossy', 2);
  await ask('cancel', { deployment_ids: deploymentId });
  await withSql(platform, async (sql) => {
    await sql.query(`update tasks set input_state = 'dropped', job = '' where id = $1`, [ids[0]]);
  });
  const { json } = await ask('rerun', { deployment_ids: deploymentId, status: 'CANCELLED' });
  expect((json['rerun'] as Json[]).map((one) => one['rerun_of'])).toEqual([ids[1]]);
  expect(json['refused']).toEqual([{ id: ids[0], error: expect.stringContaining('its input is not there') }]);
});

test('each filter of the list keeps what it keeps there', async () => {
  const { deploymentId, ids } = await queued('filters', 2);
  const { json: task } = await platform.call(`GET /api/v1/task/${platform.own.workspaceId}/${ids[0] ?? ''}`);
  const app = (task['app'] as Json)['id'];
  const future = new Date(Date.now() + 3_600_000).toISOString();
  const past = new Date(Date.now() - 3_600_000).toISOString();
  const cases: readonly (readonly [string, unknown, number])[] = [
    ['status', 'PENDING', 2],
    ['status', 'RUNNING', 0],
    ['failure_reasons', 'process_exited', 0],
    ['task_ids', ids[1], 1],
    ['task_ids', 'nothing', 0],
    ['stub_ids', task['stub_id'], 2],
    ['stub_ids', NOBODY, 0],
    ['stub_names', task['stub_name'], 2],
    ['stub_names', 'another', 0],
    ['stub_types', 'taskqueue/deployment', 2],
    ['stub_types', 'endpoint/deployment', 0],
    ['deployment_ids', deploymentId, 2],
    ['deployment_name', 'filters', 2],
    ['deployment_name', 'others', 0],
    ['container_ids', 'pod-none', 0],
    ['app_id', app, 2],
    ['app_id', NOBODY, 0],
    ['created_at_start', past, 2],
    ['created_at_start', future, 0],
    ['created_at_end', future, 2],
    ['created_at_end', past, 0],
    ['min_duration', 1, 0],
    ['max_duration', 1, 0],
  ];
  for (const [name, value, matched] of cases) {
    const { json } = await ask('cancel', { deployment_ids: deploymentId, dry_run: 'true', [name]: String(value) });
    expect([name, value, json['matched']]).toEqual([name, value, matched]);
  }
  await ask('cancel', { deployment_ids: deploymentId });
});

test('a name that no deployment has, in whole, changes nothing and is told so', async () => {
  const { ids } = await queued('embed', 2);
  const one = await platform.call(`GET /api/v1/task/${platform.own.workspaceId}/${ids[0] ?? ''}`);
  const { json: made } = await platform.call(`POST /api/v1/token/${platform.own.workspaceId}`, {
    app_id: (one.json['app'] as Json)['id'],
  });
  await platform.deploy('elsewhere', { ...QUEUE, appName: 'elsewhere' });
  const [bulk, summary] = ['POST /api/v1/task', 'GET /api/v1/task-summary'];
  const told = async (line: string, ws: string, name: string, token: string): Promise<unknown[]> => {
    const { status, json } = await platform.call(`${line}/${ws}?deployment_name=${name}`, undefined, { token });
    return [status, json['message']];
  };
  const { own, other } = platform;
  const confined = String(made['key']);
  const none = (name: string) => [404, `deployment_name: no deployment is called ${name}`];
  for (const name of ['embe', 'embeds', 'EMBED', 'e%25']) {
    const said = none(decodeURIComponent(name));
    for (const verb of ['rerun', 'cancel'] as const) {
      const answer = await ask(verb, { deployment_name: decodeURIComponent(name) });
      expect([verb, name, answer.status, answer.json['message']]).toEqual([verb, name, ...said]);
    }
    expect(await told(summary, own.workspaceId, name, own.token)).toEqual(said);
    expect(await told(bulk.replace('POST', 'GET'), own.workspaceId, name, own.token)).toEqual(said);
  }
  // Names of another workspace, or of another app than the token's, are told as those of nobody.
  expect(await told(summary, other.workspaceId, 'embed', other.token)).toEqual(none('embed'));
  expect(await told(summary, own.workspaceId, 'elsewhere', confined)).toEqual(none('elsewhere'));
  expect((await told(summary, own.workspaceId, 'elsewhere', own.token))[0]).toBe(200);
  expect((await told(summary, own.workspaceId, 'embed', confined))[0]).toBe(200);
  expect(await Promise.all(ids.map(statusOf))).toEqual(['PENDING', 'PENDING']);
  const both = { deployment_name: 'embed', task_ids: ids.join(',') };
  expect((await ask('cancel', { ...both, dry_run: 'true' })).json['matched']).toBe(2);
  expect((await ask('cancel', { ...both, deployment_name: 'elsewhere' })).json['matched']).toBe(0);
  expect((await ask('cancel', { deployment_name: 'embed' })).json['matched']).toBe(2);
});

test('an empty filter, other statuses, and tokens that may not are refused', async () => {
  for (const [verb, query, text] of [
    ['rerun', { dry_run: 'true' }, 'name tasks'],
    ['cancel', { limit: '5' }, 'name tasks'],
    ['rerun', { status: 'PENDING' }, 'status: tasks that are PENDING'],
    ['cancel', { status: 'COMPLETE' }, 'status: tasks that are COMPLETE'],
    ['rerun', { created_at_start: 'soon' }, 'created_at_start'],
    ['cancel', { status: 'PENDING', limit: '-1' }, 'limit'],
    ['cancel', { status: 'PENDING', deployment_name: '' }, 'deployment_name: is empty'],
    ['rerun', { status: 'ERROR', task_ids: '' }, 'task_ids: is empty'],
  ] as const) {
    const answer = await ask(verb, query);
    expect([verb, query, answer.status, answer.json['message']]).toEqual([
      verb,
      query,
      400,
      expect.stringContaining(text),
    ]);
  }
  for (const verb of ['rerun', 'cancel'])
    for (const token of [platform.revoked, platform.other.token])
      expect((await ask(verb, { status: 'ERROR' }, token)).status).toBe(401);
});
