import { connect } from 'node:net';
import { pino } from 'pino';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { TaskId, TokenId, WorkspaceId } from '#shared/domain/ids.ts';
import { queueNameOf } from '#shared/domain/ids.ts';
import type { DeploymentId, StubId } from '#shared/domain/ids.ts';
import type { StubConfig, Target } from '../../../scheduler/deployments/stub-config.ts';
import { inputOf, registerInvoke } from '../../../scheduler/http/invoke/invoke.ts';
import { createHttpServer } from '../../../scheduler/http/server.ts';
import type { HttpServer } from '../../../scheduler/http/server.ts';
import type { Caller } from '../../../scheduler/identity/caller.ts';
import type { Call, Finished, Submission } from '../../../scheduler/tasks/task-service.ts';

const log = pino({ level: 'silent' });
const STUB = '05ed1b36-2098-4790-99eb-732099e99ca6';
const caller = (workspaceId: string): Caller => ({
  workspaceId: workspaceId as WorkspaceId,
  workspaceDbId: 1,
  tokenId: 't' as TokenId,
  type: 'workspace_restricted',
  isAdmin: false,
});
const aTarget = (said: { readonly active?: boolean; readonly authorized?: boolean } = {}): Target => ({
  workspaceId: 'w' as WorkspaceId,
  stubId: STUB as StubId,
  deploymentId: 'd' as DeploymentId,
  deploymentName: 'hello',
  version: 1,
  kind: 'endpoint',
  sync: true,
  active: said.active ?? true,
  queue: queueNameOf('d' as DeploymentId, STUB as StubId),
  code: null,
  config: { authorized: said.authorized ?? true } as StubConfig,
  scale: null,
});

/** Plays the task service: hands every call to `answer`, which a test sets. */
const tasks = {
  calls: [] as Call[],
  left: 0,
  answer: (): Promise<Submission> => Promise.reject(new Error('no answer set')),
  submit(_target: Target, call: Call): Promise<Submission> {
    this.calls.push(call);
    return this.answer();
  },
};
const accepted = (finished: Promise<Finished>): Submission => ({
  kind: 'accepted',
  taskId: 'task-1' as TaskId,
  finished,
  callerLeft: () => void tasks.left++,
});
const done = (body = '{"ok":true}', httpStatus = 200): Promise<Submission> =>
  Promise.resolve(accepted(Promise.resolve({ status: 'COMPLETE', httpStatus, body })));

let server: HttpServer;
let target: Target | undefined;
beforeEach(() => {
  tasks.calls = [];
  tasks.left = 0;
  tasks.answer = () => done();
  target = aTarget();
  server = createHttpServer({
    log,
    register: (app) => {
      void app.register((scope, _options, next) => {
        registerInvoke(scope, {
          authenticator: {
            authenticate: (token) =>
              token === 'late' ? Promise.resolve(caller('w')) : token === 'bad' ? null : caller(token),
          },
          targets: {
            byName: (workspaceId, kind, name, version) =>
              workspaceId === 'w' &&
              kind === 'endpoint' &&
              name === 'hello' &&
              (version ?? 1) === 1 &&
              target !== undefined
                ? target
                : Promise.resolve(undefined),
            byStub: (stubId) => (stubId === STUB && target !== undefined ? target : Promise.resolve(undefined)),
          },
          tasks,
          log,
          maxBodyBytes: 1000,
        });
        next();
      });
    },
  });
});
afterEach(() => server.stop(0));

async function call(path: string, body: string | Buffer = '{}', token = 'w', method: 'POST' | 'GET' | 'PUT' = 'POST') {
  const answer = await server.app.inject({
    method,
    url: path,
    headers: token === '' ? {} : { authorization: `Bearer ${token}` },
    ...(method === 'GET' ? {} : { payload: body }),
  });
  return { status: answer.statusCode, text: answer.body, headers: answer.headers };
}

describe('a call that is served', () => {
  test.each([
    '/endpoint/hello',
    '/endpoint/hello/latest',
    '/endpoint/hello/v1',
    `/endpoint/id/${STUB}`,
    '/endpoint/hello/',
  ])('%s is answered with the bytes of the result', async (path) => {
    tasks.answer = () => done('{"n": 1.0,  "s": "é"}');
    const answer = await call(path, '{"args":[1], "b" : 2}');
    expect([answer.status, answer.text]).toEqual([200, '{"n": 1.0,  "s": "é"}']);
    expect(answer.headers['content-type']).toMatch(/^application\/json/);
    expect(answer.headers['x-task-id']).toBe('task-1');
    expect(answer.headers['access-control-expose-headers']).toBe('X-Task-Id');
    expect(answer.headers['x-request-id']).toMatch(/.+/);
    expect(tasks.calls).toEqual([{ input: '{"args":[1], "b" : 2}' }]);
  });

  test('query parameters go beside the input, the token does not', async () => {
    await call('/endpoint/hello?a=1&b=x&b=y&auth_token=w', '', '');
    expect(tasks.calls).toEqual([{ input: '', query: { a: ['1'], b: ['x', 'y'] } }]);
  });

  test('GET calls without a body', async () => {
    expect((await call('/endpoint/hello?a=1', '', 'w', 'GET')).status).toBe(200);
    expect(tasks.calls).toEqual([{ input: '', query: { a: ['1'] } }]);
  });

  test('a token that has to be looked up first works the same', async () => {
    expect((await call('/endpoint/hello', '{}', 'late')).status).toBe(200);
  });

  test('a public stub needs no token, by its id or the public route', async () => {
    target = aTarget({ authorized: false });
    expect((await call(`/endpoint/public/${STUB}`, '{}', '')).status).toBe(200);
    expect((await call(`/endpoint/id/${STUB}`, '{}', '')).status).toBe(200);
    expect((await call(`/endpoint/id/${STUB}`, '{}', 'other')).status).toBe(200);
  });

  test.each([
    [500, '{"error":"KeyError: \'x\'"}'],
    [502, '{"error":"Backend route unavailable"}'],
    [503, '{"error":"deployment stopped"}'],
    [504, '{"error":"Timed out waiting for a backend container"}'],
  ])('a task that ends in %i says so with its own text', async (status, body) => {
    tasks.answer = () => done(body, status);
    const answer = await call('/endpoint/hello');
    expect([answer.status, answer.text, answer.headers['x-task-id']]).toEqual([status, body, 'task-1']);
  });
});

describe('a call that is refused', () => {
  test.each<[string, string, number, string]>([
    ['/endpoint/nope', 'w', 400, '{"message":"Invalid deployment"}'],
    ['/endpoint/hello/v9', 'w', 400, '{"message":"Invalid deployment"}'],
    ['/endpoint/hello/one', 'w', 400, '{"message":"Invalid deployment version"}'],
    ['/endpoint/hello/v', 'w', 400, '{"message":"Invalid deployment version"}'],
    ['/endpoint/hello', '', 401, '{"message":"Unauthorized"}'],
    ['/endpoint/hello', 'bad', 401, '{"message":"Unauthorized"}'],
    ['/endpoint/hello', 'other', 400, '{"message":"Invalid deployment"}'],
    [`/endpoint/id/${STUB}`, 'other', 401, '{"message":"Invalid token"}'],
    [`/endpoint/id/${STUB}`, '', 401, '{"message":"Unauthorized"}'],
    ['/endpoint/id/00000000-0000-4000-8000-000000000000', 'w', 400, '{"message":"Invalid stub"}'],
    ['/endpoint/id/nothing', 'w', 400, '{"message":"Invalid stub"}'],
    [`/endpoint/public/${STUB}`, '', 400, '{"error":"invalid stub id"}'],
    [`/endpoint/public/${STUB}`, 'bad', 401, '{"message":"Unauthorized"}'],
  ])('%s as %j: %i', async (path, token, status, text) => {
    const answer = await call(path, '{}', token);
    expect([answer.status, answer.text]).toEqual([status, text]);
    expect(tasks.calls).toEqual([]);
  });

  test('a stopped deployment refuses on every route', async () => {
    target = aTarget({ active: false, authorized: false });
    for (const path of ['/endpoint/hello', '/endpoint/hello/v1', `/endpoint/id/${STUB}`, `/endpoint/public/${STUB}`]) {
      expect(await call(path)).toMatchObject({ status: 400, text: '{"message":"Deployment is not active"}' });
    }
  });

  test.each(['[1]', '"text"', '1', 'null', '{', '{"a":}', 'a=1', Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x7d])])(
    'the body %s is not a JSON object',
    async (body) => {
      expect(await call('/endpoint/hello', body)).toMatchObject({
        status: 400,
        text: '{"error":"invalid request payload"}',
      });
    },
  );

  test('a body above the limit is 413 and names it', async () => {
    const answer = await call('/endpoint/hello', `{"a":"${'x'.repeat(1000)}"}`);
    expect(answer.status).toBe(413);
    expect(JSON.parse(answer.text)).toEqual({ error: 'request body is larger than 1000 bytes' });
  });

  test('another method is 405', async () => {
    expect((await call('/endpoint/hello', '{}', 'w', 'PUT')).status).toBe(405);
  });
});

describe('when the platform cannot take it', () => {
  test('a full queue is 429 with its bound', async () => {
    tasks.answer = () => Promise.resolve({ kind: 'queue_full', maxPendingTasks: 7 });
    expect(await call('/endpoint/hello')).toMatchObject({
      status: 429,
      text: '{"error":"exceeded max pending tasks: 7"}',
    });
  });

  test('stores that do not answer are 503', async () => {
    tasks.answer = () => Promise.resolve({ kind: 'unavailable', text: 'queues do not answer' });
    expect(await call('/endpoint/hello')).toMatchObject({ status: 503, text: '{"error":"queues do not answer"}' });
  });

  test('anything else is 500 without its text', async () => {
    tasks.answer = () => Promise.reject(new Error('inner detail'));
    expect(await call('/endpoint/hello')).toMatchObject({ status: 500, text: '{"error":"Internal server error"}' });
    tasks.answer = () => Promise.resolve(accepted(Promise.reject(new Error('inner detail'))));
    expect(await call('/endpoint/hello')).toMatchObject({ status: 500, text: '{"error":"Internal server error"}' });
  });
});

test('a caller that hangs up is told to the task, one that was answered is not', async () => {
  const address = await server.start('127.0.0.1:0');
  let submitted = (): void => undefined;
  const wasSubmitted = new Promise<void>((resolve) => (submitted = resolve));
  let left = (): void => undefined;
  const hasLeft = new Promise<void>((resolve) => (left = resolve));
  tasks.answer = () => {
    submitted();
    return Promise.resolve({ ...accepted(new Promise(() => undefined)), callerLeft: () => left() } as Submission);
  };
  const [host = '', port = ''] = address.split(':');
  const socket = connect({ host, port: Number(port) });
  socket.write('POST /endpoint/hello HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer w\r\nContent-Length: 2\r\n\r\n{}');
  await wasSubmitted;
  socket.destroy();
  await hasLeft;
  tasks.answer = () => done();
  const answer = await fetch(`http://${address}/endpoint/hello`, {
    method: 'POST',
    headers: { authorization: 'Bearer w' },
    body: '{}',
  });
  expect(await answer.json()).toEqual({ ok: true });
  expect(tasks.left).toBe(0);
});

test('the text of a body is passed on as it came', () => {
  expect(inputOf(Buffer.from(' {"a" : 1.0}\n'))).toBe(' {"a" : 1.0}\n');
  expect(inputOf(Buffer.from(' \n'))).toBe('');
  expect(inputOf(undefined)).toBe('');
});
