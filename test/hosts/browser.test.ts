// Pages of applications in a browser, and the host form of their URLs. Labels below `apps.localhost` are one site for a
// browser, as deployments below a domain are; labels right below `localhost` are sites of their own.
import { describe, expect } from 'vitest';
import type { Page } from 'playwright-core';
import { test as base } from '../helpers/browser.ts';
import { jsonOf } from '../helpers/platform.ts';
import type { Deployment, Platform } from '../helpers/platform.ts';
import { RawConnection } from '../helpers/raw-http.ts';
import type { RawAnswer } from '../helpers/raw-http.ts';
import { BINARY, TEXT, closeFrame, frame, messagesOf, openRaw } from '../helpers/raw-websocket.ts';
import { waitFor } from '../helpers/services.ts';

interface Hosted extends Deployment {
  /** Host label without a version. */
  readonly label: string;
}

interface Apps {
  /** The chat of the examples; the caller needs a token. */
  readonly chat: Hosted;
  readonly publicChat: Hosted;
  /** Tells requests as they come. */
  readonly web: Hosted;
  readonly endpoint: Hosted;
  /** Token of another workspace. */
  readonly strangersToken: string;
}

async function deployHosted(platform: Platform, request: Parameters<Platform['deploy']>[0]): Promise<Hosted> {
  const deployment = await platform.deploy(request);
  const { stubId, deploymentId } = deployment;
  const { url } = await platform.gateway(`/stubs/${stubId}/url?deploymentId=${deploymentId}&urlType=host`);
  const [label = ''] = new URL(String(url)).hostname.split('.');
  expect(label).toMatch(/-v1$/);
  return { ...deployment, label: label.replace(/-v1$/, '') };
}

const STREAMED = { handler: 'app', stubType: 'asgi/deployment', concurrentRequests: 50, keepWarmSeconds: 300 };

const test = base.extend('apps', { scope: 'file' }, async ({ platform }): Promise<Apps> => {
  const chat = { ...STREAMED, app: 'examples/chat/app.py' };
  const made = jsonOf<{ token: string }>(await platform.call('/api/v1/workspace', { body: { name: 'strangers' } }));
  return {
    chat: await deployHosted(platform, { ...chat, name: 'chat' }),
    publicChat: await deployHosted(platform, { ...chat, name: 'public-chat', authorized: false }),
    web: await deployHosted(platform, { ...STREAMED, app: 'web.py', name: 'web' }),
    endpoint: await deployHosted(platform, { app: 'examples/hello/app.py', handler: 'handler', name: 'hello' }),
    strangersToken: made.token,
  };
});

interface NewToken {
  readonly tokenId: string;
  readonly key: string;
}

const newToken = async (platform: Platform): Promise<NewToken> =>
  (await platform.gateway<{ token: NewToken }>('/tokens', { tokenType: 'workspace' })).token;

const portOf = ({ httpAddress }: Platform): string => httpAddress.split(':')[1] ?? '';
/** URL of a deployment's first version on a host of its own. */
const hostUrl = (platform: Platform, { label }: Hosted, domain = 'localhost'): string =>
  `http://${label}-v1.${domain}:${portOf(platform)}`;

async function says(page: Page, text: string): Promise<void> {
  await page.locator('li', { hasText: text }).first().waitFor({ timeout: 20_000 });
}

async function say(page: Page, text: string): Promise<void> {
  await page.fill('#text', text);
  await page.press('#text', 'Enter');
}

/** Two tabs talk: either sees what both say. */
async function chatIn(first: Page, url: string): Promise<void> {
  const second = await first.context().newPage();
  await second.goto(url);
  await says(first, 'is here');
  await says(second, 'is here');
  await say(first, 'hello from the first');
  await says(second, 'hello from the first');
  await say(second, 'κόσμε 😀 from the second');
  await says(first, 'κόσμε 😀 from the second');
  await second.close();
  await says(first, 'left');
}

const TOKEN_COOKIE = 'longshore_token';

describe('the chat of the examples', () => {
  test('talks between two tabs by its public path, without a token', async ({ platform, apps, page }) => {
    const url = `${platform.url}/asgi/public/${apps.publicChat.stubId}/`;
    const answer = await page.goto(url);
    expect(answer?.status()).toBe(200);
    expect(await page.title()).toBe('Chat');
    await chatIn(page, url);
    expect(await page.context().cookies()).toEqual([]);
  });

  test('talks between two tabs on a host of its own, whose cookie has the token', async ({ platform, apps, page }) => {
    const url = hostUrl(platform, apps.chat);
    const answer = await page.goto(`${url}/?a=1&auth_token=${platform.token}&b=2`);
    expect(answer?.status()).toBe(200);
    expect(await page.evaluate<string>('location.href')).toBe(`${url}/?a=1&b=2`);
    expect(await page.evaluate<string>('document.cookie')).toBe('');
    expect(await page.context().cookies()).toMatchObject([
      {
        name: TOKEN_COOKIE,
        value: platform.token,
        domain: new URL(url).hostname,
        path: '/',
        httpOnly: true,
        secure: false,
        sameSite: 'Lax',
        expires: -1,
      },
    ]);
    await chatIn(page, `${url}/`);
  });

  test('needs a token', async ({ platform, apps, page }) => {
    const url = hostUrl(platform, apps.chat);
    expect((await page.goto(`${url}/`))?.status()).toBe(401);
    expect((await page.goto(`${url}/?auth_token=bad`))?.status()).toBe(401);
    expect((await page.goto(`${url}/?auth_token=${apps.strangersToken}`))?.status()).toBe(401);
    expect(await page.context().cookies()).toEqual([]);
  });

  test('is closed to a revoked token at once', async ({ platform, apps, page }) => {
    const { tokenId, key } = await newToken(platform);
    const url = hostUrl(platform, apps.chat);
    expect((await page.goto(`${url}/?auth_token=${key}`))?.status()).toBe(200);
    expect((await page.reload())?.status()).toBe(200);
    await says(page, 'is here');
    await platform.call(`/api/v1/gateway/tokens/${tokenId}`, { method: 'DELETE' });
    expect(await page.evaluate(`fetch('/').then(({ status }) => status)`)).toBe(401);
    expect(await page.evaluate(socketTo(url))).toBe('refused');
    expect((await page.reload())?.status()).toBe(401);
  });
});

/** An expression: opens a WebSocket in a page, and tells whether that works. */
const socketTo = (url: string): string => `new Promise((resolve) => {
  const socket = new WebSocket(${JSON.stringify(`${url.replace('http', 'ws')}/socket`)})
  socket.onopen = () => { socket.close(); resolve('open') }
  socket.onerror = () => resolve('refused')
})`;

const fetchOf = (url: string, options: string): string =>
  `fetch(${JSON.stringify(url)}, ${options}).then(() => 'answered', () => 'failed')`;

interface Seen {
  readonly method: string;
  readonly query: string;
  readonly raw_path: string;
  readonly root_path: string;
  readonly headers: readonly (readonly [string, string])[];
}

describe('an application behind a cookie', () => {
  test('never sees the token', async ({ platform, apps, page }) => {
    const url = hostUrl(platform, apps.web);
    await page.goto(`${url}/request?x=1&auth_token=${platform.token}`);
    await page.context().addCookies([{ name: 'own', value: 'kept', url }]);
    for (const dump of [
      await page.goto(`${url}/request?x=1`).then(async (answer) => answer?.text()),
      await page.evaluate<string>(
        `fetch('/request?x=2', { method: 'PUT', body: 'x' }).then((answer) => answer.text())`,
      ),
      // An address for a script, which is no page and gets no cookie.
      await page.evaluate<string>(`fetch('/request?auth_token=${platform.token}').then((answer) => answer.text())`),
    ]) {
      expect(dump).toContain('"method"');
      expect(dump).not.toContain(platform.token);
      expect(dump).not.toContain(TOKEN_COOKIE);
      expect((JSON.parse(dump ?? '') as Seen).headers).toContainEqual(['cookie', 'own=kept']);
    }
  });

  for (const domain of ['apps.localhost', 'localhost']) {
    // Labels of one site send the cookie with every request, and are refused; other sites have none to send.
    const status = domain === 'localhost' ? 401 : 403;
    test(`is closed to pages of other hosts below ${domain}`, async ({ platform, apps, page }) => {
      const own = hostUrl(platform, apps.web, domain);
      const foreign = hostUrl(platform, apps.chat, domain);
      expect((await page.goto(`${own}/?auth_token=${platform.token}`))?.status()).toBe(200);
      expect(await page.evaluate(socketTo(own))).toBe('open');
      expect(await page.evaluate(`fetch('/', { method: 'POST' }).then(({ status }) => status)`)).toBe(200);
      expect((await page.goto(`${foreign}/?auth_token=${platform.token}`))?.status()).toBe(200);
      const before = await callsOf(platform, apps);
      const statuses = await statusesOf(page, own);
      expect(await page.evaluate(fetchOf(`${own}/`, `{ credentials: 'include' }`))).toBe('failed');
      await page.evaluate(fetchOf(`${own}/`, `{ credentials: 'include', mode: 'no-cors' }`));
      await page.evaluate(fetchOf(`${own}/`, `{ credentials: 'include', mode: 'no-cors', method: 'POST', body: 'x' }`));
      await page.evaluate(`new Promise((resolve) => {
        const image = new Image()
        image.onerror = image.onload = resolve
        image.src = ${JSON.stringify(`${own}/status`)}
      })`);
      await waitFor(() => statuses().length === 4, 'four were answered');
      expect(statuses()).toEqual([status, status, status, status]);
      const [framed] = await Promise.all([
        page.waitForResponse((answer) => answer.url() === `${own}/`),
        page.evaluate(
          `document.body.append(Object.assign(document.createElement('iframe'), { src: ${JSON.stringify(`${own}/`)} }))`,
        ),
      ]);
      expect(framed.status()).toBe(status);
      expect(await page.evaluate(socketTo(own))).toBe('refused');
      expect(await callsOf(platform, apps)).toBe(before + 1);
      // A link leads there all the same.
      await page.evaluate(`location.href = ${JSON.stringify(`${own}/`)}`);
      await page.waitForURL(`${own}/`);
      expect(await page.textContent('body')).toContain('"hello"');
    });
  }
});

/** Statuses of requests of the page, also of those whose answers it may not read. */
async function statusesOf(page: Page, origin: string): Promise<() => readonly number[]> {
  const session = await page.context().newCDPSession(page);
  const asked = new Set<string>();
  const statuses = new Map<string, number>();
  session.on('Network.requestWillBeSent', ({ requestId, request }) => {
    if (request.url.startsWith(origin)) asked.add(requestId);
  });
  // Either event may be the first of a request.
  session.on('Network.responseReceivedExtraInfo', ({ requestId, statusCode }) => statuses.set(requestId, statusCode));
  await session.send('Network.enable');
  return () => [...asked].map((requestId) => statuses.get(requestId) ?? 0).filter((status) => status !== 0);
}

/** Calls that the application has had, with this one. */
async function callsOf(platform: Platform, { web }: Apps): Promise<number> {
  return jsonOf<{ seen: { calls: number } }>(await platform.call(`${web.url}/`)).seen.calls;
}

interface Asked {
  readonly host: string;
  readonly method?: string;
  readonly path?: string;
  readonly lines?: readonly string[];
  readonly body?: string;
}

async function ask(
  platform: Platform,
  { host, method = 'GET', path = '/', lines = [], body = '' }: Asked,
): Promise<RawAnswer> {
  const connection = new RawConnection(platform.httpAddress);
  try {
    await connection.opened;
    const length = body === '' ? [] : [`Content-Length: ${Buffer.byteLength(body)}`];
    connection.send([`${method} ${path} HTTP/1.1`, `Host: ${host}`, ...length, ...lines, '', body].join('\r\n'));
    return await connection.answer(method);
  } finally {
    connection.close();
  }
}

const bearer = (token: string): string => `Authorization: Bearer ${token}`;
/** A request by cookie, as a browser sends it from a page of the same host. */
const cookie = (token: string): string => `Cookie: a=1; ${TOKEN_COOKIE}=${token}\r\nSec-Fetch-Site: same-origin`;

describe('the host form', () => {
  test.for(['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'PROPFIND'])(
    'takes %s at any path',
    async (method, { platform, apps }) => {
      const host = `${apps.web.label}-v1.apps.test`;
      const path = '/request/a%20b//c?q=1';
      const answer = await ask(platform, { host, method, path, lines: [bearer(platform.token)] });
      expect(answer.status).toBe(200);
      const seen = JSON.parse(answer.body.toString()) as Seen;
      expect(seen).toMatchObject({ method, raw_path: '/request/a%20b//c', root_path: '', query: 'q=1' });
      expect(seen.headers).toContainEqual(['host', host]);
      expect(seen.headers.some(([name]) => name === 'x-forwarded-prefix')).toBe(false);
    },
  );

  test('takes labels of a version, of a stub, in capitals and with a port', async ({ platform, apps: { web } }) => {
    for (const host of [
      `${web.label}-v1.apps.test`,
      `${web.stubId}.apps.test`,
      `${web.label.toUpperCase()}-V1.Apps.Test:1`,
    ]) {
      const answer = await ask(platform, { host, lines: [bearer(platform.token)] });
      expect([host, answer.status]).toEqual([host, 200]);
    }
  });

  test('takes labels of the newest version below its own domain only', async ({ platform, apps: { web } }) => {
    const lines = [bearer(platform.token)];
    for (const label of [web.label, `${web.label}-latest`, `${web.label}-LATEST`]) {
      const answer = await ask(platform, { host: `${label}.localhost:${portOf(platform)}`, path: '/request/x', lines });
      expect([label, answer.status]).toEqual([label, 200]);
      expect((JSON.parse(answer.body.toString()) as Seen).raw_path).toBe('/request/x');
      // Elsewhere a machine may happen to have such a name.
      expect((await ask(platform, { host: `${label}.apps.test`, path: '/request/x', lines })).status).toBe(404);
    }
    const withCookie = await ask(platform, { host: `${web.label}-latest.localhost`, lines: [cookie(platform.token)] });
    expect(withCookie.status).toBe(200);
  });

  test.for([
    ['an unknown version', (web: Hosted) => `${web.label}-v9.apps.test`, 400],
    ['an unknown name', () => `nothing-0123456789abcdef-v1.apps.test`, 400],
    ['an unknown stub', () => '01234567-89ab-4def-8123-456789abcdef.apps.test', 400],
  ] as const)('refuses %s', async ([, hostOf, status], { platform, apps }) => {
    const host = hostOf(apps.web);
    expect((await ask(platform, { host, lines: [bearer(platform.token)] })).status).toBe(status);
    expect((await ask(platform, { host })).status).toBe(401);
  });

  test.for([
    ['by a header', (token: string) => [bearer(token)], ''],
    ['by the query', () => [], '?auth_token='],
    ['by the cookie', (token: string) => [cookie(token)], ''],
  ] as const)('carries a WebSocket whose token comes %s', async ([, linesOf, query], { platform, apps }) => {
    const host = `${apps.web.label}-v1.apps.test`;
    const path = `/socket${query === '' ? '' : `${query}${platform.token}`}`;
    const lines = [`Host: ${host}`, `Origin: http://${host}`, ...linesOf(platform.token)];
    const { answer, connection, frames, untilMessages } = await openRaw({ address: platform.httpAddress, path, lines });
    expect(answer.status).toBe(101);
    connection.send(Buffer.concat([frame(TEXT, 'a'), frame(BINARY, 'b')]));
    await untilMessages(2);
    connection.send(closeFrame(1000));
    await untilMessages(3);
    expect(messagesOf(frames())).toEqual(['text a', 'bytes 62', 'close 1000']);
    connection.close();
  });

  test.for([
    ['another origin', ['Origin: http://other.apps.test']],
    ['the same host with another port', ['Origin: http://HOST:81']],
    ['an origin that is hidden', ['Origin: null']],
    ['an origin that is none', ['Origin: nothing']],
    ['another site', ['Sec-Fetch-Site: cross-site']],
    ['the same site', ['Sec-Fetch-Site: same-site']],
    ['a frame of another page', ['Sec-Fetch-Site: same-site', 'Sec-Fetch-Mode: navigate', 'Sec-Fetch-Dest: iframe']],
  ] as const)('refuses the cookie with %s', async ([, given], { platform, apps }) => {
    const host = `${apps.web.label}-v1.apps.test`;
    const lines = [cookie(platform.token), ...given.map((line) => line.replace('HOST', host))];
    expect((await ask(platform, { host, lines })).status).toBe(403);
    const { answer, connection } = await openRaw({
      address: platform.httpAddress,
      path: '/socket',
      lines: [`Host: ${host}`, ...lines],
    });
    connection.close();
    expect(answer.status).toBe(403);
  });

  test.for([
    ['its own origin', ['Origin: http://HOST']],
    ['nothing said', []],
    [
      'a link from another site',
      ['Sec-Fetch-Site: cross-site', 'Sec-Fetch-Mode: navigate', 'Sec-Fetch-Dest: document'],
    ],
    ['an address that was typed', ['Sec-Fetch-Site: none', 'Sec-Fetch-Mode: navigate', 'Sec-Fetch-Dest: document']],
  ] as const)('takes the cookie with %s', async ([, given], { platform, apps }) => {
    const host = `${apps.web.label}-v1.apps.test`;
    const lines = [cookie(platform.token), ...given.map((line) => line.replace('HOST', host))];
    expect((await ask(platform, { host, lines })).status).toBe(200);
  });

  test('refuses cookies of other workspaces, bad and empty ones', async ({ platform, apps }) => {
    const host = `${apps.web.label}-v1.apps.test`;
    for (const token of [apps.strangersToken, 'bad', ''])
      expect((await ask(platform, { host, lines: [cookie(token)] })).status).toBe(401);
    // The path form has no cookie.
    const { pathname } = new URL(apps.web.url);
    expect(
      (await ask(platform, { host: 'apps.test', path: `${pathname}/`, lines: [cookie(platform.token)] })).status,
    ).toBe(401);
  });

  test('keeps a token for pages only, and leads nowhere else', async ({ platform, apps }) => {
    const host = `${apps.web.label}-v1.apps.test`;
    const html = 'Accept: text/html,application/xhtml+xml';
    const path = `//elsewhere.test/x?auth_token=${platform.token}`;
    const page = await ask(platform, { host, path, lines: [html] });
    expect(page.status).toBe(303);
    expect(page.headers).toMatchObject({ location: '/elsewhere.test/x', 'cache-control': 'no-store' });
    expect(page.headers['set-cookie']).toMatch(/; Path=\/; HttpOnly; SameSite=Lax$/);
    for (const [method, lines] of [
      ['GET', []],
      ['POST', [html]],
    ] as const) {
      const answer = await ask(platform, { host, method, path: `/request?auth_token=${platform.token}`, lines });
      expect(answer.status).toBe(200);
      expect(answer.headers['set-cookie']).toBeUndefined();
      expect(answer.body.toString()).not.toContain(platform.token);
    }
  });

  test('of an endpoint stays as it was, and takes no cookie', async ({ platform, apps: { endpoint } }) => {
    const host = `${endpoint.label}-v1.apps.test`;
    const body = '{"name":"host"}';
    const call = (lines: readonly string[], more: Partial<Asked> = {}) =>
      ask(platform, { host, method: 'POST', body, lines: ['Content-Type: application/json', ...lines], ...more });
    const token = bearer(platform.token);
    expect((await call([token])).status).toBe(200);
    expect((await call([], { path: `/?auth_token=${platform.token}`, method: 'POST' })).status).toBe(200);
    expect((await call([cookie(platform.token)])).status).toBe(401);
    expect((await call([token], { path: '/below' })).status).toBe(404);
    expect((await call([token], { method: 'PUT' })).status).toBe(405);
    // An upgrade that nothing takes up is a call like any other.
    const upgrade = ['Connection: Upgrade', 'Upgrade: websocket', 'Sec-WebSocket-Version: 13'];
    const upgraded = await ask(platform, { host, path: '/?name=socket', lines: [token, ...upgrade] });
    expect([upgraded.status, upgraded.isWhole]).toEqual([200, true]);
    // No page comes of it: the token stays with the request that carries it.
    const asPage = await call(['Accept: text/html'], { path: `/?auth_token=${platform.token}` });
    expect([asPage.status, asPage.headers['set-cookie']]).toEqual([200, undefined]);
  });
});

test('no token is in the logs', async ({ platform, apps }) => {
  const logs = platform.scheduler.log() + platform.agent.log();
  expect(logs.length).toBeGreaterThan(100);
  for (const token of [platform.token, apps.strangersToken]) expect(logs.includes(token)).toBe(false);
  expect(logs).not.toMatch(/auth_token=[^&"]*[A-Za-z0-9]{8}/);
  expect(logs).not.toMatch(/longshore_token=[^;"]*[A-Za-z0-9]{8}/);
});
