// Streamed calls through a whole installation: an ASGI application in a container, HTTP through scheduler, agent and
// runner. Requests are written by hand, so that each byte is known. Their ends: stream-ends.test.ts.
import { createHash, randomBytes } from 'node:crypto';
import { describe, expect } from 'vitest';
import { jsonOf } from '../helpers/platform.ts';
import type { RawAnswer } from '../helpers/raw-http.ts';
import { waitFor } from '../helpers/services.ts';
import { stateOf, test } from '../helpers/streamed-web.ts';

interface Case {
  readonly name: string;
  readonly method?: string;
  readonly path?: string;
  readonly version?: string;
  readonly headers?: readonly string[];
  readonly body?: string | Buffer;
  readonly check: (answer: RawAnswer, seen: Seen) => void;
}

interface Seen {
  readonly method: string;
  readonly path: string;
  readonly raw_path: string;
  readonly root_path: string;
  readonly query: string;
  readonly scheme: string;
  readonly http_version: string;
  readonly headers: readonly (readonly [string, string])[];
  readonly body: string;
}

const headerOf = (seen: Seen, name: string): string[] =>
  seen.headers.filter(([one]) => one === name).map(([, value]) => value);

const passed = (name: string, rest: Omit<Case, 'name'>): Case => ({ name, path: '/request', ...rest });
const chunks = (...pieces: readonly string[]): string =>
  [...pieces, ''].map((piece) => `${Buffer.byteLength(piece).toString(16)}\r\n${piece}\r\n`).join('');

const METHODS = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'PROPFIND', 'REPORT', 'PURGE', 'QUERY', 'MKCOL'];

const CASES: readonly Case[] = [
  ...METHODS.map((method) =>
    passed(`method ${method}`, { method, check: (_answer, seen) => expect(seen.method).toBe(method) }),
  ),
  passed('HEAD has the headers, and no body', {
    method: 'HEAD',
    check: (answer) => {
      expect(answer.status).toBe(200);
      expect(Number(answer.headers['content-length'])).toBeGreaterThan(10);
    },
  }),
  ...['GET', 'DELETE', 'OPTIONS'].map((method) =>
    passed(`a body with ${method}`, {
      method,
      headers: ['Content-Length: 5'],
      body: 'hello',
      check: (_answer, seen) => expect(seen.body).toBe('hello'),
    }),
  ),
  passed('a query, as it was sent', {
    path: '/request?a=1&a=2&b=%20x+y&c&%41=%zz',
    check: (_answer, seen) => expect(seen.query).toBe('a=1&a=2&b=%20x+y&c&%41=%zz'),
  }),
  passed('a token in the query is cut out', {
    path: '/request?a=1&auth_token=TOKEN&b=2',
    headers: ['no-authorization'],
    check: (_answer, seen) => {
      expect(seen.query).toBe('a=1&b=2');
      expect(JSON.stringify(seen)).not.toContain('eyJ');
    },
  }),
  passed('a path with escapes', {
    path: '/request/a%20b/%C3%A9/c%2Fd',
    check: (_answer, seen) => {
      expect(seen.path).toMatch(/\/request\/a b\/é\/c\/d$/);
      expect(seen.raw_path).toMatch(/\/request\/a%20b\/%C3%A9\/c%2Fd$/);
    },
  }),
  passed('a path with dots and doubled slashes', {
    path: '/request//a/../b/./c',
    check: (_answer, seen) => expect(seen.raw_path).toMatch(/\/request\/\/a\/\.\.\/b\/\.\/c$/),
  }),
  passed('a trailing slash', {
    path: '/request/',
    check: (_answer, seen) => expect(seen.path).toMatch(/\/request\/$/),
  }),
  passed('the root path names the deployment', {
    check: (_answer, seen) => expect(seen.path).toBe(`${seen.root_path}/request`),
  }),
  passed('a long path', {
    path: `/request/${'x'.repeat(4000)}`,
    check: (_answer, seen) => expect(seen.path.length).toBeGreaterThan(4000),
  }),
  passed('repeated headers', {
    headers: ['X-A: 1', 'X-A: 2', 'x-a: 3'],
    check: (_answer, seen) => expect(headerOf(seen, 'x-a')).toEqual(['1', '2', '3']),
  }),
  passed('an empty header', {
    headers: ['X-Empty:'],
    check: (_answer, seen) => expect(headerOf(seen, 'x-empty')).toEqual(['']),
  }),
  passed('a header with bytes above ASCII', {
    headers: ['X-Latin: caf\xe9'],
    check: (_answer, seen) => expect(headerOf(seen, 'x-latin')).toEqual(['caf\xe9']),
  }),
  passed('a large header', {
    headers: [`X-Large: ${'y'.repeat(8000)}`],
    check: (_answer, seen) => expect(headerOf(seen, 'x-large')[0]?.length).toBe(8000),
  }),
  passed('cookies', {
    headers: ['Cookie: a=1; longshore_token=secret; b=2'],
    check: (_answer, seen) => expect(headerOf(seen, 'cookie')).toEqual(['a=1; b=2']),
  }),
  passed('the host as it was sent', {
    check: (_answer, seen) => expect(headerOf(seen, 'host')).toEqual(['web.test']),
  }),
  passed('the platform’s token is not passed on', {
    check: (_answer, seen) => expect(headerOf(seen, 'authorization')).toEqual([]),
  }),
  ...[
    'Connection: keep-alive, X-Mine',
    'Keep-Alive: timeout=5',
    'Proxy-Connection: keep-alive',
    'TE: trailers',
    'Proxy-Authorization: Basic x',
  ].map((line) =>
    passed(`${line.split(':')[0]} belongs to the connection`, {
      headers: [line, 'X-Mine: 1'],
      check: (_answer, seen) => {
        const [name = ''] = line.toLowerCase().split(':');
        expect(headerOf(seen, name)).toEqual([]);
        if (line.includes('X-Mine')) expect(headerOf(seen, 'x-mine')).toEqual([]);
      },
    }),
  ),
  passed('an upgrade to another protocol is not taken up', {
    headers: ['Connection: Upgrade, HTTP2-Settings', 'Upgrade: h2c', 'HTTP2-Settings: AAMAAABkAAQAAP__'],
    check: (answer, seen) => {
      expect(answer.status).toBe(200);
      expect(headerOf(seen, 'upgrade')).toEqual([]);
      expect(headerOf(seen, 'http2-settings')).toEqual([]);
    },
  }),
  passed('who asked is told anew', {
    headers: ['X-Forwarded-For: 1.2.3.4', 'X-Forwarded-Proto: https', 'Forwarded: for=1.2.3.4', 'X-Real-Ip: 1.2.3.4'],
    check: (_answer, seen) => {
      expect(headerOf(seen, 'x-forwarded-for')).toEqual(['127.0.0.1']);
      expect(headerOf(seen, 'x-forwarded-proto')).toEqual(['http']);
      expect(headerOf(seen, 'x-forwarded-host')).toEqual(['web.test']);
      expect(headerOf(seen, 'forwarded')).toEqual([]);
      expect(headerOf(seen, 'x-real-ip')).toEqual([]);
    },
  }),
  passed('a body with its length', {
    method: 'POST',
    headers: ['Content-Length: 11'],
    body: 'hello\0world',
    check: (_answer, seen) => {
      expect(seen.body).toBe('hello\0world');
      expect(headerOf(seen, 'content-length')).toEqual(['11']);
    },
  }),
  passed('an empty body with its length', {
    method: 'POST',
    headers: ['Content-Length: 0'],
    check: (_answer, seen) => expect(seen.body).toBe(''),
  }),
  passed('a body in chunks', {
    method: 'POST',
    headers: ['Transfer-Encoding: chunked'],
    body: chunks('he', 'l', 'lo'),
    check: (_answer, seen) => {
      expect(seen.body).toBe('hello');
      expect(headerOf(seen, 'transfer-encoding')).toEqual([]);
    },
  }),
  passed('no chunk at all', {
    method: 'POST',
    headers: ['Transfer-Encoding: chunked'],
    body: chunks(),
    check: (_answer, seen) => expect(seen.body).toBe(''),
  }),
  passed('chunks with extensions and trailers', {
    method: 'POST',
    headers: ['Transfer-Encoding: chunked', 'Trailer: X-T'],
    body: '5;a=b\r\nhello\r\n0\r\nX-T: 1\r\n\r\n',
    check: (_answer, seen) => expect(seen.body).toBe('hello'),
  }),
  passed('chunk sizes in capitals and with zeros', {
    method: 'POST',
    headers: ['Transfer-Encoding: CHUNKED'],
    body: `000A\r\n0123456789\r\n0\r\n\r\n`,
    check: (_answer, seen) => expect(seen.body).toBe('0123456789'),
  }),
  passed('any content type', {
    method: 'POST',
    headers: ['Content-Type: application/x-nothing; weird', 'Content-Length: 2'],
    body: '{}',
    check: (_answer, seen) => expect(headerOf(seen, 'content-type')).toEqual(['application/x-nothing; weird']),
  }),
  passed('a content type that is none', {
    method: 'POST',
    headers: ['Content-Type: ;;', 'Content-Length: 2'],
    body: '{}',
    check: (_answer, seen) => expect(headerOf(seen, 'content-type')).toEqual([';;']),
  }),
  passed('Expect: 100-continue', {
    method: 'POST',
    headers: ['Expect: 100-continue', 'Content-Length: 2'],
    body: 'ok',
    check: (answer, seen) => {
      expect(answer.informational).toEqual([100]);
      expect(seen.body).toBe('ok');
      expect(headerOf(seen, 'expect')).toEqual([]);
    },
  }),
  {
    name: 'Expect: anything else',
    path: '/request',
    headers: ['Expect: 200-ok'],
    check: ({ status }) => expect(status).toBe(417),
  },
  passed('HTTP/1.0', {
    version: '1.0',
    check: (answer, seen) => {
      expect(answer.status).toBe(200);
      expect(seen.http_version).toBe('1.0');
    },
  }),
  {
    name: 'HTTP/1.0 gets a streamed answer without chunks',
    path: '/download?size=200000',
    version: '1.0',
    check: (answer) => {
      expect(answer.headers['transfer-encoding']).toBeUndefined();
      expect(answer.body.length).toBe(200_000);
    },
  },
  {
    name: 'an answer without a length comes in chunks',
    path: '/download?size=200000',
    check: (answer) => {
      expect(answer.headers['transfer-encoding']).toBe('chunked');
      expect(answer.body.length).toBe(200_000);
    },
  },
  {
    name: 'an answer with a length keeps it',
    path: '/download?size=200000&length=1',
    check: (answer) => {
      expect(answer.headers['content-length']).toBe('200000');
      expect(answer.body.length).toBe(200_000);
    },
  },
  ...[200, 201, 202, 206, 301, 302, 304, 307, 400, 404, 418, 429, 500, 503, 599].map((status): Case => ({
    name: `status ${status}`,
    path: `/status?${status}`,
    check: (answer) => {
      expect(answer.status).toBe(status);
      expect(answer.headers['x-kept']).toBe('yes');
      expect(answer.headers['x-hop']).toBeUndefined();
      expect(answer.body.toString()).toBe(status === 304 ? '' : 'body');
    },
  })),
  {
    name: 'status 204 has no body',
    path: '/status?204',
    check: (answer) => {
      expect(answer.status).toBe(204);
      expect(answer.headers['transfer-encoding']).toBeUndefined();
    },
  },
  {
    name: 'status 426 names the protocol',
    path: '/status?426',
    check: ({ status, headers }) => {
      expect(status).toBe(426);
      expect(headers).toMatchObject({ upgrade: 'websocket', connection: 'upgrade' });
    },
  },
  { name: 'a status that is none', path: '/status?99', check: ({ status }) => expect(status).toBe(500) },
  {
    name: 'repeated headers of an answer',
    path: '/cookies',
    check: (answer) =>
      expect(answer.lists.get('set-cookie')).toEqual([
        expect.stringMatching(/^a=1; Path=\/asgi\/web(?:\/|$)/),
        expect.stringMatching(/^b=2; Path=\/asgi\/web(?:\/|$)/),
      ]),
  },
  {
    name: 'trailers of an answer',
    path: '/trailers',
    headers: ['TE: trailers'],
    check: (answer) => {
      expect(answer.body.toString()).toBe('with trailers');
      expect(answer.trailers).toEqual({ 'x-sum': '42' });
    },
  },
  {
    name: 'an answer shorter than announced is cut',
    path: '/short',
    check: (answer) => expect(answer.isWhole).toBe(false),
  },
  {
    name: 'an exception before the answer',
    path: '/fail',
    check: (answer) => {
      expect(answer.status).toBe(500);
      expect(JSON.parse(answer.body.toString())).toEqual({ error: 'ValueError: before the response' });
    },
  },
  {
    name: 'an exception within the answer cuts it',
    path: '/fail-late',
    check: (answer) => {
      expect(answer.status).toBe(200);
      expect(answer.isWhole).toBe(false);
    },
  },
  {
    name: 'an early answer to a body that goes on',
    path: '/early',
    method: 'POST',
    headers: ['Content-Length: 100000'],
    body: 'x'.repeat(1000),
    check: (answer) => expect(answer.status).toBe(413),
  },
  {
    name: 'ids of request and task',
    path: '/',
    check: ({ headers }) => {
      expect(headers['x-task-id']).toMatch(/^[0-9a-f-]{36}$/);
      expect(headers['x-request-id']).toBeTruthy();
    },
  },
  { name: 'another path', path: '/nothing/here', check: ({ status }) => expect(status).toBe(404) },
];

/** Requests that a proxy must not pass on, since others may read them differently. */
const MALFORMED: readonly (readonly [name: string, lines: readonly string[], body: string])[] = [
  ['both lengths', ['Content-Length: 5', 'Transfer-Encoding: chunked'], '0\r\n\r\n'],
  ['two different lengths', ['Content-Length: 5', 'Content-Length: 6'], 'hello'],
  ['a list of lengths', ['Content-Length: 5, 6'], 'hello'],
  ['a length that is no number', ['Content-Length: 5x'], 'hello'],
  ['a negative length', ['Content-Length: -5'], 'hello'],
  ['a length with a sign', ['Content-Length: +5'], 'hello'],
  ['a chunk size that is none', ['Transfer-Encoding: chunked'], 'zz\r\nhello\r\n0\r\n\r\n'],
  ['a chunk size with a prefix', ['Transfer-Encoding: chunked'], '0x5\r\nhello\r\n0\r\n\r\n'],
  ['a negative chunk size', ['Transfer-Encoding: chunked'], '-5\r\nhello\r\n0\r\n\r\n'],
  ['a chunk size beyond all bounds', ['Transfer-Encoding: chunked'], 'ffffffffffffffffff\r\nhello\r\n0\r\n\r\n'],
  ['a chunk longer than its size', ['Transfer-Encoding: chunked'], '3\r\nhello\r\n0\r\n\r\n'],
  ['chunked twice', ['Transfer-Encoding: chunked, chunked'], '0\r\n\r\n'],
  ['chunked that is not the last', ['Transfer-Encoding: chunked, identity'], '0\r\n\r\n'],
  ['an encoding that looks like chunked', ['Transfer-Encoding: xchunked'], '0\r\n\r\n'],
  ['a folded header', ['X-Folded: a\r\n b'], ''],
  ['a space before the colon', ['X-Spaced : 1'], ''],
  ['a name with a space', ['X Spaced: 1'], ''],
  ['a line without a colon', ['nothing'], ''],
  ['a null byte in a header', ['X-Null: a\0b'], ''],
  ['a bare carriage return in a header', ['X-Cr: a\rb'], ''],
];

describe('an ASGI application', () => {
  test.for(CASES)(
    '$name',
    async ({ method = 'GET', path = '/', version = '1.1', headers = [], body = '', check }, { platform, web, raw }) => {
      const connection = await raw();
      const authorization = headers.includes('no-authorization') ? [] : [`Authorization: Bearer ${platform.token}`];
      const lines = [
        `${method} ${web.path}${path.replace('TOKEN', platform.token)} HTTP/${version}`,
        'Host: web.test',
        ...authorization,
        ...headers.filter((line) => line !== 'no-authorization'),
        '',
        '',
      ];
      connection.send(Buffer.from(lines.join('\r\n'), 'latin1'));
      if (headers.some((line) => line.startsWith('Expect: 100')))
        await connection.until((bytes) => bytes.includes('100'));
      connection.send(body);
      const answer = await connection.answer(method);
      const isSeen = path.startsWith('/request') && method !== 'HEAD' && answer.status === 200;
      check(answer, (isSeen ? JSON.parse(answer.body.toString()) : {}) as Seen);
    },
  );

  test.for(MALFORMED)('refuses %s', async ([, headers, body], { platform, web, raw }) => {
    const before = (await stateOf(platform, web)).seen['calls'] ?? 0;
    const connection = await raw();
    const authorization = `Authorization: Bearer ${platform.token}`;
    const smuggled = `GET ${web.path}/ HTTP/1.1\r\nHost: web.test\r\n${authorization}\r\n\r\n`;
    const head = [`POST ${web.path}/request HTTP/1.1`, 'Host: web.test', authorization, ...headers, '', ''];
    connection.send(Buffer.from(head.join('\r\n') + body + smuggled, 'latin1'));
    await connection.until(() => false);
    // Either the head is refused at once, or the body turns out to be bad: no answer of the application is whole.
    const text = connection.received.toString('latin1');
    expect(text === '' || /^HTTP\/1\.1 (400|500|501|502)/.test(text), text.slice(0, 200)).toBe(true);
    expect(text).not.toContain('"hello"');
    const after = (await stateOf(platform, web)).seen['calls'] ?? 0;
    expect(after - before).toBeLessThanOrEqual(2);
  });
});

describe('who may call', () => {
  test('each form asks for a token of its workspace', async ({ platform, web }) => {
    const theirs = jsonOf<{ token: string }>(
      await platform.call('/api/v1/workspace', { body: { name: 'theirs' } }),
    ).token;
    const { token: made } = await platform.gateway<{ token: { tokenId: string; key: string } }>('/tokens', {});
    await platform.gateway(`/tokens/${made.tokenId}/toggle`, {});
    const forms = [
      web.url,
      `${platform.url}/asgi/web`,
      `${platform.url}/asgi/web/latest`,
      `${platform.url}/asgi/web/v1`,
      `${platform.url}/asgi/id/${web.stubId}`,
    ];
    for (const form of forms) {
      for (const path of ['', '/', '/request?a=1']) {
        const url = `${form}${path}`;
        expect(await platform.call(url), url).toMatchObject({ status: 200 });
        expect(await platform.call(url, { token: '' }), url).toMatchObject({ status: 401 });
        expect(await platform.call(url, { token: 'nonsense' }), url).toMatchObject({ status: 401 });
        expect(await platform.call(url, { token: made.key }), url).toMatchObject({ status: 401 });
        const foreign = await platform.call(url, { token: theirs });
        expect([400, 401], `${url} ${foreign.text}`).toContain(foreign.status);
      }
    }
    expect(await platform.call(`/asgi/public/${web.stubId}/`, { token: '' })).toMatchObject({ status: 400 });
    expect(await platform.call('/asgi/nothing/here')).toMatchObject({
      status: 400,
      text: '{"message":"Invalid deployment"}',
    });
    expect(await platform.call('/asgi/web/v99/')).toMatchObject({ status: 400 });
    expect(await platform.call(`/endpoint/id/${web.stubId}`, { body: {} })).toMatchObject({ status: 400 });
  });

  test('a public application gets every credential itself, and no more calls than may be pending', async ({
    platform,
    raw,
  }) => {
    const open = await platform.deploy({
      app: 'web.py',
      handler: 'app',
      name: 'open',
      stubType: 'asgi/deployment',
      authorized: false,
      concurrentRequests: 10,
      maxPendingTasks: 3,
    });
    const path = `/asgi/public/${open.stubId}`;
    const seen = jsonOf<Seen>(await platform.call(`${path}/request`, { token: '' }));
    expect(seen.root_path).toBe(path);
    const named = `/asgi/public/${platform.workspaceId}/open`;
    for (const form of [named, `${named}/v1`, `${named}/latest`]) {
      // The second call knows which of the two ids a path begins with.
      for (const at of [1, 2]) {
        const byName = jsonOf<Seen>(await platform.call(`${form}/request?n=${at}%2F`, { token: '' }));
        expect(byName, form).toMatchObject({ root_path: form, path: `${form}/request` });
      }
    }
    for (let at = 0; at < 3; at += 1) {
      const connection = await raw();
      connection.send(`GET ${path}/idle HTTP/1.1\r\nHost: w\r\n\r\n`);
      await connection.until((bytes) => bytes.includes(': here'));
    }
    expect(await platform.call(`${path}/`, { token: '' })).toMatchObject({
      status: 429,
      text: '{"error":"exceeded max pending tasks: 3"}',
    });
  });

  test('a container may be wanted ahead', async ({ platform, web }) => {
    for (const path of [
      `${web.url}/warmup`,
      '/asgi/web/warmup',
      '/asgi/web/latest/warmup',
      `/asgi/id/${web.stubId}/warmup`,
    ]) {
      expect(await platform.call(path, { method: 'POST' }), path).toMatchObject({ status: 200, text: '' });
      expect(await platform.call(path), path).toMatchObject({ status: 404 });
    }
  });
});

describe('bodies', () => {
  test('of any size pass both ways, each byte as it was', async ({ platform, web }) => {
    const body = randomBytes(20 * 1024 * 1024);
    const upload = await platform.call(`${web.url}/upload`, { method: 'POST', body });
    expect(jsonOf(upload)).toEqual({ sha256: createHash('sha256').update(body).digest('hex'), size: body.length });
    const answer = await fetch(`${web.url}/echo`, {
      method: 'POST',
      body,
      headers: { authorization: `Bearer ${platform.token}` },
    });
    expect(Buffer.from(await answer.arrayBuffer()).equals(body)).toBe(true);
  });

  test('come back while they are sent', async ({ platform, web, raw }) => {
    const connection = await raw();
    const head = [`POST ${web.path}/echo HTTP/1.1`, 'Host: w', `Authorization: Bearer ${platform.token}`];
    connection.send(`${[...head, 'Transfer-Encoding: chunked', '', ''].join('\r\n')}5\r\nfirst\r\n`);
    await connection.until((bytes) => bytes.includes('first'));
    connection.send('6\r\nsecond\r\n');
    await connection.until((bytes) => bytes.includes('second'));
    connection.send('0\r\n\r\n');
    expect((await connection.answer()).body.toString()).toBe('firstsecond');
  });

  test('that nobody reads make the application wait', async ({ platform, web, raw }) => {
    const connection = await raw();
    connection.socket.pause();
    const before = (await stateOf(platform, web)).seen['sent'] ?? 0;
    connection.send(
      `GET ${web.path}/download?size=1000000000 HTTP/1.1\r\nHost: w\r\nAuthorization: Bearer ${platform.token}\r\n\r\n`,
    );
    let sent = -1;
    await waitFor(
      async () => {
        const now = ((await stateOf(platform, web)).seen['sent'] ?? 0) - before;
        const isSteady = now > 0 && now === sent;
        sent = now;
        return isSteady;
      },
      'the application sends no more',
      20_000,
    );
    expect(sent).toBeLessThan(32 * 1024 * 1024);
  });
});
