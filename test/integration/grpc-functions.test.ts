// Calls of published clients that make tasks, on a real scheduler: their streams, how callers leave and come back, and
// schedules whose time is told later. Tasks are ended as a runner of others ends them; containers are for hosts tests.
import { execa } from 'execa';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { GrpcClient, aCuttableWay } from '../helpers/grpc-client.ts';
import type { CallHow, OpenStream } from '../helpers/grpc-client.ts';
import { waitFor } from '../helpers/programs.ts';
import { NOBODY, aPlatform } from './verbs-fixture.ts';
import type { Json, Platform } from './verbs-fixture.ts';

const INVOKE = 'function.FunctionService/FunctionInvoke';
const SCHEDULE = 'function.FunctionService/FunctionSchedule';
const WAIT_MS = 50_000;
const NOT_FOUND = 5;
const INVALID_ARGUMENT = 3;
const RESOURCE_EXHAUSTED = 8;
const UNAVAILABLE = 14;
const UNAUTHENTICATED = 16;
/** `{"args": (), "kwargs": {}}` */
const ARGS = 'gASVFgAAAAAAAAB9lCiMBGFyZ3OUKYwGa3dhcmdzlH2UdS4=';

let platform: Platform;
let client: GrpcClient;

beforeAll(async () => {
  platform = await aPlatform({}, 'embedded');
  client = new GrpcClient(platform.grpcAddress);
}, 120_000);
afterAll(async () => {
  client.close();
  await platform.stop();
});

const call = async (path: string, message: Json, token = platform.own.token): Promise<Json> =>
  (await client.call(path, message, { token })).answer ?? {};
const invoke = (message: Json, how: Partial<CallHow> = {}, by = client): OpenStream =>
  by.open(INVOKE, { args: ARGS, ...message }, { token: platform.own.token, ...how });

/** A call whose task is accepted. */
async function begun(message: Json, by = client): Promise<{ readonly stream: OpenStream; readonly taskId: string }> {
  const stream = invoke(message, {}, by);
  const first = await stream.next();
  if (first === undefined) throw new Error(`the call ended: ${JSON.stringify(await stream.ended)}`);
  expect(first).toMatchObject({ output: '', done: false, task_id: expect.stringMatching(/^[0-9a-f-]{36}$/) });
  return { stream, taskId: String(first['task_id']) };
}

const statusOf = async (taskId: string): Promise<unknown> =>
  (await platform.call(`GET /api/v1/task/${platform.own.workspaceId}/${taskId}`)).json['status'];
const end = async (taskId: string, taskStatus: string, result: string): Promise<void> => {
  await platform.gateway('POST /tasks/start', { taskId });
  const body = { taskId, taskStatus, result: Buffer.from(result).toString('base64') };
  expect((await platform.gateway('POST /tasks/end', body)).json).toEqual({ ok: true });
};
let functions = 0;
/** A function with no call yet: the same request would give the same stub. */
const aFunction = (said: Json = {}): Promise<string> =>
  platform.stub({ stubType: 'function', handler: `app:f${++functions}`, ...said });
const unpickled = async (base64: unknown): Promise<string> =>
  (
    await execa('python3', ['-c', 'import pickle, sys; print(pickle.loads(sys.stdin.buffer.read()))'], {
      input: Buffer.from(String(base64), 'base64'),
    })
  ).stdout;

describe('a call of a function', () => {
  test('has the id of its task first, alone, and its result last', async () => {
    const { stream, taskId } = await begun({ stubId: await aFunction() });
    await end(taskId, 'COMPLETE', '{"10": 1, "9": 2.0}');
    const [last, ...more] = await stream.rest();
    expect(more).toEqual([]);
    expect(last).toMatchObject({ task_id: taskId, output: '', done: true, exit_code: 0 });
    expect(await unpickled(last?.['result'])).toBe("{'10': 1, '9': 2.0}");
    expect(await stream.ended).toMatchObject({ code: 0 });
  });

  test('that fails says why, with its task and an exit code', async () => {
    const { stream, taskId } = await begun({ stubId: await aFunction() });
    await end(taskId, 'ERROR', '{"error": "ValueError: no"}');
    expect(await stream.rest()).toMatchObject([
      { task_id: taskId, output: 'ValueError: no\n', done: true, exit_code: 1, result: '' },
    ]);
  });

  test('is cancelled by a caller who leaves, but not a headless one', async () => {
    const stubId = await aFunction();
    const [left, headless] = await Promise.all([begun({ stubId }), begun({ stubId, headless: true })]);
    headless.stream.cancel();
    expect(await headless.stream.ended).toMatchObject({ code: 1 });
    left.stream.cancel();
    await waitFor(async () => (await statusOf(left.taskId)) === 'CANCELLED', 'the task is cancelled', WAIT_MS);
    expect(await statusOf(headless.taskId)).toBe('PENDING');
  });

  test('goes on for a caller whose connection broke, and who comes back', async () => {
    const way = await aCuttableWay(platform.grpcAddress);
    const broken = new GrpcClient(way.address);
    const stubId = await aFunction();
    const { stream, taskId } = await begun({ stubId }, broken);
    way.cut();
    expect(await stream.ended).toMatchObject({ code: UNAVAILABLE });
    broken.close();
    const metadata = { 'x-beta9-task-id': taskId, 'x-beta9-log-offset': '0' };
    const again = invoke({ stubId }, { metadata });
    expect(await again.next()).toMatchObject({ task_id: taskId, output: '', done: false });
    await end(taskId, 'COMPLETE', '[1]');
    const [last] = await again.rest();
    expect(await unpickled(last?.['result'])).toBe('[1]');
    // A task that has ended is told, too.
    const ended = await invoke({ stubId }, { metadata }).rest();
    expect(ended).toMatchObject([
      { task_id: taskId, done: false },
      { done: true, exit_code: 0 },
    ]);
    const tasks = await call('gateway.GatewayService/ListTasks', { filters: { 'stub-id': { values: [stubId] } } });
    expect(tasks['tasks']).toHaveLength(1);
  });

  test('of another stub, workspace or kind is not found', async () => {
    const [stubId, other] = await Promise.all([aFunction(), aFunction()]);
    const { stream, taskId } = await begun({ stubId });
    const metadata = { 'x-beta9-task-id': taskId };
    const endpoint = await platform.stub();
    for (const [message, how] of [
      [{ stubId: other }, { metadata }],
      [{ stubId }, { metadata: { 'x-beta9-task-id': NOBODY } }],
      [{ stubId }, { metadata: { 'x-beta9-task-id': 'no-id' } }],
      [{ stubId }, { token: platform.other.token }],
      [{ stubId }, { token: platform.other.token, metadata }],
      [{ stubId: endpoint }, {}],
      [{ stubId: NOBODY }, {}],
    ] as const)
      expect(await invoke(message, how).ended).toMatchObject({ code: NOT_FOUND });
    for (const token of ['', platform.revoked])
      expect(await invoke({ stubId }, { token }).ended).toMatchObject({ code: UNAUTHENTICATED });
    // Pickled inputs are code, which a restricted token may not send.
    expect(await invoke({ stubId }, { token: platform.restricted }).ended).toMatchObject({
      code: INVALID_ARGUMENT,
      details: 'Unauthorized Access',
    });
    expect(await invoke({ stubId }, { metadata: { 'x-beta9-log-offset': 'many' } }).ended).toMatchObject({
      code: INVALID_ARGUMENT,
      details: expect.stringContaining('logOffset'),
    });
    stream.cancel();
  });

  test('above the bound of its queue is refused with the bound', async () => {
    const stubId = await aFunction({ maxPendingTasks: 1 });
    const { stream } = await begun({ stubId });
    expect(await invoke({ stubId }).ended).toEqual({
      code: RESOURCE_EXHAUSTED,
      details: 'exceeded max pending tasks: 1',
    });
    stream.cancel();
  });

  test('ends once its token counts no more', async () => {
    const made = (await platform.gateway('POST /tokens')).json['token'] as Json;
    const stubId = await aFunction();
    const stream = invoke({ stubId, headless: true }, { token: String(made['key']) });
    await stream.next();
    await platform.gateway(`POST /tokens/${String(made['tokenId'])}/toggle`);
    expect(await stream.ended).toMatchObject({ code: UNAUTHENTICATED, details: 'invalid or missing token' });
  });

  test('shares its connection with 127 others', async () => {
    const stubId = await aFunction({ maxPendingTasks: 500 });
    const one = new GrpcClient(platform.grpcAddress);
    const many = await Promise.all(Array.from({ length: 128 }, () => begun({ stubId, headless: true }, one)));
    expect(new Set(many.map(({ taskId }) => taskId)).size).toBe(128);
    // Calls of other connections have room beside them.
    await begun({ stubId, headless: true });
    one.close();
  });
});

describe('task queues', () => {
  test('take a task and count it', async () => {
    const stubId = await platform.stub({ stubType: 'taskqueue' });
    const put = (payload: string, token?: string) =>
      call(
        'taskqueue.TaskQueueService/TaskQueuePut',
        { stubId, payload: Buffer.from(payload).toString('base64') },
        token,
      );
    const { ok, task_id: taskId } = await put('{"args": [1], "kwargs": {"a": 2}}');
    expect([ok, await statusOf(String(taskId))]).toEqual([true, 'PENDING']);
    expect(await put('{"args": ', undefined)).toEqual({ ok: false, task_id: '' });
    expect(await put('{"callback_url": "http://example.org"}')).toEqual({ ok: false, task_id: '' });
    expect(await put('{}', platform.other.token)).toEqual({ ok: false, task_id: '' });
    const length = await call('taskqueue.TaskQueueService/TaskQueueLength', { stubId });
    expect(length).toEqual({ ok: true, length: '1' });
  });

  test('answer a call that flow control skips with the task that is there', async () => {
    const stubId = await platform.stub({
      stubType: 'taskqueue',
      extra: JSON.stringify({ flow: { singleton: 'skip', rate: '2/h', onExcess: 'skip' } }),
    });
    const put = () =>
      call('taskqueue.TaskQueueService/TaskQueuePut', {
        stubId,
        payload: Buffer.from('{"args": []}').toString('base64'),
      });
    const first = await put();
    expect(first).toMatchObject({ ok: true, task_id: expect.stringMatching(/./) });
    expect(await put()).toEqual(first);
    expect(await put()).toEqual({ ok: true, task_id: '' });
  });
});

describe('a schedule whose time is told after its deployment', () => {
  const stub = (said: Json = {}) =>
    call('gateway.GatewayService/GetOrCreateStub', {
      stubType: 'schedule/deployment',
      name: 'schedule/deployment/app:tick',
      handler: 'app:tick',
      cpu: '100',
      memory: '64',
      authorized: true,
      ...said,
    });
  const deployed = async (name: string): Promise<{ stubId: string; deploymentId: string }> => {
    const stubId = String((await stub({ name }))['stub_id']);
    const made = await call('gateway.GatewayService/DeployStub', { stubId, name });
    expect(made).toMatchObject({ ok: true });
    return { stubId, deploymentId: String(made['deployment_id']) };
  };
  const tasksOf = async (stubId: string): Promise<number> =>
    (
      (await call('gateway.GatewayService/ListTasks', { filters: { 'stub-id': { values: [stubId] } } }))[
        'tasks'
      ] as unknown[]
    ).length;

  test('makes no task before, and runs afterwards', async () => {
    const { stubId, deploymentId } = await deployed('later');
    const told = { stubId, deploymentId, when: '@secondly' };
    expect(await call(SCHEDULE, told, platform.other.token)).toMatchObject({
      ok: false,
      err_msg: 'Deployment not found',
    });
    expect(await call(SCHEDULE, { ...told, when: 'at noon' })).toMatchObject({
      ok: false,
      err_msg: expect.stringMatching(/^when /),
    });
    expect(await call(SCHEDULE, { ...told, when: '' })).toMatchObject({
      ok: false,
      err_msg: expect.stringMatching(/^when /),
    });
    expect(await tasksOf(stubId)).toBe(0);
    const scheduled = { ok: true, err_msg: '', scheduled_job_id: deploymentId };
    expect(await call(SCHEDULE, told)).toEqual(scheduled);
    expect(await call(SCHEDULE, told)).toEqual(scheduled);
    await waitFor(async () => (await tasksOf(stubId)) > 0, 'the schedule makes a task', WAIT_MS);
    expect(await call(SCHEDULE, { ...told, when: '@daily' })).toMatchObject({
      ok: false,
      err_msg: 'later runs at @secondly already: deploy it again to change that',
    });
  });

  test('has another time with its next deployment', async () => {
    const first = await deployed('again');
    expect(await call(SCHEDULE, { ...first, when: '@daily' })).toMatchObject({ ok: true });
    const second = await deployed('again');
    expect(second.stubId).not.toBe(first.stubId);
    expect(await call(SCHEDULE, { ...second, when: '@hourly' })).toMatchObject({ ok: true });
    expect(await call(SCHEDULE, { ...second, stubId: first.stubId, when: '@hourly' })).toMatchObject({ ok: false });
  });

  test('is for this client: over HTTP a schedule says when it runs', async () => {
    const refused = await platform.gateway('POST /stubs', { stubType: 'schedule/deployment', handler: 'app:tick' });
    expect(refused.json).toMatchObject({ ok: false, errMsg: expect.stringContaining('extra.when') });
    const endpoint = await platform.deploy('no-schedule');
    expect(await call(SCHEDULE, { stubId: endpoint.stubId, deploymentId: endpoint.id, when: '@daily' })).toMatchObject({
      ok: false,
      err_msg: 'no-schedule is no schedule',
    });
  });
});

describe('attaching', () => {
  test('names a container that is there, first', async () => {
    const how = { token: platform.own.token };
    const unknown = client.attach(how);
    unknown.send({ attachRequest: { containerId: 'nobody' } });
    expect(await unknown.rest()).toEqual([{ output: 'Container not found\n', done: true, exit_code: 1 }]);
    const wrong = client.attach(how);
    wrong.send({});
    expect(await wrong.ended).toEqual({
      code: INVALID_ARGUMENT,
      details: 'the first message must be attach_request',
    });
    for (const token of ['', platform.revoked]) {
      const refused = client.attach({ token });
      refused.send({ attachRequest: { containerId: 'nobody' } });
      expect(await refused.ended).toMatchObject({ code: UNAUTHENTICATED });
    }
  });

  test('needs a development server where one is started', async () => {
    const { stubId } = await platform.deploy('no-serve');
    expect(await call('endpoint.EndpointService/StartEndpointServe', { stubId })).toMatchObject({
      ok: false,
      error_msg: expect.stringContaining('endpoint/serve'),
    });
  });
});

test('a scheduler that stops ends streams, so that their callers come to another one, and their tasks go on', async () => {
  const stopping = await aPlatform({ LONGSHORE_DRAIN_SECONDS: '1' }, 'servers');
  const there = new GrpcClient(stopping.grpcAddress);
  const stubId = await stopping.stub({ stubType: 'function' });
  const stream = there.open(INVOKE, { stubId, args: ARGS }, { token: stopping.own.token });
  await stream.next();
  await stopping.stop();
  expect(await stream.ended).toMatchObject({ code: UNAVAILABLE });
  there.close();
}, 120_000);
