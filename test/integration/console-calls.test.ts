// Calls of deployments and models from the console's pages: the session is the credential, with the rights of its
// token, and nothing else is.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { aToken, enterConsole, sentBy } from './console-session.ts';
import { aPlatform } from './verbs-fixture.ts';
import type { Answer, Platform } from './verbs-fixture.ts';

const QUEUE = { stubType: 'taskqueue/deployment' };

let platform: Platform;
beforeAll(async () => {
  platform = await aPlatform();
  await platform.deploy('jobs', QUEUE);
});
afterAll(() => platform.stop());

type Headers = Readonly<Record<string, string>>;

const sessionOf = async (token: string): Promise<Headers> => sentBy(await enterConsole(platform, { token }));

/** A request below the passage, without a token. */
const ask = (line: string, headers: Headers, body?: unknown): Promise<Answer> =>
  platform.call(line.replace(' ', ' /console/api/calls'), body, { token: '', headers });

test('a call by a session is one of its token', async () => {
  const session = await sessionOf(platform.own.token);
  const called = await ask('POST /taskqueue/jobs', session, { n: 1 });
  expect([called.status, called.json]).toEqual([200, { task_id: expect.any(String) }]);
  const task = await platform.call(`GET /api/v1/task/${platform.own.workspaceId}/${String(called.json['task_id'])}`);
  expect(task.json).toMatchObject({ status: 'PENDING' });
  expect((await ask('POST /taskqueue/jobs/v1', session, {})).status).toBe(200);
  expect((await ask('POST /taskqueue/jobs', session, 'no json')).status).toBe(400);
});

test('without both halves, or by a token, nothing is called', async () => {
  const session = await sessionOf(platform.own.token);
  const { cookie = '', 'x-longshore-console': key = '' } = session;
  const bearer = { authorization: `Bearer ${platform.own.token}` };
  for (const headers of [{}, { cookie }, { 'x-longshore-console': key }, bearer])
    for (const line of ['POST /taskqueue/jobs', 'POST /v1/chat/completions', 'GET /v1/models'])
      expect([line, headers, (await ask(line, headers, {})).status]).toEqual([line, headers, 401]);
  const inQuery = await ask(`POST /taskqueue/jobs?auth_token=${platform.own.token}`, {}, {});
  expect([inQuery.status, inQuery.json]).toEqual([401, { error: 'Unauthorized', code: 'unauthorized' }]);
  for (const headers of [{ origin: 'http://127.0.0.1:1' }, { 'sec-fetch-site': 'same-site' }])
    expect((await ask('POST /taskqueue/jobs', { ...session, ...headers }, {})).status).toBe(403);
});

test('a session whose token was switched off, of another workspace, or without the right calls nothing', async () => {
  const gone = await aToken(platform, {});
  const session = await sessionOf(gone.key);
  await platform.call(`PATCH /api/v1/token/${platform.own.workspaceId}/${gone.id}`, { active: false });
  expect((await ask('POST /taskqueue/jobs', session, {})).status).toBe(401);
  const { stubId } = await platform.deploy('mine', QUEUE);
  const other = await sessionOf(platform.other.token);
  expect((await ask(`POST /taskqueue/id/${stubId}`, other, {})).json).toEqual({ message: 'Invalid token' });
  expect((await ask('POST /taskqueue/jobs', other, {})).status).toBe(400);
  const reader = await sessionOf((await aToken(platform, { scopes: ['read'] })).key);
  const refused = await ask('POST /taskqueue/jobs', reader, {});
  expect([refused.status, refused.json['error']]).toEqual([401, expect.stringContaining('lacks the scope invoke')]);
  expect((await ask('POST /v1/chat/completions', reader, { model: 'm', messages: [] })).status).toBe(403);
});

test('models are listed and called, with the errors of their own surface', async () => {
  const session = await sessionOf(platform.own.token);
  expect((await ask('GET /v1/models', session)).json).toEqual({ object: 'list', data: [] });
  const unknown = await ask('POST /v1/chat/completions', session, { model: 'm', messages: [] });
  expect([unknown.status, unknown.json['error']]).toMatchObject([404, { code: 'model_not_found' }]);
  expect((await ask('GET /v1/nothing', session)).status).toBe(404);
});

test('applications whose pages and headers are their own are not called there', async () => {
  const { stubId } = await platform.deploy('site', { stubType: 'asgi/deployment' });
  const session = await sessionOf(platform.own.token);
  for (const line of [
    'POST /asgi/site',
    'GET /asgi/site/',
    `GET /asgi/public/${stubId}/`,
    'POST /pod/site',
    'GET /taskqueue/jobs',
  ])
    expect([line, (await ask(line, session)).status]).toEqual([line, 404]);
});
