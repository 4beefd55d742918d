import { pino } from 'pino';
import { describe, expect, test } from 'vitest';
import { StartupError } from '#shared/errors.ts';
import { CrossOrigin } from '#scheduler/api/http/cross-origin.ts';
import { createHttpServer } from '#scheduler/api/http/server.ts';

const PAGE = 'https://dash.example.org';

/** Headers of an answer that concern other origins, and its status. */
async function asked(
  origins: readonly string[],
  line: string,
  headers: Readonly<Record<string, string>>,
): Promise<Readonly<Record<string, unknown>>> {
  const [method = 'GET', url = '/'] = line.split(' ');
  const { app } = createHttpServer({
    log: pino({ level: 'silent' }),
    origins,
    register: (routes) => {
      for (const path of ['/api/v1/thing', '/asgi/app/page', '/metrics'])
        routes.get(path, (_request, reply) => reply.send('it'));
    },
  });
  const answer = await app.inject({ method: method as 'GET', url, headers });
  await app.close();
  const told = Object.entries(answer.headers).filter(([name]) => /^access-control-|^vary$/.test(name));
  return { status: answer.statusCode, ...Object.fromEntries(told) };
}

const READABLE = { 'access-control-allow-origin': PAGE, 'access-control-expose-headers': '*', vary: 'origin' };
const PREFLIGHT = {
  origin: PAGE,
  'access-control-request-method': 'PATCH',
  'access-control-request-headers': 'authorization,content-type',
};

describe('pages of other origins', () => {
  test('read answers where the operator named them, refusals too', async () => {
    expect(await asked([PAGE], 'GET /api/v1/thing', { origin: PAGE })).toEqual({ status: 200, ...READABLE });
    expect(await asked([PAGE], 'GET /api/v1/nothing?x=1', { origin: PAGE })).toEqual({ status: 404, ...READABLE });
    expect(await asked(['*'], 'GET /v1/models', { origin: 'null' })).toEqual({
      status: 404,
      'access-control-allow-origin': '*',
      'access-control-expose-headers': '*',
    });
  });

  test('are told before a call which methods and headers they may send', async () => {
    expect(await asked(['https://a.example', PAGE], 'OPTIONS /api/v1/thing', PREFLIGHT)).toEqual({
      status: 204,
      ...READABLE,
      'access-control-allow-methods': 'GET, HEAD, POST, PUT, PATCH, DELETE',
      'access-control-allow-headers': 'authorization,content-type',
      'access-control-max-age': '600',
    });
    const odd = { ...PREFLIGHT, 'access-control-request-headers': 'a: b' };
    expect(await asked([PAGE], 'OPTIONS /endpoint/app', odd)).not.toHaveProperty('access-control-allow-headers');
    // A request with that method that is no preflight is answered as without an origin.
    expect(await asked([PAGE], 'OPTIONS /api/v1/thing', { origin: PAGE })).toEqual({ status: 404, ...READABLE });
  });

  test('of origins that nobody named are told nothing', async () => {
    for (const origin of [`${PAGE}:8443`, 'http://dash.example.org', 'https://dash.example.org.evil.org', 'null']) {
      expect(await asked([PAGE], 'GET /api/v1/thing', { origin })).toEqual({ status: 200, vary: 'origin' });
      expect(await asked([PAGE], 'OPTIONS /api/v1/thing', { ...PREFLIGHT, origin })).toEqual({
        status: 404,
        vary: 'origin',
      });
    }
    expect(await asked([], 'GET /api/v1/thing', { origin: PAGE })).toEqual({ status: 200 });
    expect(await asked([], 'OPTIONS /api/v1/thing', PREFLIGHT)).toEqual({ status: 404 });
  });

  test('of applications are the applications own, and those of operators are nobody’s', async () => {
    for (const path of ['/asgi/app/page', '/metrics']) {
      expect(await asked(['*'], `GET ${path}`, { origin: PAGE })).toEqual({ status: 200 });
      expect(await asked(['*'], `OPTIONS ${path}`, PREFLIGHT)).toEqual({ status: 404 });
    }
  });

  test.each(['dash.example.org', 'https://dash.example.org/', 'https://Dash.example.org', 'ftp://a.b', 'null', '**'])(
    'cannot be named %j',
    (origin) => {
      expect(() => new CrossOrigin([PAGE, origin])).toThrow(StartupError);
      expect(() => new CrossOrigin([PAGE, origin])).toThrow(`LONGSHORE_HTTP_ORIGINS: ${JSON.stringify(origin)}`);
    },
  );
});
