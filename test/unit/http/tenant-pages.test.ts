// Answers of applications, as a browser gets them: over real HTTP, with runner processes and programs that this test
// plays. test/hosts/browser-pages.test.ts shows the same in a browser.
import { afterEach, describe, expect, test } from 'vitest';
import * as ports from '../../helpers/played-ports.ts';
import { PATH, TOKEN, cleanUp, connected, playedHosts, serve, turned } from '../../helpers/played-streams.ts';

afterEach(cleanUp);
afterEach(ports.cleanUp);

const STUB = '00000000-0000-4000-8000-000000000000';
const SANDBOX =
  'content-security-policy: sandbox allow-scripts allow-forms allow-popups allow-modals allow-downloads\r\n';

type Pairs = readonly (readonly [string, string])[];

/** Sends a request as it is, and gives all that comes until the text is there. */
async function asked(address: string, lines: string, until = '\r\n\r\n'): Promise<string> {
  const { socket, text, isClosed } = connected(address);
  socket.write(lines, 'latin1');
  await turned(() => text().includes(until) || isClosed());
  return text();
}

const get = (path: string, ...lines: readonly string[]): string =>
  [
    `GET ${path} HTTP/1.1`,
    ...(lines.some((line) => /^host:/i.test(line)) ? [] : ['Host: x.test']),
    ...lines,
    '',
    '',
  ].join('\r\n');

interface How {
  readonly path?: string;
  readonly lines?: readonly string[];
  readonly status?: number;
}

/** The head of an application's answer with these headers, in lower case, as a caller gets it. */
const answered = async (headers: Pairs, how: How = {}): Promise<string> =>
  `${(await exchanged(headers, how)).split('\r\n\r\n', 1)[0]?.toLowerCase()}\r\n`;

async function exchanged(headers: Pairs, how: How, trailers: Pairs = []): Promise<string> {
  const { address, task } = await serve();
  const { socket, text } = connected(address);
  socket.write(get(how.path ?? `${PATH}/`, ...(how.lines ?? [])));
  const one = await task(1);
  one.begin();
  one.send('response', {}, { status: how.status ?? 200, headers, trailers: true });
  one.send('end', {}, trailers);
  await turned(() => text().includes(trailers.length === 0 ? '\r\n\r\n' : '\r\n0\r\n'));
  return text();
}

const HOST_LINES = [`Host: ${STUB}.apps.test`];

describe('an answer in the path form', () => {
  test.each([200, 206, 304, 404, 500])('has the sandbox beside the policy of the application: %i', async (status) => {
    const policy = "default-src 'self'; sandbox allow-same-origin allow-scripts";
    const text = await answered([['Content-Security-Policy', policy]], { status });
    expect(text).toContain(SANDBOX);
    expect(text).toContain(`content-security-policy: ${policy}\r\n`);
  });

  test('has no header that a browser would keep for all applications', async () => {
    const names = [
      'Accept-CH',
      'Alt-Svc',
      'Attribution-Reporting-Register-Source',
      'CLEAR-SITE-DATA',
      'Clear-Site-Data',
      'Critical-CH',
      'Cross-Origin-Opener-Policy',
      'Expect-CT',
      'NEL',
      'Origin-Agent-Cluster',
      'Public-Key-Pins',
      'Report-To',
      'Reporting-Endpoints',
      'Secure-Session-Registration',
      'Service-Worker-Allowed',
      'service-worker-allowed',
      'Set-Cookie2',
      'Set-Login',
      'Strict-Transport-Security',
      'Use-As-Dictionary',
    ];
    const sent = names.flatMap((name): Pairs => [
      [name, '/'],
      [name.toUpperCase(), 'again'],
    ]);
    const text = await answered([...sent, ['x-kept', '1']]);
    const passed = names.filter((name) => text.includes(`\r\n${name.toLowerCase()}:`));
    expect(passed).toEqual([]);
    expect(text).toContain('x-kept: 1\r\n');
  });

  test.each([
    ['a=1', `a=1; Path=${PATH}`],
    ['a=1; Path=/; HttpOnly', `a=1; HttpOnly; Path=${PATH}`],
    ['a=1; path = /docs ;PATH=/; Secure', `a=1; Secure; Path=${PATH}`],
    ['a=1;\tPath=/;Domain=x.test', `a=1; Path=${PATH}`],
    ['a=path=/; Max-Age=5', `a=path=/; Max-Age=5; Path=${PATH}`],
    ['flag', `flag; Path=${PATH}`],
  ])('keeps the cookie %s below its own path', async (sent, passed) => {
    expect(await answered([['Set-Cookie', sent]])).toContain(`set-cookie: ${passed.toLowerCase()}\r\n`);
  });

  test('has a path for its cookies that ends no attribute', async () => {
    const text = await answered([['Set-Cookie', 'a=1']], {
      path: '/asgi/a;Path=/;b/x',
      lines: [`Authorization: Bearer ${TOKEN}`],
    });
    expect(text).toContain('set-cookie: a=1; path=/asgi/a%3bpath=\r\n');
  });

  test('has trailers without what reaches further', async () => {
    const trailers: Pairs = [
      ['set-cookie', 'late=1; Domain=x.test'],
      ['clear-site-data', '"*"'],
      ['x-sum', '7'],
    ];
    const text = await exchanged([], {}, trailers);
    expect(text).toContain('x-sum: 7');
    expect(text).not.toMatch(/domain=|clear-site-data/i);
  });
});

describe.each([
  ['the path form', { path: `${PATH}/` }],
  ['the host form', { path: '/', lines: HOST_LINES }],
])('in %s, an application', (_, how) => {
  test.each([
    'longshore_token=eyJ; Path=/',
    ' longshore_token =eyJ',
    '__Host-longshore_token=eyJ; Secure; Path=/',
    '__HOST-Longshore_Token=eyJ; Secure; Path=/',
    'longshore_console=x; Path=/console',
    '__Host-longshore_console=x; Secure; Path=/',
    // A browser sends a cookie without a name as its value.
    '=longshore_token=eyJ',
    ' =__Host-longshore_console=x; Secure; Path=/',
  ])('sets no cookie of the platform: %s', async (cookie) => {
    const text = await answered(
      [
        ['Set-Cookie', cookie],
        ['Set-Cookie', 'own=1'],
      ],
      how,
    );
    expect(text.match(/set-cookie:[^\r]*/g)).toHaveLength(1);
    expect(text).toContain('set-cookie: own=1');
  });

  test('gets no cookie of the console', async () => {
    const { address, task } = await serve();
    const cookies = 'Cookie: a=1; longshore_console=x; __Host-longshore_console=y; b=2';
    connected(address).socket.write(get(how.path, ...('lines' in how ? how.lines : []), cookies));
    const one = await task(1);
    one.begin();
    await turned(() => one.head !== '');
    expect(JSON.parse(one.head)).toMatchObject({ headers: expect.arrayContaining([['cookie', 'a=1; b=2']]) });
  });
});

describe('an answer in the host form', () => {
  test('has no sandbox, and all that stays with its host', async () => {
    const headers: Pairs = [
      ['service-worker-allowed', '/'],
      ['strict-transport-security', 'max-age=1'],
      ['set-cookie', 'a=1; Domain = .apps.test; Path=/b'],
    ];
    const text = await answered(headers, { path: '/', lines: HOST_LINES });
    expect(text).not.toContain('content-security-policy');
    expect(text).toContain('service-worker-allowed: /\r\n');
    expect(text).toContain('strict-transport-security: max-age=1\r\n');
    expect(text).toContain('set-cookie: a=1; path=/b\r\n');
  });

  test.each([
    ['a=1; Domain=example.org; Path=/; HttpOnly', 'a=1; Path=/; HttpOnly'],
    ['b=2;domain = .example.org', 'b=2'],
    ['c=3; DOMAIN=x; domain=y; Secure', 'c=3; Secure'],
    ['domain=4; Path=/domain=', 'domain=4; Path=/domain='],
  ])('has cookies of the host that was called: %s', async (sent, passed) => {
    const text = await answered([['Set-Cookie', sent]], { path: '/', lines: HOST_LINES });
    expect(text).toContain(`set-cookie: ${passed.toLowerCase()}\r\n`);
  });

  test.each([
    ['"*"', 'clear-site-data: "cache", "storage"\r\n'],
    ['"cookies", "storage"', 'clear-site-data: "storage"\r\n'],
    [' "cache","cookies"', 'clear-site-data: "cache"\r\n'],
  ])('clears no cookies of other hosts of its domain: %s', async (value, line) => {
    expect(await answered([['Clear-Site-Data', value]], { path: '/', lines: HOST_LINES })).toContain(line);
  });

  test('clears nothing where it asks for cookies alone', async () => {
    const text = await answered([['Clear-Site-Data', '"cookies"']], { path: '/', lines: HOST_LINES });
    expect(text).not.toContain('clear-site-data');
  });
});

const UPGRADE = [
  'Connection: Upgrade',
  'Upgrade: websocket',
  'Sec-WebSocket-Version: 13',
  'Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==',
];
const REACHING = 'Set-Cookie: a=1; Path=/\r\nStrict-Transport-Security: max-age=9\r\nClear-Site-Data: "*"\r\n';

test('an accepted WebSocket keeps its cookies below its path, and has nothing for the whole origin', async () => {
  const { address, task } = await serve();
  const { socket, text } = connected(address);
  socket.write(get(`${PATH}/`, ...UPGRADE));
  const one = await task(1);
  one.begin();
  const headers = REACHING.trim()
    .split('\r\n')
    .map((line) => line.split(': '));
  one.send('response', {}, { accept: true, subprotocol: null, headers });
  await turned(() => text().includes('\r\n\r\n'));
  expect(text()).toContain(`Set-Cookie: a=1; Path=${PATH}\r\n`);
  expect(text()).not.toMatch(/strict-transport|clear-site/i);
});

describe('a port', () => {
  const answering = (bytes: string) =>
    ports.aProgram((socket) => void socket.once('data', () => void socket.end(bytes, 'latin1')));

  test.each([
    ['of a pod', 'pod', (port: number) => `/pod/public/${STUB}/${port}`],
    ['of a sandbox', 'sandbox', (port: number) => `/sandbox/container/${STUB}/${ports.SANDBOX}/${port}`],
  ] as const)('%s answers in the sandbox', async (_, kind, rootOf) => {
    const { port } = await answering(
      `HTTP/1.1 200 OK\r\n${REACHING}Content-Type: text/html\r\nContent-Length: 2\r\n\r\nok`,
    );
    const { address } = await ports.serve({ ports: [port], kind });
    const text = await asked(address, get(`${rootOf(port)}/`), 'ok');
    expect(text).toContain(SANDBOX);
    expect(text).toContain(`Set-Cookie: a=1; Path=${rootOf(port)}\r\n`);
    expect(text).not.toMatch(/strict-transport|clear-site/i);
  });

  test('changes to another protocol without cookies and rules for the whole origin', async () => {
    const { port } = await answering(
      `HTTP/1.1 101 Switching Protocols\r\n${REACHING}Connection: upgrade\r\nUpgrade: websocket\r\n\r\n`,
    );
    const { address } = await ports.serve({ ports: [port] });
    const text = await asked(address, get(`/pod/public/${STUB}/${port}/`, ...UPGRADE));
    expect(text).toContain('HTTP/1.1 101');
    expect(text).toContain(`Set-Cookie: a=1; Path=/pod/public/${STUB}/${port}\r\n`);
    expect(text).not.toMatch(/strict-transport|clear-site/i);
  });

  test.each([
    ['has early hints for programs', [], true],
    ['has none for a page, which is sandboxed only by the answer behind them', ['Sec-Fetch-Mode: navigate'], false],
  ] as const)('%s', async (_, lines, passes) => {
    const hint = 'HTTP/1.1 103 Early Hints\r\nLink: </docs>; rel=preload; as=fetch\r\n\r\n';
    const { port } = await answering(`${hint}HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok`);
    const { address } = await ports.serve({ ports: [port] });
    const path = `/pod/public/${STUB}/${port}/`;
    const text = await asked(address, get(path, ...lines, 'Sec-Fetch-Site: same-origin'), 'ok');
    expect(text.includes('103')).toBe(passes);
  });
});

describe('a browser that asks for the script of a service worker', () => {
  const GONE = '/asgi/public/11111111-0000-4000-8000-000000000000/sw.js';
  test.each([
    ['of an application', `GET ${PATH}/sw.js`],
    ['of one that asks for a token', 'GET /asgi/site/sw.js'],
    ['of one that is gone', `GET ${GONE}`],
    ['with another method', `POST ${PATH}/sw.js`],
    ['of a kind that is none', 'GET /nothing/sw.js'],
    ['of a port', `GET /pod/public/${STUB}/80/sw.js`],
    ['of a path that cannot be read', 'GET /asgi/%E9/%zz'],
    ['of a very long path', `GET /asgi/${'a'.repeat(4_000)}/sw.js`],
    ['by a target for a proxy', `GET http://x.test${PATH}/sw.js`],
  ])('%s gets one that leaves', async (_, line) => {
    const { address, tasks } = await serve();
    const text = await asked(address, `${line} HTTP/1.1\r\nHost: x.test\r\nservice-worker: script\r\n\r\n`, '}\n');
    expect(text).toMatch(/^HTTP\/1\.1 200/);
    expect(text).toMatch(/content-type: text\/javascript/);
    expect(text).toContain('service-worker-allowed: /\r\n');
    expect(text).toContain('cache-control: no-store\r\n');
    expect(text).toContain('self.registration.unregister()');
    expect(tasks).toEqual([]);
  });

  test.each([
    ['one of its own origin gets a module that leaves', 'same-origin', true],
    ['a host of an application gets the module', 'cross-site', false],
  ] as const)('and imports a module: %s', async (_, site, leaves) => {
    const { address, tasks } = await serve();
    connected(address).socket.write(get(`${PATH}/lib.js`, 'Sec-Fetch-Dest: serviceworker', `Sec-Fetch-Site: ${site}`));
    if (!leaves) await turned(() => tasks.length === 1);
    const text = await asked(address, get('/nothing', 'Sec-Fetch-Dest: serviceworker', `Sec-Fetch-Site: ${site}`), '}');
    expect(text.includes('unregister')).toBe(leaves);
    expect(tasks.length).toBe(leaves ? 0 : 1);
  });

  test('on a host of its own reaches the application', async () => {
    const { address, task } = await serve();
    connected(address).socket.write(get('/sw.js', ...HOST_LINES, 'Service-Worker: script'));
    const one = await task(1);
    one.begin();
    await turned(() => one.head !== '');
    expect(JSON.parse(one.head)).toMatchObject({ path: '/sw.js' });
  });
});

describe('a browser that navigates to an application in the path form', () => {
  const NAVIGATES = ['Sec-Fetch-Mode: navigate', 'Sec-Fetch-Dest: document', 'Sec-Fetch-Site: none'];
  const AUTHORIZED = `Authorization: Bearer ${TOKEN}`;

  test.each([
    [`${PATH}/a%2Fb//c?x=1&y=%20`, 'Host: 127.0.0.1:1994', `http://${STUB}.localhost:1994/a%2Fb//c?x=1&y=%20`],
    [PATH, 'Host: localhost', `http://${STUB}.localhost/`],
    [`${PATH}//evil.test/`, 'Host: localhost:1', `http://${STUB}.localhost:1//evil.test/`],
    ['/asgi/site/v3/x', 'Host: [::1]:1994', 'http://site-0123456789abcdef-v3.localhost:1994/x'],
    ['/asgi/site/latest/x', 'Host: localhost', 'http://site-0123456789abcdef-latest.localhost/x'],
    ['/asgi/site/x', 'Host: gpu.localhost', 'http://site-0123456789abcdef-latest.localhost/x'],
    [`/asgi/id/${STUB}/x`, 'Host: localhost', `http://${STUB}.localhost/x`],
    [`${PATH}/?auth_token=${TOKEN}&a=1`, 'Host: localhost', `http://${STUB}.localhost/?auth_token=${TOKEN}&a=1`],
  ])('is led from %s with %s to the host form', async (path, host, location) => {
    const { address, tasks } = await serve();
    const text = await asked(address, get(path, host, ...NAVIGATES, AUTHORIZED));
    expect(text).toMatch(/^HTTP\/1\.1 307/);
    expect(text).toContain(`location: ${location}\r\n`);
    expect(text).toContain('cache-control: no-store\r\n');
    expect(text).toContain('referrer-policy: no-referrer\r\n');
    expect(tasks).toEqual([]);
  });

  test('is led to the domain of the operator, whatever name it used', async () => {
    const { address } = await serve(undefined, playedHosts({ invokeDomain: 'apps.test' }));
    for (const host of ['gpu.test:8443', '127.0.0.1:8443']) {
      const text = await asked(address, get(`${PATH}/x`, `Host: ${host}`, ...NAVIGATES, 'X-Forwarded-For: 1.2.3.4'));
      expect(text).toContain(`location: http://${STUB}.apps.test:8443/x\r\n`);
    }
  });

  test.each([
    ['a pod', 'pod', `/pod/public/${STUB}`, STUB],
    ['a sandbox', 'sandbox', `/sandbox/container/${STUB}/${ports.SANDBOX}`, ports.SANDBOX],
  ] as const)('is led to the port of %s', async (_, kind, path, label) => {
    const { address } = await ports.serve({ ports: [8000, 9000], kind });
    const text = await asked(address, get(`${path}/8000/x?y`, 'Host: localhost:1994', ...NAVIGATES));
    expect(text).toContain(`location: http://${label}-8000.localhost:1994/x?y\r\n`);
  });

  test('takes its form along, and its body is not read here', async () => {
    const { address } = await serve();
    const head = get(`${PATH}/form`, 'Host: localhost', ...NAVIGATES, 'Content-Length: 3').replace('GET', 'POST');
    expect(await asked(address, `${head}abc`)).toMatch(/^HTTP\/1\.1 307/);
  });

  test.each([
    ['a name that is no host of this machine', ['Host: gpu.test']],
    ['a proxy in between', ['Host: 127.0.0.1:1994', 'X-Forwarded-For: 1.2.3.4']],
  ])('is told why not, with %s', async (_, lines) => {
    const { address, tasks } = await serve();
    const text = await asked(address, get(`${PATH}/`, ...lines, ...NAVIGATES), '</html>');
    expect(text).toMatch(/^HTTP\/1\.1 403/);
    expect(text).toContain('LONGSHORE_INVOKE_DOMAIN');
    expect(text).toContain("content-security-policy: default-src 'none'");
    expect(text).toContain(`set-cookie: longshore_sandboxed=1; Path=${PATH}; HttpOnly; SameSite=Lax\r\n`);
    expect(tasks).toEqual([]);
  });

  test.each([
    ['by the link of that page', 'Sec-Fetch-Site: same-origin'],
    ['by any other, once told', 'Cookie: a=1; longshore_sandboxed=1'],
  ])('may open the page in the sandbox %s', async (_, line) => {
    const { address, task } = await serve();
    connected(address).socket.write(get(`${PATH}/`, 'Host: gpu.test', 'Sec-Fetch-Mode: navigate', line));
    const one = await task(1);
    one.begin();
    await turned(() => one.head !== '');
    expect(one.head).not.toContain('longshore_sandboxed');
  });

  test.each([
    ['a program, which says nothing of the kind', ['Host: localhost', 'Accept: text/html']],
    ['a script of a page', ['Host: localhost', 'Sec-Fetch-Mode: cors', 'Sec-Fetch-Site: same-origin']],
    ['an image of a page', ['Host: localhost', 'Sec-Fetch-Mode: no-cors', 'Sec-Fetch-Dest: image']],
    ['a WebSocket', ['Host: localhost', 'Sec-Fetch-Mode: websocket', ...UPGRADE]],
  ])('%s is led nowhere', async (_, lines) => {
    const { address, tasks } = await serve();
    connected(address).socket.write(get(`${PATH}/`, ...lines));
    await turned(() => tasks.length === 1);
  });

  test('is asked for a token first', async () => {
    const { address } = await serve();
    const text = await asked(address, get('/asgi/site/', 'Host: localhost', ...NAVIGATES));
    expect(text).toMatch(/^HTTP\/1\.1 401/);
    expect(text).not.toContain('location:');
  });
});
