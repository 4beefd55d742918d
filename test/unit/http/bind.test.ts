import { pino } from 'pino';
import { Type } from 'typebox';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { Flag, Int64, Text, Uint32 } from '#shared/api/fields.ts';
import type { TokenId, WorkspaceId } from '#shared/domain/ids.ts';
import { AppError } from '#shared/errors.ts';
import { bindOperations, GATEWAY_BASE } from '../../../scheduler/api/http/bind.ts';
import { originReader } from '../../../scheduler/api/http/origin.ts';
import { createHttpServer } from '../../../scheduler/api/http/server.ts';
import type { HttpServer } from '../../../scheduler/api/http/server.ts';
import type { Caller, TokenType } from '../../../scheduler/workspaces/identity/caller.ts';
import { operation } from '../../../scheduler/api/operations/operation.ts';
import type { Scope } from '../../../scheduler/api/operations/operation.ts';

const log = pino({ level: 'silent' });
const aCaller = (type: TokenType): Caller => ({
  workspaceId: 'w' as WorkspaceId,
  workspaceDbId: 1,
  tokenId: 't' as TokenId,
  type,
  isAdmin: type === 'admin',
});
const Request = Type.Object({ id: Text(), containers: Uint32(), cpu: Int64(), note: Text() });
const Response = Type.Object({ ok: Flag(), errMsg: Text(), seen: Text(), size: Int64() });

const scale = (scope: Scope, containers = false) =>
  operation({
    name: `Scale_${scope}${containers ? '_containers' : ''}`,
    http: `POST /${scope}${containers ? '-containers' : ''}/{id}/scale`,
    scope,
    containers,
    request: Request,
    response: Response,
    handle: async (caller, request) => {
      if (request.note === 'explode') throw new Error('inner detail');
      if (request.note === 'refuse') throw new AppError('machine_not_found', 'machine m does not exist any more');
      if (request.note === 'store') throw new AppError('database_unavailable', 'the database does not answer');
      if (request.note === 'slow') await new Promise(() => undefined);
      return { ok: true, errMsg: '', seen: JSON.stringify([caller?.type ?? null, request]), size: request.cpu };
    },
  });
const bare = operation({
  name: 'Bare',
  http: 'GET /bare',
  scope: 'full',
  request: Type.Object({}),
  response: Type.Object({ ok: Flag(), deploymentId: Text() }),
  handle: () => ({ ok: true, deploymentId: 'd' }),
});
const get = operation({
  name: 'Get',
  http: 'GET /things/{id}',
  scope: 'any',
  request: Type.Object({ id: Text(), limit: Uint32() }),
  response: Type.Object({ ok: Flag(), seen: Text() }),
  handle: (_caller, request) => ({ ok: true, seen: JSON.stringify(request) }),
});

let server: HttpServer;
beforeEach(() => {
  server = createHttpServer({
    log,
    register: (app, state) => {
      void app.register(
        (scope, _options, done) => {
          bindOperations(
            scope,
            [scale('any'), scale('any', true), scale('full'), scale('admin'), scale('open'), bare, get],
            {
              authenticator: { authenticate: (token) => (token === 'bad' ? null : aCaller(token as TokenType)) },
              originOf: originReader({
                externalUrl: null,
                listenUrl: state.listenUrl,
                scheme: 'http',
                trustsLoopback: true,
              }),
              log,
            },
          );
          done();
        },
        { prefix: GATEWAY_BASE },
      );
    },
  });
});
afterEach(() => server.app.close());

interface Sent {
  readonly token?: string;
  readonly method?: 'GET' | 'POST' | 'PUT' | 'DELETE';
  readonly headers?: Record<string, string>;
}
async function call(path: string, body?: unknown, { token = 'workspace', method = 'POST', headers = {} }: Sent = {}) {
  const answer = await server.app.inject({
    method,
    url: `${GATEWAY_BASE}${path}`,
    headers: { ...(token === '' ? {} : { authorization: `Bearer ${token}` }), ...headers },
    ...(body === undefined
      ? {}
      : { payload: typeof body === 'string' || Buffer.isBuffer(body) ? body : JSON.stringify(body) }),
  });
  return {
    status: answer.statusCode,
    headers: answer.headers,
    body: JSON.parse(answer.body) as Record<string, unknown>,
  };
}
const seen = (answer: { body: Record<string, unknown> }): unknown => JSON.parse(String(answer.body['seen']));

describe('a request', () => {
  test('the path wins over the body, the body over the query', async () => {
    const answer = await call('/any/path/scale?containers=1&note=query&id=query', { id: 'body', containers: 2 });
    expect(seen(answer)).toEqual(['workspace', { id: 'path', containers: 2, cpu: 0, note: 'query' }]);
    expect(answer.status).toBe(200);
    expect(answer.headers['x-request-id']).toMatch(/.+/);
  });

  test('an empty body is {}, whatever the content type says of it', async () => {
    const json = { 'content-type': 'application/json' };
    for (const body of [undefined, '', '  '])
      expect((await call('/any/a/scale', body, { headers: json })).status).toBe(200);
    expect((await call('/things/a', undefined, { method: 'GET', headers: json })).status).toBe(200);
  });

  test('JSON is read under any content type', async () => {
    for (const type of ['text/plain', 'application/x-www-form-urlencoded', 'application/json; charset=utf-8']) {
      const answer = await call('/any/a/scale', { containers: 7 }, { headers: { 'content-type': type } });
      expect(seen(answer)).toMatchObject(['workspace', { containers: 7 }]);
    }
  });

  test('a body on GET has no effect', async () => {
    const answer = await call('/things/a?limit=3', { limit: 9, id: 'b' }, { method: 'GET' });
    expect(seen(answer)).toEqual({ id: 'a', limit: 3 });
  });

  test('a trailing slash makes no difference', async () => {
    expect((await call('/any/a/scale/', {})).status).toBe(200);
  });

  test('int64 is answered as digits in a string', async () => {
    expect((await call('/any/a/scale', { cpu: '1500' })).body['size']).toBe('1500');
  });
});

describe('a request that cannot be read', () => {
  test.each([
    ['{bad', /^the body is not valid JSON: byte 1 is b, where a name in double quotes, or \} has to come$/],
    // The text of the body is not told again: it may be secret.
    ['{"value":"s3cret" "b":1}', /^the body is not valid JSON: byte 18 is ", where a comma or \} has to come$/],
    ['[]', /JSON object/],
    ['"text"', /JSON object/],
    [Buffer.from([0x7b, 0xff, 0x7d]), /^the body is not valid JSON: byte 1 begins no character of UTF-8$/],
    ['{"containers":"many"}', /containers/],
    ['{"containers":1.5}', /containers/],
  ])('%s is 400 code 3', async (body, text) => {
    const answer = await call('/any/a/scale', body);
    expect([answer.status, answer.body['code'], answer.body['details']]).toEqual([400, 3, []]);
    expect(answer.body['message']).toMatch(text);
  });

  test('is not read at all without a good token', async () => {
    for (const token of ['', 'bad']) {
      const answer = await call('/any/a/scale', '{bad', { token });
      expect([answer.status, answer.body['code']]).toEqual([401, 16]);
    }
  });

  test('a repeated or wrong query parameter is 400 code 3', async () => {
    for (const query of ['limit=x', 'limit=1&limit=2']) {
      const answer = await call(`/things/a?${query}`, undefined, { method: 'GET' });
      expect([answer.status, answer.body['code']]).toEqual([400, 3]);
      expect(answer.body['message']).toContain('parsing field "limit"');
    }
  });

  test('a body above 16 MiB is 429 code 8', async () => {
    const answer = await call('/any/a/scale', `{"note":"${'x'.repeat(16 * 1024 * 1024)}"}`);
    expect([answer.status, answer.body['code']]).toEqual([429, 8]);
  });

  test('a bad Grpc-Timeout is 400, a short one ends a slow handler with code 4', async () => {
    const bad = await call('/any/a/scale', {}, { headers: { 'grpc-timeout': 'soon' } });
    expect([bad.status, bad.body['code']]).toEqual([400, 3]);
    const slow = await call('/any/a/scale', { note: 'slow' }, { headers: { 'grpc-timeout': '20m' } });
    expect([slow.status, slow.body['code']]).toEqual([504, 4]);
  });
});

describe('who may call', () => {
  test('no token, or one nobody knows, is 401 code 16 with the header', async () => {
    for (const token of ['', 'bad']) {
      const answer = await call('/any/a/scale', {}, { token });
      expect([answer.status, answer.body]).toEqual([
        401,
        { code: 16, message: 'invalid or missing token', details: [] },
      ]);
      expect(answer.headers['www-authenticate']).toBe('invalid or missing token');
    }
  });

  test('a bare token in the header passes too', async () => {
    expect((await call('/any/a/scale', {}, { token: '', headers: { authorization: 'workspace' } })).status).toBe(200);
  });

  test('an open operation is answered without a token', async () => {
    expect(seen(await call('/open/a/scale', {}, { token: 'bad' }))).toMatchObject([null, {}]);
  });

  test.each([
    ['workspace', 'full', true],
    ['workspace_primary', 'full', true],
    ['workspace_restricted', 'any', true],
    ['workspace_restricted', 'full', false],
    ['workspace', 'admin', false],
    ['admin', 'admin', true],
    ['container', 'any', false],
    ['container', 'any-containers', true],
    ['container', 'full', false],
    ['container', 'admin', false],
  ])('a %s token on an operation for %s: %s', async (token, path, allowed) => {
    const answer = await call(`/${path}/a/scale`, {}, { token });
    expect(answer.status).toBe(200);
    if (allowed) expect(answer.body['ok']).toBe(true);
    else expect(answer.body).toEqual({ ok: false, errMsg: 'Unauthorized Access', seen: '', size: '0' });
  });

  test('an answer without a text field is refused with ok false alone', async () => {
    const answer = await call('/bare', undefined, { method: 'GET', token: 'workspace_restricted' });
    expect(answer.body).toEqual({ ok: false, deploymentId: '' });
  });
});

describe('what goes wrong inside', () => {
  test('a refusal that a service throws is 200 with ok false and its sentence', async () => {
    const answer = await call('/any/a/scale', { note: 'refuse' });
    expect([answer.status, answer.body['ok'], answer.body['errMsg']]).toEqual([
      200,
      false,
      'machine m does not exist any more',
    ]);
  });

  test('a store that is away is 503 code 14', async () => {
    const answer = await call('/any/a/scale', { note: 'store' });
    expect([answer.status, answer.body['code']]).toEqual([503, 14]);
  });

  test('anything else is 500 code 13 without its text', async () => {
    const answer = await call('/any/a/scale', { note: 'explode' });
    expect([answer.status, answer.body['code']]).toEqual([500, 13]);
    expect(JSON.stringify(answer.body)).not.toContain('inner detail');
  });

  test('an unknown path is 404 code 5, a known one with another method 501 code 12', async () => {
    expect((await call('/nothing', {})).body).toEqual({ code: 5, message: 'Not Found', details: [] });
    const wrong = await call('/any/a/scale', undefined, { method: 'GET' });
    expect([wrong.status, wrong.body['code'], wrong.body['message']]).toEqual([501, 12, 'Method Not Allowed']);
    expect((await call('/things/a', {}, { method: 'DELETE' })).status).toBe(501);
  });
});
