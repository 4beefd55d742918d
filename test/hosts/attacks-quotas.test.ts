// A tenant floods everything that it can make, all at once. Meanwhile
// the calls of its neighbour are answered, and old rows are deleted.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Registry } from '#shared/metrics.ts';
import { systemClock } from '#shared/clock.ts';
import { prunedKinds } from '#scheduler/compose/retention.ts';
import { RetentionMetrics } from '#scheduler/tasks/retention/metrics.ts';
import { Retention } from '#scheduler/tasks/retention/retention.ts';
import { oldestOf } from '#scheduler/stores/store/queries/retention.ts';
import { upsertTaskRecords, taskById } from '#scheduler/stores/store/queries/tasks.ts';
import { aDb, aRecord, silent } from '../integration/store-fixture.ts';
import { aPlatform } from '../integration/verbs-fixture.ts';
import type { Answer, Json, Platform } from '../integration/verbs-fixture.ts';

let platform: Platform;
beforeAll(async () => {
  platform = await aPlatform();
});
afterAll(() => platform.stop());

async function flood(count: number, atOnce: number, send: (at: number) => Promise<Answer>): Promise<readonly Answer[]> {
  const answers: Answer[] = [];
  for (let at = 0; at < count; at += atOnce) {
    const some = Array.from({ length: Math.min(atOnce, count - at) }, (_, index) => send(at + index));
    answers.push(...(await Promise.all(some)));
  }
  return answers;
}

test('a tenant that floods machines, stubs, objects and tasks meets each bound by its name, and every call of its neighbour is answered', async () => {
  const path = `/api/v1/workspace/${platform.own.workspaceId}/limits`;
  const change = { counts: { stubs: 300, objects: 300 }, bytes: { queue: 16 * 1024 ** 2 } };
  expect((await platform.call(`PUT ${path}`, change, { token: platform.admin.token })).status).toBe(200);
  const stub = { stubType: 'endpoint/deployment', handler: 'app:handler', cpu: 100, memory: 64 };
  await platform.deploy('flood', { stubType: 'taskqueue/deployment', maxPendingTasks: 100_000 });
  await platform.deploy('calm', { stubType: 'taskqueue/deployment', maxPendingTasks: 100_000 }, platform.other.token);
  const input = { text: 'x'.repeat(60_000) };
  let isOver = false;
  const floods = Promise.all([
    flood(1_500, 20, () => platform.gateway('POST /machines', { poolName: 'gpu' })),
    flood(600, 5, (at) => platform.gateway('POST /stubs', { ...stub, name: `s-${at}` })),
    flood(600, 5, (at) => platform.gateway('POST /objects', { hash: `h-${at}`, size: 1_000, overwrite: true })),
    flood(600, 5, () => platform.call('POST /taskqueue/flood', input)),
  ]).finally(() => (isOver = true));
  const calm: number[] = [];
  while (!isOver)
    calm.push((await platform.call('POST /taskqueue/calm', input, { token: platform.other.token })).status);
  const [machines, stubs, objects, tasks] = await floods;
  const ok = (answers: readonly Answer[]): number => answers.filter(({ json }) => json['ok'] === true).length;
  expect(ok(machines)).toBe(50);
  // The deployment has a stub, too.
  expect(ok(stubs)).toBeLessThanOrEqual(300);
  expect(ok(stubs)).toBeGreaterThan(290);
  expect(ok(objects)).toBeGreaterThan(290);
  expect(ok(objects)).toBeLessThanOrEqual(310);
  const taken = tasks.filter(({ status }) => status === 200).length;
  expect(taken).toBeLessThanOrEqual((16 * 1024 ** 2) / 60_000);
  expect(taken).toBeGreaterThan(200);
  expect(tasks.at(-1)?.json).toMatchObject({ code: 'queue_bytes_reached' });
  expect(calm.length).toBeGreaterThan(50);
  // The neighbour's queue has a bound of its own, below which no call is refused.
  expect(new Set(calm.slice(0, 4_000))).toEqual(new Set([200]));
  const shown = (await platform.call(`GET ${path}`)).json;
  expect((shown['counts'] as Record<string, Json>)['unjoined_machines']).toEqual({ used: 50, limit: 50 });
}, 300_000);

test('100,000 rows go while the queries of others are answered', async () => {
  const opened = await aDb('postgres');
  try {
    await opened.db.query(`
      insert into tasks (id, workspace_id, stub_id, queue, kind, sync, status, attempt, rank, result, created_at, ended_at)
      select gen_random_uuid()::text, 'w', 's', 'q', 'endpoint', true, 'COMPLETE', 1, 3, '{}', now() - interval '40 days', now() - interval '40 days'
      from generate_series(1, 100000)`);
    const kept = aRecord({ status: 'COMPLETE', rank: 3, endedAtMs: Date.now() });
    await upsertTaskRecords(opened.db, [kept]);
    const { db } = opened;
    const retention = new Retention({
      kinds: prunedKinds({
        db,
        clock: systemClock,
        removeBytes: () => Promise.resolve(),
        machineGone: () => undefined,
        forgetQueue: async () => undefined,
        days: { tasks: 30, inputs: 7, containers: 30, logs: 30, deliveries: 7, metrics: 8, samples: 0.25, events: 30 },
      }),
      oldest: (table) => oldestOf(db, table),
      metrics: new RetentionMetrics(new Registry()),
      clock: systemClock,
      log: silent,
      isLeader: () => true,
      turnMs: 300_000,
    });
    let isOver = false;
    const turn = retention.turn().finally(() => (isOver = true));
    let answered = 0;
    while (!isOver) {
      expect((await taskById(db, kept.taskId))?.taskId).toBe(kept.taskId);
      answered += 1;
    }
    expect(await turn).toEqual({ tasks: 100_000 });
    expect(answered).toBeGreaterThan(100);
  } finally {
    await opened.stop();
  }
}, 300_000);
