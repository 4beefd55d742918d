/**
 * A missing database or Redis is a passing state of ours, and each surface says so in its own shape. The answer is 503
 * on REST and invoke, and RPC code 14 on the gateway, never a refusal, and never a 500.
 */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { waitFor } from '../helpers/programs.ts';
import { NOBODY, aPlatform } from '../integration/verbs-fixture.ts';
import type { Answer, Platform } from '../integration/verbs-fixture.ts';

let platform: Platform;
let deployment: string;
beforeAll(async () => {
  platform = await aPlatform();
  deployment = (await platform.deploy('known', { stubType: 'taskqueue/deployment' })).id;
  await platform.call('POST /taskqueue/known', {});
});
afterAll(() => platform.stop());

const stub = { stubType: 'endpoint', name: 'n', handler: 'a:b', cpu: 100, memory: 64 };
const GATEWAY: readonly (readonly [string, unknown?])[] = [
  ['GET /deployments'],
  ['GET /tasks'],
  ['GET /tokens'],
  ['POST /tokens'],
  ['POST /stubs', stub],
  ['POST /stubs/deploy', { stubId: NOBODY, name: 'x' }],
  [`POST /deployments/${NOBODY}/stop`],
  [`DELETE /deployments/${NOBODY}`],
  [`GET /stubs/${NOBODY}/url`],
  ['POST /volumes', { name: 'v' }],
  ['POST /objects', { hash: 'h', size: 1 }],
  ['GET /objects/h'],
  ['POST /machines', { poolName: 'p' }],
  ['POST /tasks/stop', { taskIds: [NOBODY] }],
];
const rest = (): readonly (readonly [string, unknown?])[] => {
  const ws = platform.own.workspaceId;
  return [
    ...['deployment', 'task', 'app', 'secret'].map((thing) => [`GET /api/v1/${thing}/${ws}`] as const),
    ['GET /api/v1/workspace/current'],
    [`GET /api/v1/workspace/${ws}/limits`],
    [`GET /api/v1/task/${ws}/${NOBODY}`],
    [`POST /api/v1/deployment/${ws}/stop/${NOBODY}`],
    [`POST /api/v1/secret/${ws}`, { name: 'A', value: 'b' }],
  ];
};
const shortOf = (line: string, { status, json }: Answer): string =>
  `${line}: ${status} ${String(json['code'] ?? json['error'] ?? json['ok'])}`;

test('without its database', async () => {
  const { postgres } = platform.servers ?? {};
  await postgres?.crash();
  const said: string[] = [];
  for (const [line, body] of GATEWAY) said.push(shortOf(line, await platform.gateway(line, body)));
  expect(said).toEqual(GATEWAY.map(([line]) => `${line}: 503 14`));
  const restSaid: string[] = [];
  for (const [line, body] of rest()) restSaid.push(shortOf(line, await platform.call(line, body)));
  expect(restSaid).toEqual(rest().map(([line]) => `${line}: 503 database_unavailable`));
  // The task of a known deployment cannot be committed, and an unknown one cannot be looked up.
  for (const line of ['POST /taskqueue/known', 'POST /endpoint/nobody-knows', `POST /endpoint/id/${NOBODY}`]) {
    expect((await platform.call(line, {})).status).toBe(503);
  }
  await postgres?.restart();
  await waitFor(
    async () => (await platform.gateway('GET /deployments')).json['ok'] === true,
    'the database is back',
    20_000,
  );
  await waitFor(
    async () => (await platform.call('POST /taskqueue/known', {})).status === 200,
    'tasks are committed again',
    20_000,
  );
});

test('without its Redis', async () => {
  const { redis } = platform.servers ?? {};
  await redis?.crash();
  await waitFor(async () => (await platform.call('GET /api/v1/health')).status === 503, 'it notices');
  // A task is accepted, and queued later. Calls whose callers wait are in test/integration/redis-away.test.ts.
  const { status, json } = await platform.call('POST /taskqueue/known', {});
  expect({ status, json }).toMatchObject({ status: 200 });
  // Calls that need the database alone go on.
  expect((await platform.gateway('GET /deployments')).json['ok']).toBe(true);
  expect((await platform.call(`GET /api/v1/deployment/${platform.own.workspaceId}/${deployment}`)).status).toBe(200);
  await redis?.restart();
  await waitFor(async () => (await platform.call('GET /api/v1/health')).status === 200, 'Redis is back', 20_000);
  const task = `GET /api/v1/task/${platform.own.workspaceId}/${String(json['task_id'])}`;
  await waitFor(async () => (await platform.call(task)).json['status'] === 'PENDING', 'the task waits', 20_000);
});
