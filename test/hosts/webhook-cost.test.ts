// A webhook on every kind of event costs a call nothing: the replica that takes the call sends Redis and Postgres the
// same commands and statements with it and without it. The replica does not lead; the leader's loops are not counted.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { jsonOf } from '../helpers/platform.ts';
import { aPostgres, aRedis, waitFor } from '../helpers/services.ts';
import { Receiver } from '../helpers/receiver.ts';
import { ReplicaSet } from '../helpers/replicas.ts';
import type { Replica, SimulatedDeployment } from '../helpers/replicas.ts';
import { echo } from '../helpers/simulated-agent.ts';
import { StatementCounter } from '../helpers/statement-counter.ts';

const CALLS = 15;
/** Milliseconds in which nothing is called: what is asked meanwhile belongs to no call. */
const IDLE_MS = 6_000;

type Json = Readonly<Record<string, unknown>>;
/** Number of each command and statement of one call. */
type Cost = Readonly<Record<string, number>>;

let postgres: Awaited<ReturnType<typeof aPostgres>>;
let redis: Awaited<ReturnType<typeof aRedis>>;
let receiver: Receiver;
let set: ReplicaSet;
let leader: Replica;
let replica: Replica;
const counter = new StatementCounter();

beforeAll(async () => {
  [postgres, redis, receiver] = [await aPostgres(), await aRedis(), await new Receiver().start()];
  set = new ReplicaSet(postgres, redis, postgres.url, { LONGSHORE_WEBHOOK_ALLOW: '127.0.0.1' });
  await set.add();
  leader = await waitFor(() => set.leader(), 'the first one leads', 30_000);
  replica = await set.add({
    DATABASE_URL: await counter.through(postgres.url),
    REDIS_URL: await counter.through(redis.url),
  });
  await set.agent({ handle: echo });
});
afterAll(async () => {
  await set.stop();
  counter.stop();
  await receiver.stop();
  await redis.stop();
  await postgres.stop();
});

const idle = async (): Promise<ReadonlySet<string>> => {
  counter.take();
  await new Promise((resolve) => setTimeout(resolve, IDLE_MS));
  return new Set(counter.take());
};

/** Calls once, and waits until all of it is recorded and told. */
async function call(app: SimulatedDeployment): Promise<readonly string[]> {
  counter.take();
  const answer = await set.call(replica, app.path, { body: { n: 1 } });
  expect(answer.status, answer.text).toBe(200);
  const taskId = answer.taskId || jsonOf<{ task_id: string }>(answer).task_id;
  await waitFor(
    async () => {
      const path = `/api/v1/events/${set.workspaceId}/history?task_id=${taskId}`;
      const history = await set.call(leader, path);
      if (history.status !== 200) return false;
      const { events } = jsonOf<{ readonly events: readonly { readonly data: Json }[] }>(history);
      return events.some(({ data }) => data['status'] === 'COMPLETE');
    },
    'its end is told',
    30_000,
  );
  return counter.take();
}

/** The usual cost of a call: the median of each command and statement, so that a timer between does not count. */
async function costOf(app: SimulatedDeployment): Promise<Cost> {
  const calls: (readonly string[])[] = [];
  for (let n = 0; n < CALLS; n += 1) calls.push(await call(app));
  const shapes = new Set(calls.flat());
  const cost: Record<string, number> = {};
  for (const shape of shapes) {
    const counts = calls.map((one) => one.filter((text) => text === shape).length).toSorted((a, b) => a - b);
    const median = counts[Math.floor(CALLS / 2)] ?? 0;
    if (median > 0) cost[shape] = median;
  }
  return cost;
}

const without = (cost: Cost, background: ReadonlySet<string>): Cost =>
  Object.fromEntries(Object.entries(cost).filter(([shape]) => !background.has(shape)));

test('a call costs the same commands and statements, whether a webhook hears of it or not', async () => {
  expect(await set.leader()).toBe(leader);
  const sync = await set.deploy(leader, 'called', { stubType: 'endpoint/deployment', keepWarmSeconds: 600 });
  const queued = await set.deploy(leader, 'queued', { stubType: 'taskqueue/deployment', keepWarmSeconds: 600 });
  for (const app of [sync, queued]) for (let n = 0; n < 3; n += 1) await call(app);

  const before = [await costOf(sync), await costOf(queued)];
  const background = new Set(await idle());
  const made = await set.call(leader, `/api/v1/webhook/${set.workspaceId}`, {
    method: 'POST',
    body: { url: receiver.url('/all'), event_types: ['*'] },
  });
  expect(made.status, made.text).toBe(201);
  for (const app of [sync, queued]) await call(app);
  for (const shape of await idle()) background.add(shape);

  const heard = receiver.at('/all').length;
  const after = [await costOf(sync), await costOf(queued)];
  await waitFor(() => receiver.at('/all').length >= heard + 6 * CALLS, 'each change was sent', 30_000);
  expect(await set.leader()).toBe(leader);
  const [own, other] = [before, after].map((costs) => costs.map((cost) => without(cost, background)));
  expect(other).toEqual(own);
  for (const cost of own ?? []) {
    const asked = Object.keys(cost);
    expect(
      asked.some((shape) => shape.startsWith('redis ')),
      asked.join('\n'),
    ).toBe(true);
  }
  // A queued call is committed before its id is told.
  expect(Object.keys(own?.[1] ?? {}).some((shape) => shape.startsWith('sql '))).toBe(true);
}, 240_000);
