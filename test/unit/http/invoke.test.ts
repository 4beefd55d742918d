import { connect } from 'node:net';
import { pino } from 'pino';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { AppId, TaskId, TokenId, WorkspaceId } from '#shared/domain/ids.ts';
import { queueNameOf } from '#shared/domain/ids.ts';
import type { DeploymentId, StubId } from '#shared/domain/ids.ts';
import { COMPLETED, DEPLOYMENT_STOPPED, LOST, WAIT_LIMIT } from '../../../scheduler/domain/endings.ts';
import type { StubConfig, Target } from '../../../scheduler/domain/stub-config.ts';
import { hostRewriter, readHostLabel } from '../../../scheduler/api/http/invoke/host-form.ts';
import { StreamMetrics } from '../../../scheduler/api/http/streams/metrics.ts';
import { OpenCalls } from '../../../scheduler/api/http/streams/open-calls.ts';
import { Places } from '#shared/places.ts';
import { StreamRoom } from '../../../scheduler/api/http/streams/room.ts';
import { WebSockets } from '../../../scheduler/api/http/streams/websockets.ts';
import { Registry } from '../../../shared/metrics.ts';
import { registerInvoke } from '../../../scheduler/api/http/invoke/invoke.ts';
import { createHttpServer } from '../../../scheduler/api/http/server.ts';
import type { HttpServer } from '../../../scheduler/api/http/server.ts';
import type { Caller } from '../../../scheduler/workspaces/identity/caller.ts';
import type { Call, Submission } from '../../../scheduler/tasks/admission/calls.ts';
import type { Finished } from '../../../scheduler/tasks/dispatch/replies.ts';
import { inputOf } from '#scheduler/api/http/invoke/input.ts';
import { playedHosts } from '../../helpers/played-streams.ts';

const log = pino({ level: 'silent' });
/** A workspace by its id. */
const OWNER = '11111111-2222-4333-8444-555555555555';
const STUB = '05ed1b36-2098-4790-99eb-732099e99ca6';
const caller = (workspaceId: string): Caller => ({
  workspaceId: workspaceId as WorkspaceId,
  workspaceDbId: 1,
  tokenId: 't' as TokenId,
  type: 'workspace_restricted',
  isAdmin: false,
});
const aTarget = (
  said: { readonly active?: boolean; readonly authorized?: boolean; readonly kind?: string } = {},
): Target => ({
  workspaceId: 'w' as WorkspaceId,
  appId: 'a' as AppId,
  stubId: STUB as StubId,
  deploymentId: 'd' as DeploymentId,
  deploymentName: 'hello',
  subdomain: 'hello-1a2b3c4',
  version: 1,
  kind: said.kind ?? 'endpoint',
  sync: (said.kind ?? 'endpoint') === 'endpoint',
  active: said.active ?? true,
  queue: queueNameOf('d' as DeploymentId, STUB as StubId),
  code: null,
  config: { authorized: said.authorized ?? true } as StubConfig,
  scale: null,
  supersededBy: null,
  rollout: null,
  imageDigest: '',
});

/** Plays the task service: hands every call to `answer`, which a test sets. */
const tasks = {
  calls: [] as Call[],
  left: 0,
  answer: (): Promise<Submission> => Promise.reject(new Error('no answer set')),
  submit(_target: Target, call: Call): Promise<Submission> {
    const { onItem: _, ...given } = call;
    this.calls.push(given);
    return this.answer();
  },
};
const accepted = (finished: Promise<Finished>): Submission => ({
  kind: 'accepted',
  taskId: 'task-1' as TaskId,
  finished,
  callerLeft: () => void tasks.left++,
});
const done = (body = '{"ok":true}', how: Pick<Finished, 'status' | 'reason'> = COMPLETED): Promise<Submission> =>
  Promise.resolve(accepted(Promise.resolve({ status: how.status, reason: how.reason, body })));

let warmed = 0;
let server: HttpServer;
let target: Target | undefined;
beforeEach(() => {
  tasks.calls = [];
  tasks.left = 0;
  warmed = 0;
  tasks.answer = () => done();
  target = aTarget();
  server = createHttpServer({
    log,
    rewriteUrl: hostRewriter(['localhost']),
    register: (app) => {
      void app.register((scope, _options, next) => {
        registerInvoke(scope, {
          authenticator: {
            authenticate: (token) =>
              token === 'late' ? Promise.resolve(caller('w')) : token === 'bad' ? null : caller(token),
          },
          targets: {
            byName: (workspaceId, kind, name, version) =>
              (workspaceId === 'w' || workspaceId === OWNER) &&
              kind === target?.kind &&
              name === 'hello' &&
              (version ?? 1) === 1 &&
              target !== undefined
                ? target
                : Promise.resolve(undefined),
            bySubdomain: (subdomain, version) =>
              subdomain === 'hello-1a2b3c4' && (version ?? 1) === 1 && target !== undefined
                ? target
                : Promise.resolve(undefined),
            byStub: (stubId) => (stubId === STUB && target !== undefined ? target : Promise.resolve(undefined)),
          },
          hosts: playedHosts(),
          submissions: tasks,
          containers: { warmUp: async () => void warmed++ },
          callbackProblem: (url) => (url.startsWith('https://') ? undefined : 'must be better'),
          mayTakeCode: async () => false,
          log,
          maxBodyBytes: 1000,
          release: () => undefined,
          hasContainers: () => true,
          containerStreams: { open: () => Promise.reject(new Error('no container')) },
          containerUses: { hold: () => () => undefined },
          containerWaits: {
            find: () => Promise.resolve(undefined),
            waitUntilRunning: () => Promise.reject(new Error('no container')),
          },
          connections: new Places<WorkspaceId>(256),
          streams: { expect: () => () => undefined },
          cancel: () => Promise.resolve(),
          webSockets: new WebSockets(),
          room: new StreamRoom(),
          openCalls: new OpenCalls(),
          streamMetrics: new StreamMetrics(new Registry()),
        });
        next();
      });
    },
  });
});
afterEach(() => server.stop(0));

async function call(
  path: string,
  body: string | Buffer = '{}',
  token = 'w',
  method: 'POST' | 'GET' | 'PUT' = 'POST',
  host = 'localhost:1994',
  headers: Readonly<Record<string, string | string[]>> = {},
) {
  const answer = await server.app.inject({
    method,
    url: path,
    headers: { host, ...(token === '' ? {} : { authorization: `Bearer ${token}` }), ...headers },
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

  test.each(['function', 'schedule'])(
    'a %s is asked for by POST, never without a token, and gives a task id',
    async (kind) => {
      target = aTarget({ kind });
      for (const path of ['hello', 'hello/latest', 'hello/v1', `id/${STUB}`]) {
        const answer = await call(`/${kind}/${path}`);
        expect([answer.status, answer.text]).toEqual([200, '{"task_id":"task-1"}']);
      }
      expect((await call(`/${kind}/hello`, '', 'w', 'GET')).status).toBe(405);
      expect((await call(`/${kind}/public/${STUB}`, '{}', '')).status).toBe(401);
      expect((await call(`/${kind}/hello/warmup`)).text).toBe('{"message":"Invalid deployment version"}');
      expect((await call(`/${kind}/id/${STUB}/warmup`)).status).toBe(404);
    },
  );

  test('a token that has to be looked up first works the same', async () => {
    expect((await call('/endpoint/hello', '{}', 'late')).status).toBe(200);
  });

  test('a public stub needs no token, by its id or the public route', async () => {
    target = aTarget({ authorized: false });
    expect((await call(`/endpoint/public/${STUB}`, '{}', '')).status).toBe(200);
    expect((await call(`/endpoint/id/${STUB}`, '{}', '')).status).toBe(200);
    expect((await call(`/endpoint/id/${STUB}`, '{}', 'other')).status).toBe(200);
  });

  test('a public deployment needs no token at its name, whatever its version is', async () => {
    target = aTarget({ authorized: false });
    for (const path of [`${OWNER}/hello`, `${OWNER.toUpperCase()}/hello`, `${OWNER}/hello/latest`, `${OWNER}/hello/v1`])
      expect(await call(`/endpoint/public/${path}`, '{}', '')).toMatchObject({ status: 200 });
    expect((await call(`/endpoint/public/${OWNER}/hello`, '{}', 'other')).status).toBe(200);
    for (const path of [`${OWNER}/nope`, `${OWNER}/hello/v9`, `${STUB}/hello`, 'w/hello'])
      expect(await call(`/endpoint/public/${path}`, '{}', '')).toMatchObject({ status: 401 });
    target = aTarget({ authorized: false, active: false });
    expect((await call(`/endpoint/public/${OWNER}/hello`, '{}', '')).text).toBe(
      '{"message":"Deployment is not active"}',
    );
  });

  test('a deployment that is not public answers at its public name as one that does not exist', async () => {
    const answers = [];
    for (const name of ['hello', 'nope'])
      for (const token of ['', 'w', 'other']) {
        const { status, text } = await call(`/endpoint/public/${OWNER}/${name}`, '{}', token);
        answers.push(`${token}: ${status} ${text}`);
      }
    expect(answers.slice(0, 3)).toEqual(answers.slice(3));
  });

  test.each([
    [500, '{"error":"KeyError: \'x\'"}', { status: 'ERROR', reason: 'handler_error' }],
    [502, '{"error":"Backend route unavailable"}', LOST],
    [503, '{"error":"deployment stopped"}', DEPLOYMENT_STOPPED],
    [504, '{"error":"Timed out waiting for a backend container"}', WAIT_LIMIT],
  ] as const)('a task that ends in %i says so with its own text', async (status, body, how) => {
    tasks.answer = () => done(body, how);
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

  test.each<[string | Buffer, string]>([
    ['[1]', 'the body is an array, and has to be a JSON object'],
    ['"text"', 'the body is a string, and has to be a JSON object'],
    ['-1', 'the body is a number, and has to be a JSON object'],
    ['null', 'byte 0 is n, where { has to come'],
    ['a=1', 'byte 0 is a, where { has to come'],
    ['\ufeff{}', 'byte 0 has the code 239, where { has to come'],
    ['{', 'the body ends at byte 1, where a name in double quotes, or } has to come'],
    ['{"a":}', 'byte 5 is }, where a value has to come'],
    ['{"a":1,}', 'byte 7 is }, where a name in double quotes has to come'],
    ["{'a':1}", "byte 1 is ', where a name in double quotes, or } has to come"],
    ['{"a":True}', 'byte 5 is T, where a value has to come'],
    ['{"a":nul}', 'byte 8 is }, where true, false or null has to come'],
    ['{"a":01}', 'byte 6 is 1, where a comma or } has to come'],
    ['{"a":[1 2]}', 'byte 8 is 2, where a comma or ] has to come'],
    ['{"a":1}x', 'byte 7 is x, where the end has to come'],
    ['{\n"a": "1\n2"}', 'byte 9 (line 2) has the code 10, where no control character but as an escape has to come'],
    ['{"a":"\\q"}', 'byte 7 is q, where an escape such as \\n has to come'],
    [Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x7d]), 'byte 2 begins no character of UTF-8'],
    [Buffer.from('{"\ufffd":"é€\u{1f600}', 'utf8').subarray(0, -1), 'byte 13 begins no character of UTF-8'],
  ])('the body %s is not a JSON object, and the answer says where', async (body, detail) => {
    const answer = await call('/endpoint/hello', body);
    expect([answer.status, JSON.parse(answer.text)]).toEqual([400, { error: 'invalid request payload', detail }]);
  });

  test.each([300_000, 900])('a broken body with a secret of %i characters is not told again', async (length) => {
    const secret = 's3cret'.repeat(length / 6);
    const why = await inputOf(Buffer.from(`{"password":"${secret}" "b":1}`));
    expect(why).toBe(`byte ${length + 15} is ", where a comma or } has to come`);
  });

  test('a body above the limit is 413 and names it', async () => {
    const answer = await call('/endpoint/hello', `{"a":"${'x'.repeat(1000)}"}`);
    expect(answer.status).toBe(413);
    expect(JSON.parse(answer.text)).toEqual({
      error: 'request body is larger than 1000 bytes',
      code: 'body_too_large',
    });
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
    tasks.answer = () => Promise.resolve({ kind: 'unavailable', reason: 'queue_silent' });
    expect(await call('/endpoint/hello')).toMatchObject({
      status: 503,
      text: '{"error":"the task queue does not answer"}',
    });
  });

  test('a deployment that stopped meanwhile is 503, as for those who waited', async () => {
    tasks.answer = () => Promise.resolve({ kind: 'unavailable', reason: 'deployment_stopped' });
    expect(await call('/endpoint/hello')).toMatchObject({ status: 503, text: '{"error":"deployment stopped"}' });
  });

  test('what no machine has is said in the words of the placement, and a full Redis has a code', async () => {
    const detail = 'no machine has an H100';
    tasks.answer = () => Promise.resolve({ kind: 'unavailable', reason: 'not_servable', detail });
    expect(await call('/endpoint/hello')).toMatchObject({ status: 503, text: JSON.stringify({ error: detail }) });
    tasks.answer = () => Promise.resolve({ kind: 'unavailable', reason: 'redis_nearly_full' });
    expect(JSON.parse((await call('/endpoint/hello')).text)).toMatchObject({ code: 'redis_nearly_full' });
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

test.each([0, 300_000])('the text of a body is passed on as it came, with %i bytes more', async (bytes) => {
  const more = ' '.repeat(bytes);
  const textOf = async (text: string) => {
    const input = await inputOf(Buffer.from(text));
    return typeof input === 'string' ? undefined : input.text;
  };
  expect(await textOf(` {"a" : 1.0}\n${more}`)).toBe(` {"a" : 1.0}\n${more}`);
  expect(await textOf(` \n${more}`)).toBe('');
  expect(await textOf(`[]${more}`)).toBeUndefined();
  expect(await textOf(`{"a":}${more}`)).toBeUndefined();
  expect(await inputOf(Buffer.concat([Buffer.from(`{"a":"${more}`), Buffer.from([0xff]), Buffer.from('"}')]))).toMatch(
    /^byte \d+ begins no character of UTF-8$/,
  );
  expect(await inputOf(undefined)).toEqual({ text: '' });
});

describe('the host form', () => {
  const at = (host: string, path = '/', token = 'w', method: 'POST' | 'GET' | 'PUT' = 'POST') =>
    call(path, '{}', token, method, host);

  test.each([
    'hello-1a2b3c4-v1.localhost:1994',
    'HELLO-1a2b3c4-v1.localhost',
    'hello-1a2b3c4-latest.localhost',
    'hello-1a2b3c4.localhost',
    'hello-1a2b3c4-v1.gpu.example.org',
    `${STUB}.localhost:1994`,
    `${STUB.toUpperCase()}.elsewhere.example`,
  ])('%s is served', async (host) => {
    expect((await at(host)).status).toBe(200);
    expect((await at(host, '/?n=1', 'w', 'GET')).status).toBe(200);
    expect(tasks.calls.at(-1)).toEqual({ input: '', query: { n: ['1'] } });
  });

  test.each([
    ['hello-1a2b3c4-v2.localhost', 'w', 400, '{"message":"Invalid deployment"}'],
    ['other-1a2b3c4-v1.localhost', 'w', 400, '{"message":"Invalid deployment"}'],
    ['other-1a2b3c4-v1.localhost', '', 401, '{"message":"Unauthorized"}'],
    ['hello-1a2b3c4-v1.localhost', '', 401, '{"message":"Unauthorized"}'],
    ['hello-1a2b3c4-v1.localhost', 'bad', 401, '{"message":"Unauthorized"}'],
    ['hello-1a2b3c4-v1.localhost', 'other', 401, '{"message":"Invalid token"}'],
  ])('%s with token "%s" is %i', async (host, token, status, text) => {
    const answer = await at(host, '/', token);
    expect([answer.status, answer.text]).toEqual([status, text]);
    expect(tasks.calls).toEqual([]);
  });

  test('a stopped deployment and a public one are what they are by path', async () => {
    target = aTarget({ active: false });
    expect((await at('hello-1a2b3c4-v1.localhost')).text).toBe('{"message":"Deployment is not active"}');
    target = aTarget({ authorized: false });
    expect((await at('hello-1a2b3c4-v1.localhost', '/', '')).status).toBe(200);
  });

  test('a label without a version counts below known domains alone; other hosts are routed as ever', async () => {
    expect((await at('hello-1a2b3c4.example.org')).status).toBe(404);
    expect((await call('/endpoint/hello', '{}', 'w', 'POST', 'hello-1a2b3c4.example.org')).status).toBe(200);
    expect((await call('/endpoint/hello', '{}', 'w', 'POST', 'app.localhost')).status).toBe(200);
  });

  test('a path below a label is nothing, and the label is nothing as a path', async () => {
    expect((await at('hello-1a2b3c4-v1.localhost', '/endpoint/hello')).status).toBe(404);
    for (const base of ['/~host', '/%7Ehost', '/%7eh%6Fst', '/~%68%6f%73%74'])
      expect((await call(`${base}/hello-1a2b3c4-v1`)).status).toBe(404);
    expect((await at('hello-1a2b3c4-v1.localhost', '/', 'w', 'PUT')).status).toBe(405);
    expect(tasks.calls).toEqual([]);
  });

  test('labels are read by their shape', () => {
    expect(readHostLabel('a-b-1a2b3c4-v12')).toEqual({
      kind: 'deployment',
      subdomain: 'a-b-1a2b3c4',
      version: 12,
      port: null,
    });
    expect(readHostLabel('a-1a2b3c4d5e6f7081-v1')).toEqual({
      kind: 'deployment',
      subdomain: 'a-1a2b3c4d5e6f7081',
      version: 1,
      port: null,
    });
    const latest = { kind: 'deployment', subdomain: 'a-1a2b3c4', version: null };
    expect(readHostLabel('a-1a2b3c4-latest')).toEqual({ ...latest, port: null });
    expect(readHostLabel('a-1a2b3c4-8000')).toEqual({ ...latest, port: 8000 });
    expect(readHostLabel('a-1a2b3c4-v2-80')).toEqual({ ...latest, version: 2, port: 80 });
    expect(readHostLabel(`${STUB}-8000`)).toEqual({ kind: 'stub', stubId: STUB, port: 8000 });
    const containerId = `sandbox-${STUB}-0123abcd`;
    expect(readHostLabel(`${containerId}-1`)).toEqual({ kind: 'container', containerId, stubId: STUB, port: 1 });
    for (const label of [containerId, `${STUB}-08`, `${STUB}-123456`, `endpoint-${STUB}-0123abcd-1`])
      expect(readHostLabel(label), label).toBeUndefined();
    for (const label of ['www', 'a-1a2b3c', 'a-1a2b3cg-v1', '-1a2b3c4-v1', 'a-1a2b3c4-vx', '']) {
      expect(readHostLabel(label)).toBeUndefined();
    }
  });
});

describe('task queues', () => {
  test('are put to by POST alone and answer with the id of the task', async () => {
    target = aTarget({ kind: 'taskqueue' });
    tasks.answer = () => Promise.resolve(accepted(new Promise(() => {})));
    const host = 'hello-1a2b3c4-v1.localhost';
    for (const answer of [await call(`/taskqueue/id/${STUB}`), await call('/', '{}', 'w', 'POST', host)]) {
      expect([answer.status, answer.text, answer.headers['x-task-id']]).toEqual([
        200,
        '{"task_id":"task-1"}',
        'task-1',
      ]);
    }
    expect((await call(`/taskqueue/id/${STUB}`, '{}', 'w', 'GET')).status).toBe(405);
    expect((await call('/', '{}', 'w', 'GET', host)).status).toBe(405);
    // An endpoint's URL does not reach a task queue.
    expect((await call(`/endpoint/id/${STUB}`)).text).toBe('{"message":"Invalid stub"}');
  });
});

describe('warm-up', () => {
  test.each([
    '/endpoint/hello/warmup',
    '/endpoint/hello/latest/warmup',
    '/endpoint/hello/v1/warmup',
    `/endpoint/id/${STUB}/warmup`,
  ])('%s starts a container and puts no task', async (path) => {
    const answer = await call(path);
    expect([answer.status, answer.text]).toEqual([200, '']);
    expect([warmed, tasks.calls.length]).toEqual([1, 0]);
    expect((await call(path, '{}', '')).status).toBe(401);
    expect((await call(path, '{}', 'w', 'GET')).status).toBe(405);
    target = aTarget({ active: false });
    expect((await call(path)).text).toBe('{"message":"Deployment is not active"}');
    expect(warmed).toBe(1);
  });

  test('works by host too', async () => {
    expect((await call('/warmup', '', 'w', 'POST', 'hello-1a2b3c4-v1.localhost')).status).toBe(200);
    expect(warmed).toBe(1);
  });
});

describe('where the end of a task is told', () => {
  test.each([
    ['among the inputs', '/endpoint/hello', '{"callback_url":"https://a.example/"}'],
    ['among the keywords', '/endpoint/hello', '{"kwargs":{"callback_url":"https://a.example/"},"callback_url":1}'],
    ['in the query', '/endpoint/hello?callback_url=https://a.example/', '{"callback_url":"https://b.example/"}'],
  ])('is an input %s, and stays one', async (_, path, body) => {
    expect((await call(path, body)).status).toBe(200);
    expect(tasks.calls).toEqual([expect.objectContaining({ input: body, callbackUrl: 'https://a.example/' })]);
  });

  test.each(['{}', '{"callback_url":null}', '{"args":["https://a.example/"]}'])('is nowhere with %s', async (body) => {
    expect((await call('/endpoint/hello', body)).status).toBe(200);
    expect(tasks.calls).toEqual([{ input: body }]);
  });

  test.each([
    ['{"callback_url":"http://10.0.0.1/"}', 'callback_url must be better'],
    ['{"callback_url":""}', 'callback_url must be better'],
    ['{"callback_url":["https://a.example/"]}', 'callback_url must be a text'],
  ])('is refused by its name with %s, and nothing runs', async (body, error) => {
    expect(await call('/endpoint/hello', body)).toMatchObject({ status: 400, text: JSON.stringify({ error }) });
    expect(tasks.calls).toEqual([]);
  });

  test('is for the workspace to say: not for anybody who may call a public handler', async () => {
    target = aTarget({ authorized: false });
    const path = `/endpoint/public/${STUB}`;
    const error = 'callback_url needs a token of the workspace';
    for (const token of ['', 'other']) {
      const body = '{"callback_url":"https://a.example/"}';
      expect(await call(path, body, token)).toMatchObject({ status: 401, text: JSON.stringify({ error }) });
    }
    expect(tasks.calls).toEqual([]);
    expect((await call(path, '{}', '')).status).toBe(200);
  });
});

describe('an Idempotency-Key', () => {
  const withKey = async (path: string, key: string | string[], body = '{}', token = 'w', host = 'localhost:1994') => {
    tasks.calls = [];
    const answer = await call(path, body, token, 'POST', host, { 'idempotency-key': key });
    return { ...answer, sent: tasks.calls[0]?.idempotency };
  };

  test('goes with the call, plain or as a quoted string, up to 255 characters', async () => {
    for (const [header, key] of [
      ['k-1', 'k-1'],
      ['"8e03978e-40d5-43dd-bc93-6894a57f9324"', '8e03978e-40d5-43dd-bc93-6894a57f9324'],
      ['x'.repeat(255), 'x'.repeat(255)],
    ] as const) {
      const { status, sent } = await withKey('/endpoint/hello', header);
      expect([status, sent?.key]).toEqual([200, key]);
    }
    expect((await call('/endpoint/hello')).status).toBe(200);
    expect(tasks.calls.at(-1)).not.toHaveProperty('idempotency');
  });

  test.for(['', '""', 'two words', 'é', 'x'.repeat(256), ['a', 'b']])('that reads %j is refused', async (header) => {
    const { status, text, sent } = await withKey('/endpoint/hello', header);
    expect([status, sent]).toEqual([400, undefined]);
    expect(JSON.parse(text)).toEqual({
      error: expect.stringContaining('Idempotency-Key must have 1 to 255'),
      code: 'invalid_idempotency_key',
    });
  });

  test('stands for the bytes of the body and the query parameters, in any order and without the token', async () => {
    const fingerprint = async (path: string, body = '{"a":1}') =>
      (await withKey(path, 'k', body)).sent?.fingerprint ?? path;
    const same = await fingerprint('/endpoint/hello?a=1&b=2');
    expect(await fingerprint('/endpoint/hello/v1?b=2&a=1&auth_token=w')).toBe(same);
    const others = [
      await fingerprint('/endpoint/hello?a=1&b=2', '{"a": 1}'),
      await fingerprint('/endpoint/hello?a=1'),
      await fingerprint('/endpoint/hello?a=1&a=1&b=2'),
      await fingerprint('/endpoint/hello'),
    ];
    expect(new Set([same, ...others]).size).toBe(5);
  });

  test('says whether its call names a version, by path and by host, and who calls', async () => {
    target = aTarget({ authorized: false });
    for (const [path, asksNewest, host] of [
      ['/endpoint/hello', true, undefined],
      ['/endpoint/hello/latest', true, undefined],
      ['/endpoint/hello/v1', false, undefined],
      [`/endpoint/id/${STUB}`, true, undefined],
      ['/', true, 'hello-1a2b3c4.localhost'],
      ['/', false, 'hello-1a2b3c4-v1.localhost'],
    ] as const) {
      expect((await withKey(path, 'k', '{}', 'w', host)).sent, path).toMatchObject({ asksNewest, isOwn: true });
    }
    expect((await withKey(`/endpoint/public/${STUB}`, 'k', '{}', '')).sent).toMatchObject({
      isOwn: false,
      callerScope: 'anybody/',
    });
    expect((await withKey(`/endpoint/public/${STUB}`, 'k', '{}', 'other')).sent).toMatchObject({
      isOwn: false,
      callerScope: 'other/',
    });
  });

  test('of an earlier call gets its answer with a header that says so; what is refused has a code', async () => {
    const earlier = {
      ...accepted(Promise.resolve({ status: 'COMPLETE', reason: 'completed', body: '1' } as const)),
      isReplay: true,
    };
    tasks.answer = () => Promise.resolve(earlier as Submission);
    expect((await withKey('/endpoint/hello', 'k')).headers['idempotency-replayed']).toBe('true');
    for (const [submission, status, code] of [
      [{ kind: 'key_reused' }, 422, 'idempotency_key_reused'],
      [{ kind: 'keys_exhausted', most: 10_000 }, 429, 'too_many_idempotency_keys'],
    ] as const) {
      tasks.answer = () => Promise.resolve(submission);
      const refused = await withKey('/endpoint/hello', 'k');
      expect([refused.status, (JSON.parse(refused.text) as { code: string }).code]).toEqual([status, code]);
    }
    tasks.answer = () => Promise.resolve({ kind: 'unavailable', reason: 'key_in_doubt', retryAfterSeconds: 5 });
    expect((await withKey('/endpoint/hello', 'k')).headers['retry-after']).toBe('5');
  });
});
