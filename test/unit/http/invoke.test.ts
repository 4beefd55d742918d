// Calls of deployments by their path, and what is told of their end.
import { connect } from 'node:net';
import { describe, expect, test } from 'vitest';
import { DEPLOYMENT_STOPPED, LOST, WAIT_LIMIT } from '../../../scheduler/domain/endings.ts';
import type { Submission } from '../../../scheduler/tasks/admission/calls.ts';
import { inputOf } from '#scheduler/api/http/invoke/input.ts';
import { accepted, aTarget, call, done, OWNER, playCalls, played, STUB, tasks } from './invoke-fixture.ts';

playCalls();

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
      played.target = aTarget({ kind });
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
    played.target = aTarget({ authorized: false });
    expect((await call(`/endpoint/public/${STUB}`, '{}', '')).status).toBe(200);
    expect((await call(`/endpoint/id/${STUB}`, '{}', '')).status).toBe(200);
    expect((await call(`/endpoint/id/${STUB}`, '{}', 'other')).status).toBe(200);
  });

  test('a public deployment needs no token at its name, whatever its version is', async () => {
    played.target = aTarget({ authorized: false });
    for (const path of [`${OWNER}/hello`, `${OWNER.toUpperCase()}/hello`, `${OWNER}/hello/latest`, `${OWNER}/hello/v1`])
      expect(await call(`/endpoint/public/${path}`, '{}', '')).toMatchObject({ status: 200 });
    expect((await call(`/endpoint/public/${OWNER}/hello`, '{}', 'other')).status).toBe(200);
    for (const path of [`${OWNER}/nope`, `${OWNER}/hello/v9`, `${STUB}/hello`, 'w/hello'])
      expect(await call(`/endpoint/public/${path}`, '{}', '')).toMatchObject({ status: 401 });
    played.target = aTarget({ authorized: false, active: false });
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
    played.target = aTarget({ active: false, authorized: false });
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
  const address = await played.server.start('127.0.0.1:0');
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

describe('task queues', () => {
  test('are put to by POST alone and answer with the id of the task', async () => {
    played.target = aTarget({ kind: 'taskqueue' });
    tasks.answer = () => Promise.resolve(accepted(new Promise(() => {})));
    const host = 'hello-1a2b3c4d5e6f7081-v1.localhost';
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
    expect([played.warmed, tasks.calls.length]).toEqual([1, 0]);
    expect((await call(path, '{}', '')).status).toBe(401);
    expect((await call(path, '{}', 'w', 'GET')).status).toBe(405);
    played.target = aTarget({ active: false });
    expect((await call(path)).text).toBe('{"message":"Deployment is not active"}');
    expect(played.warmed).toBe(1);
  });

  test('works by host too', async () => {
    expect((await call('/warmup', '', 'w', 'POST', 'hello-1a2b3c4d5e6f7081-v1.localhost')).status).toBe(200);
    expect(played.warmed).toBe(1);
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
    played.target = aTarget({ authorized: false });
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
