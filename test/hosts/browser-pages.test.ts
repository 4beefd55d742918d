// A hostile public application in a browser: what its page may do in the path form and on a host of its own, and what
// becomes of a service worker that it registered for the scheduler's origin before answers were sandboxed.
import { describe, expect } from 'vitest';
import type { Page } from 'playwright-core';
import { test as base } from '../helpers/browser.ts';
import { Front } from '../helpers/front.ts';
import type { Deployment } from '../helpers/platform.ts';

const test = base
  .extend('hostile', { scope: 'file' }, ({ platform }): Promise<Deployment> =>
    platform.deploy({
      app: 'hostile.py',
      handler: 'app',
      name: 'hostile',
      stubType: 'asgi/deployment',
      concurrentRequests: 20,
      keepWarmSeconds: 300,
      authorized: false,
    }),
  )
  .extend('front', async ({ platform: _platform }, { onCleanup }): Promise<Front> => {
    const front = new Front();
    onCleanup(() => front.close());
    return front;
  });

const pathOf = ({ stubId }: Pick<Deployment, 'stubId'>): string => `/asgi/public/${stubId}/`;

/** Tries of a page: each line tells what came of it. */
const TRIES = `(async () => {
  const told = (work) => Promise.resolve().then(work).then(() => 'done', (error) => error.name)
  const opened = window.open('/docs')
  return {
    origin: self.origin,
    localStorage: await told(() => localStorage.setItem('a', '1')),
    cookie: await told(() => { document.cookie = 'a=1' }),
    database: await told(() => new Promise((resolve, reject) => {
      const opening = indexedDB.open('a')
      opening.onsuccess = resolve
      opening.onerror = () => reject(opening.error)
    })),
    caches: await told(() => caches.open('a')),
    worker: await told(() => navigator.serviceWorker.register('sw.js', { scope: '/' })),
    docs: await told(() => fetch('/docs')),
    api: await told(() => fetch('/api/v1/health', { credentials: 'include' })),
    document: await told(() => opened === null ? Promise.reject(new Error('none')) : opened.document.title),
  }
})()`;

const workersOf = (page: Page): Promise<unknown> =>
  page.evaluate(`navigator.serviceWorker.getRegistrations().then((all) => all.length)`);

describe('a hostile public application', () => {
  test('is led to a host of its own, which has storage and workers, and sets no cookie of the platform', async ({
    platform,
    hostile,
    page,
  }) => {
    const answer = await page.goto(`${platform.url}${pathOf(hostile)}?a=1`);
    expect(answer?.status()).toBe(200);
    const port = new URL(platform.url).port;
    expect(page.url()).toBe(`http://${hostile.stubId}.localhost:${port}/?a=1`);
    await page.evaluate(`localStorage.setItem('a', '1')`);
    await page.evaluate(
      `navigator.serviceWorker.register('/sw.js', { scope: '/' }).then(() => navigator.serviceWorker.ready)`,
    );
    expect(await page.evaluate(`fetch('/x').then((answer) => answer.text())`)).toBe('STOLEN');
    await page.evaluate(`document.cookie = 'parent=1; domain=localhost'`);
    const cookies = await page.context().cookies();
    expect(cookies.map(({ name, domain }) => [name, domain])).toEqual([['tossed', `${hostile.stubId}.localhost`]]);
    // The scheduler's own pages are of another origin.
    await page.goto(`${platform.url}/docs`);
    expect(await page.title()).toBe('Longshore API');
    expect(await workersOf(page)).toBe(0);
  });

  test('has no origin where it has no host: no storage, no cookies, no worker, no page and no call of the scheduler', async ({
    platform,
    hostile,
    page,
    front,
  }) => {
    await front.leadsTo(platform.httpAddress, 'X-Forwarded-For: 127.0.0.1');
    const url = `${front.url}${pathOf(hostile)}`;
    await page.context().addCookies([{ name: 'mine', value: '1', url: front.url }]);
    expect((await page.goto(url))?.status()).toBe(403);
    expect(await page.textContent('body')).toContain('LONGSHORE_INVOKE_DOMAIN');
    await page.click('a');
    await page.waitForSelector('#next');
    expect(await page.evaluate(TRIES)).toEqual({
      origin: 'null',
      localStorage: 'SecurityError',
      cookie: 'SecurityError',
      database: 'SecurityError',
      caches: 'SecurityError',
      worker: expect.stringMatching(/SecurityError|TypeError/),
      docs: 'TypeError',
      api: 'TypeError',
      document: 'SecurityError',
    });
    // Links of the page lead on in the sandbox, below its own path alone.
    await page.click('#next');
    await page.waitForURL(`${url}next`);
    expect(await page.evaluate('self.origin')).toBe('null');
    const cookies = await page.context().cookies();
    const own = pathOf(hostile).replace(/\/$/, '');
    expect(Object.fromEntries(cookies.map(({ name, path }) => [name, path]))).toEqual({
      longshore_sandboxed: own,
      mine: '/',
      tossed: own,
    });
    await page.goto(`${front.url}/docs`);
    expect(await page.title()).toBe('Longshore API');
    expect(await workersOf(page)).toBe(0);
  });

  for (const [told, options, stubIdOf] of [
    ['of an application that is still there', `{ scope: '/' }`, ({ stubId }: Deployment) => stubId],
    ['of an application that is gone', `{ scope: '/' }`, () => '11111111-0000-4000-8000-000000000000'],
    ['as a module', `{ scope: '/', type: 'module', updateViaCache: 'all' }`, ({ stubId }: Deployment) => stubId],
  ] as const)
    test(`loses a worker that was registered at its address before, ${told}`, async ({
      platform,
      hostile,
      page,
      front,
    }) => {
      const path = pathOf({ stubId: stubIdOf(hostile) });
      await front.answers((request, response) => {
        if (request.url === `${path}lib.js`)
          return response.setHeader('content-type', 'text/javascript').end('export const text = "STOLEN"');
        if (request.url !== `${path}sw.js`)
          return response.setHeader('content-type', 'text/html').end('<!doctype html><title>before</title>');
        response.setHeader('content-type', 'text/javascript').setHeader('service-worker-allowed', '/');
        const text = options.includes('module') ? `import { text } from './lib.js'\n` : `const text = 'STOLEN'\n`;
        return response.end(`${text}self.addEventListener('install', () => self.skipWaiting())
self.addEventListener('fetch', (event) => event.respondWith(
  new Response('<!doctype html><title>' + text + '</title>', { headers: { 'content-type': 'text/html' } })))`);
      });
      await page.goto(`${front.url}${path}`);
      await page.evaluate(
        `navigator.serviceWorker.register('sw.js', ${options}).then(() => navigator.serviceWorker.ready)`,
      );
      await page.goto(`${front.url}/docs`);
      expect(await page.title()).toBe('STOLEN');
      await front.leadsTo(platform.httpAddress);
      // The old worker answers once more; meanwhile the browser looks for a newer one.
      await page.goto(`${front.url}/docs`);
      await page.waitForFunction(`document.title === 'Longshore API'`, undefined, { timeout: 30_000 });
      await page.goto(`${front.url}/docs`);
      expect(await page.title()).toBe('Longshore API');
      expect(await workersOf(page)).toBe(0);
    });
});
