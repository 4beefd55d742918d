// Callbacks of tasks through a whole scheduler: the message for every end, its receiver and its signature. Nothing is
// lost when the scheduler dies between the end and the message.
/* oxlint-disable no-empty-pattern */
import { createHmac } from 'node:crypto';
import { expect } from 'vitest';
import { jsonOf } from '../helpers/platform.ts';
import { Receiver } from '../helpers/receiver.ts';
import type { Received } from '../helpers/receiver.ts';
import type { Replica, SimulatedDeployment } from '../helpers/replicas.ts';
import { ReplicaSet } from '../helpers/replicas.ts';
import { test as base, waitFor } from '../helpers/services.ts';
import { echo } from '../helpers/simulated-agent.ts';

interface World {
  readonly set: ReplicaSet;
  readonly at: Replica;
  readonly receiver: Receiver;
  /** Key of the workspace. */
  readonly signingKey: string;
}

const test = base.extend('world', { scope: 'file' }, async ({ postgres, redis }, { onCleanup }): Promise<World> => {
  const receiver = await new Receiver().start();
  const set = new ReplicaSet(postgres, redis, postgres.url, { LONGSHORE_WEBHOOK_ALLOW: '127.0.0.1' });
  onCleanup(async () => {
    await set.stop();
    await receiver.stop();
  });
  const at = await set.add();
  await set.agent({
    handle: async (task) => {
      if (task.input.includes('"raise"')) throw new Error('handler raised');
      return await echo(task);
    },
  });
  const own = jsonOf<{ readonly signing_key: string }>(await set.call(at, '/api/v1/workspace/current'));
  return { set, at, receiver, signingKey: own.signing_key };
});

/** A task queue with one container, so that a task that runs keeps the others waiting. */
const aQueue = (
  { set, at, receiver }: World,
  name: string,
  fields: Readonly<Record<string, unknown>> = {},
): Promise<SimulatedDeployment> =>
  set.deploy(at, name, {
    stubType: 'taskqueue/deployment',
    callbackUrl: receiver.url(`/${name}`),
    autoscaler: { type: 'queue_depth', maxContainers: 1, tasksPerContainer: 1, minContainers: 0 },
    ...fields,
  });

async function put({ set, at }: World, app: SimulatedDeployment, body: object): Promise<string> {
  const answer = await set.call(at, app.path, { body });
  expect(answer.status, answer.text).toBe(200);
  return jsonOf<{ task_id: string }>(answer).task_id;
}

/** The one callback of that task, with a right signature over exactly its body. */
async function callbackOf({ receiver, signingKey }: World, path: string, taskId: string): Promise<Received> {
  const mine = (): readonly Received[] => receiver.at(path).filter(({ headers }) => headers['x-task-id'] === taskId);
  await waitFor(() => mine().length > 0, `the callback of ${taskId}`);
  const [callback] = mine();
  if (callback === undefined) throw new Error('there is none');
  const { headers, rawHeaders, body } = callback;
  const timestamp = String(headers['x-task-timestamp']);
  expect(Math.abs(Date.now() / 1000 - Number(timestamp))).toBeLessThan(60);
  const message = `${Buffer.from(body).toString('base64')}:${timestamp}`;
  expect(headers['x-task-signature']).toBe(createHmac('sha256', signingKey).update(message).digest('hex'));
  for (const name of ['X-Task-ID', 'X-Task-Status', 'X-Task-Signature', 'X-Task-Timestamp']) {
    expect(rawHeaders).toContain(name);
  }
  expect(headers['content-type']).toBe('application/json');
  return callback;
}

const startedOf = async ({ set, at }: World, taskId: string): Promise<void> => {
  await waitFor(async () => {
    const task = await set.call(at, `/api/v1/task/${set.workspaceId}/${taskId}`);
    return jsonOf(task)['status'] === 'RUNNING';
  }, 'the task runs');
};

test('a result and an error are told once, with the status and the bytes of the result', async ({ world }) => {
  const app = await aQueue(world, 'ends');
  const good = await put(world, app, { n: 1 });
  const bad = await put(world, app, { n: 'raise' });
  const told = await callbackOf(world, '/ends', good);
  expect(told.headers['x-task-status']).toBe('COMPLETE');
  expect(JSON.parse(told.body)).toMatchObject({ data: { n: 1, containerId: expect.any(String) } });
  const error = await callbackOf(world, '/ends', bad);
  expect(error.headers['x-task-status']).toBe('ERROR');
  expect(JSON.parse(error.body)).toMatchObject({ data: { error: expect.any(String) } });
  // A third callback comes after both, so neither was sent twice.
  await callbackOf(world, '/ends', await put(world, app, { n: 2 }));
  expect(world.receiver.at('/ends')).toHaveLength(3);
  const explained = jsonOf<{ readonly details: readonly string[] }>(
    await world.set.call(world.at, `/api/v1/explain/${world.set.workspaceId}/${good}`),
  );
  expect(explained.details.join('\n')).toContain('was delivered after 1 try, accepted with 200');
});

test('one that is stopped, and one that nobody takes in time, are told, too', async ({ world }) => {
  const { set, at } = world;
  const app = await aQueue(world, 'unserved', { taskPolicy: { ttl: 2 } });
  const running = await put(world, app, { sleepMs: 60_000 });
  await startedOf(world, running);
  const late = await put(world, app, { n: 1 });
  const expired = await callbackOf(world, '/unserved', late);
  expect(expired.headers['x-task-status']).toBe('EXPIRED');
  expect(JSON.parse(expired.body)).toEqual({ data: { error: expect.any(String) } });
  await set.gateway(at, '/tasks/stop', { taskIds: [running] });
  const cancelled = await callbackOf(world, '/unserved', running);
  expect(cancelled.headers['x-task-status']).toBe('CANCELLED');
  expect(JSON.parse(cancelled.body)).toEqual({ data: { error: expect.any(String) } });
});

test('a caller that waits names where the end is told; its own time running out is an end', async ({ world }) => {
  const { set, at, receiver } = world;
  const app = await aQueue(world, 'waiting', { stubType: 'endpoint/deployment', taskPolicy: { ttl: 2 } });
  const body = { n: 1, callback_url: receiver.url('/instead') };
  const answer = await set.call(at, app.path, { body });
  expect(answer.status, answer.text).toBe(200);
  const told = await callbackOf(world, '/instead', answer.taskId);
  // The callback has the bytes of the answer, and the input reached the handler unchanged.
  expect(told.body).toBe(`{"data":${answer.text}}`);
  expect(JSON.parse(told.body)).toMatchObject({ data: { callback_url: body.callback_url } });
  const before = set.agents[0]?.runs.length ?? 0;
  const busy = set.call(at, app.path, { body: { sleepMs: 4_000 } });
  await waitFor(() => (set.agents[0]?.runs.length ?? 0) > before, 'the container is busy');
  const late = await set.call(at, app.path, { body: { n: 2 } });
  expect(late.status).toBe(504);
  const timedOut = await callbackOf(world, '/waiting', late.taskId);
  expect(timedOut.headers['x-task-status']).toBe('TIMEOUT');
  expect((await busy).status).toBe(200);
});

test('an address that must not be reached is refused by the name of the field, and nothing is made', async ({
  world,
}) => {
  const { set, at } = world;
  const stub = {
    objectId: '',
    stubType: 'endpoint/deployment',
    name: 'no',
    handler: 'app:handler',
    cpu: 100,
    memory: 64,
  };
  for (const [callbackUrl, text] of [
    ['http://169.254.169.254/latest/meta-data', 'callbackUrl must not name the address 169.254.169.254'],
    ['http://[::1]:1994/', 'callbackUrl must not name the address ::1'],
    ['file:///etc/passwd', 'callbackUrl must be an http or https URL'],
    ['https://user:secret@example.com/', 'callbackUrl must not carry a user name or a password'],
    ['https://example.com/a\nb', 'callbackUrl must not hold spaces, control characters'],
  ] as const) {
    const refused = await set.call(at, '/api/v1/gateway/stubs', { body: { ...stub, callbackUrl } });
    expect(jsonOf(refused)).toMatchObject({ ok: false, stubId: '', errMsg: expect.stringContaining(text) });
  }
  const app = await set.deploy(at, 'without');
  const call = await set.call(at, app.path, { body: { callback_url: 'http://10.0.0.1/' } });
  expect([call.status, call.text]).toEqual([
    400,
    expect.stringContaining('callback_url must not name the address 10.0.0.1'),
  ]);
  for (const unheard of ['https://example.com/a\0b', 'https://example.com/\ud83d']) {
    const refused = await set.call(at, app.path, { body: { callback_url: unheard } });
    expect([refused.status, refused.text]).toEqual([400, expect.stringContaining('callback_url must not hold')]);
  }
  // A name of such an address is found out when it is dialled.
  const named = await put(world, await aQueue(world, 'named', { callbackUrl: 'http://[::ffff:127.0.0.1]:1/' }), {});
  await waitFor(async () => {
    const explained = await set.call(at, `/api/v1/explain/${set.workspaceId}/${named}`);
    return explained.text.includes('was not delivered');
  }, 'it is given up');
});

test('a scheduler that goes between the end and the telling has lost nothing', async ({ world }) => {
  const { set, at, receiver } = world;
  const app = await aQueue(world, 'restart');
  receiver.replies.set('/restart', ['never', 200]);
  const taskId = await put(world, app, { n: 7 });
  await receiver.until('/restart');
  await at.daemon.stop();
  // Everything that only Redis held is lost.
  await set.redis.flushall();
  await set.start(at);
  const [, again] = await receiver.until('/restart', 2);
  expect(again?.headers['x-task-id']).toBe(taskId);
  expect(JSON.parse(again?.body ?? '')).toMatchObject({ data: { n: 7 } });
});

test('a workspace sees and signs its own alone', async ({ world }) => {
  const { set, at, receiver } = world;
  const made = await set.call(at, '/api/v1/workspace', { body: { name: 'other' } });
  const other = jsonOf<{ readonly token: string; readonly external_id: string }>(made);
  expect(made.status, made.text).toBeLessThan(300);
  const taskId = await put(world, await aQueue(world, 'mine'), { n: 1 });
  const callback = await callbackOf(world, '/mine', taskId);
  const own = { token: other.token };
  for (const path of [
    `/api/v1/explain/${other.external_id}/${taskId}`,
    `/api/v1/task/${other.external_id}/${taskId}`,
  ]) {
    expect((await set.call(at, path, own)).status, path).toBe(404);
  }
  const key = jsonOf<{ readonly signing_key: string }>(
    await set.call(at, '/api/v1/workspace/current', own),
  ).signing_key;
  const message = `${Buffer.from(callback.body).toString('base64')}:${String(callback.headers['x-task-timestamp'])}`;
  expect(createHmac('sha256', key).update(message).digest('hex')).not.toBe(callback.headers['x-task-signature']);
  expect(receiver.at('/mine')).toHaveLength(1);
});
