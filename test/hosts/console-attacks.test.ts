// Attacks on the web console by who shares its address, in two browsers: a public application on the console's own
// origin and on a host of its own, and names, lines and results that hold markup, codes of terminals and long texts.
// Source: the threats of docs/console.md.
import { describe, expect } from 'vitest';
import { startBrowser } from '../helpers/browser.ts';
import { writeConsoleIfStale } from '../helpers/built-console.ts';
import { linkOf } from '../helpers/console-stories.ts';
import { startFirefox } from '../helpers/firefox.ts';
import { Front } from '../helpers/front.ts';
import { test as base, jsonOf } from '../helpers/platform.ts';
import type { Deployment, Platform } from '../helpers/platform.ts';
import { waitFor } from '../helpers/programs.ts';
import { tabOf } from '../helpers/tab.ts';
import type { Tab } from '../helpers/tab.ts';

const SEEN_MS = 60_000;
const HOSTILE = `<img src=x onerror="document.title='taken'"><script>document.title='taken'</script>`;

async function startChromium(): Promise<{ readonly tab: Tab; readonly close: () => Promise<void> }> {
  const browser = await startBrowser();
  const context = await browser.newContext();
  return { tab: tabOf(await context.newPage()), close: () => browser.close() };
}

const BROWSERS = { Chromium: startChromium, Firefox: startFirefox };

interface World {
  readonly hostile: Deployment;
  readonly says: Deployment;
}

const test = base
  .extend('world', { scope: 'file' }, async ({ platform }): Promise<World> => {
    await writeConsoleIfStale();
    const [hostile, says] = await Promise.all([
      platform.deploy({
        app: 'hostile.py',
        handler: 'app',
        name: 'hostile',
        stubType: 'asgi/deployment',
        concurrentRequests: 20,
        keepWarmSeconds: 300,
        authorized: false,
      }),
      platform.deploy({ app: 'printing.py', handler: 'say', name: 'says', keepInputs: true }),
    ]);
    return { hostile, says };
  })
  .extend('tabs', { scope: 'file' }, async ({ platform: _platform }, { onCleanup }) => {
    const started = new Map<keyof typeof BROWSERS, ReturnType<typeof startFirefox>>();
    onCleanup(async () => {
      for (const one of started.values()) await one.then(({ close }) => close());
    });
    return async (name: keyof typeof BROWSERS): Promise<Tab> => {
      const one = started.get(name) ?? BROWSERS[name]();
      started.set(name, one);
      return (await one).tab;
    };
  })
  .extend('front', async ({ platform }, { onCleanup }): Promise<Front> => {
    const front = new Front();
    onCleanup(() => front.close());
    await front.leadsTo(platform.httpAddress, 'X-Forwarded-For: 127.0.0.1');
    return front;
  });

const codeFor = async (platform: Platform, token = platform.token): Promise<string> => {
  return new URL(await linkOf(platform, token)).hash;
};

const sees = (tab: Tab, expression: string): Promise<boolean> =>
  waitFor(async () => (await tab.evaluate<boolean>(expression).catch(() => false)) === true, expression, SEEN_MS);
const HEADING = (text: string): string =>
  `[...document.querySelectorAll('h1, h2')].some((one) => one.textContent.includes(${JSON.stringify(text)}))`;

async function signIn(platform: Platform, tab: Tab, origin: string): Promise<void> {
  await tab.goto(`${origin}/console/enter${await codeFor(platform)}`);
  await sees(tab, `${HEADING('Overview')} || ${HEADING('Change the session')}`);
  // A browser with a session is asked first.
  await tab.evaluate(`document.querySelector('main.enter button.first')?.click()`);
  await sees(tab, HEADING('Overview'));
}

/** Tries of a page against the console of an origin: each says what came of it. */
const tries = (origin: string, entry: string, workspaceId: string): string => `(async () => {
  const told = (work) => Promise.resolve().then(work).then((value) => value ?? 'done', (error) => error.name);
  const ask = (path, init) => told(() => fetch(${JSON.stringify(origin)} + path, { credentials: 'include', ...init }).then((answer) => answer.type + ' ' + answer.status));
  const opened = window.open(${JSON.stringify(origin)} + '/console/');
  const frame = document.createElement('iframe');
  const framed = new Promise((resolve) => { frame.onload = resolve; setTimeout(resolve, 5000); });
  frame.src = ${JSON.stringify(origin)} + '/console/';
  document.body.append(frame);
  await framed;
  return {
    key: await told(() => localStorage.getItem('longshore-console-key') ?? 'none'),
    cookie: await told(() => document.cookie.includes('longshore_console') ? 'seen' : 'none'),
    session: await ask('/console/session'),
    api: await ask('/console/api/v1/session', { headers: { 'x-longshore-console': 'guess' } }),
    blind: await ask('/console/api/v1/token/${workspaceId}', { method: 'POST', mode: 'no-cors', body: '{"name":"stolen"}' }),
    out: await ask('/console/session', { method: 'DELETE' }),
    opened: await told(() => opened === null ? 'none' : opened.document.title),
    framed: await told(() => frame.contentDocument === null ? 'none' : frame.contentDocument.title),
    script: await told(() => import(${JSON.stringify(origin)} + ${JSON.stringify(entry)})),
  };
})()`;

/** Answers in which nothing was read and nothing was done: a refusal that the page may read, or none that it may. */
const NOTHING_READ = {
  session: 'TypeError',
  api: 'TypeError',
  blind: expect.stringMatching(/^(?:opaque 0|TypeError)$/) as string,
  out: 'TypeError',
  opened: expect.stringMatching(/^(?:SecurityError|none|TypeError)$/) as string,
  framed: expect.stringMatching(/^(?:none|SecurityError|TypeError)$/) as string,
  script: 'TypeError',
};

describe.each(Object.keys(BROWSERS) as (keyof typeof BROWSERS)[])('in %s', (name) => {
  /** The session is as it was, and nothing was registered or made by its right. */
  async function isUntouched(platform: Platform, tab: Tab, origin: string): Promise<void> {
    await tab.goto(`${origin}/console/`);
    await sees(tab, HEADING('Overview'));
    expect(await tab.evaluate('navigator.serviceWorker.getRegistrations().then((all) => all.length)')).toBe(0);
    expect((await platform.call(`/api/v1/token/${platform.workspaceId}`)).text).not.toContain('stolen');
    const own = (await tab.cookies()).filter(({ name }) => name === 'longshore_console');
    expect(own.map(({ path, value }) => [path, value === 'tossed'])).toEqual([['/console', false]]);
  }

  /** Sends the sign-in of somebody else by a form, as a page elsewhere would. */
  async function sendsForeignSignIn(platform: Platform, tab: Tab, origin: string): Promise<void> {
    const made = jsonOf<{ readonly token: string }>(
      await platform.call('/api/v1/workspace', { body: { name: `attacker-${Date.now()}` } }),
    );
    const code = (await codeFor(platform, made.token)).slice(1);
    await tab.evaluate(`(() => {
      const form = document.createElement('form');
      Object.assign(form, { method: 'post', enctype: 'text/plain', action: ${JSON.stringify(`${origin}/console/session`)} });
      const field = document.createElement('input');
      Object.assign(field, { name: ${JSON.stringify(`{"code":"${code}","x":"`)}, value: '"}' });
      form.append(field);
      document.body.append(form);
      form.submit();
    })()`);
    await sees(tab, `document.body !== null && document.body.textContent.includes('foreign_page')`);
  }

  test('a public application at the address of the console reads and does nothing there', async ({
    platform,
    world,
    front,
    tabs,
  }) => {
    const tab = await tabs(name);
    await signIn(platform, tab, front.url);
    const entry = new URL(await tab.evaluate<string>('document.querySelector("script[src]").src')).pathname;
    await tab.goto(`${front.url}/asgi/public/${world.hostile.stubId}/`);
    await tab.evaluate(`document.querySelector('a').click()`);
    await sees(tab, `document.querySelector('#next') !== null`);
    expect(await tab.evaluate('self.origin')).toBe('null');
    expect(await tab.evaluate(tries(front.url, entry, platform.workspaceId))).toEqual({
      ...NOTHING_READ,
      key: 'SecurityError',
      cookie: 'SecurityError',
    });
    expect((await tab.frames()).join(' ')).not.toContain('/w/');
    await sendsForeignSignIn(platform, tab, front.url);
    await isUntouched(platform, tab, front.url);
  }, 240_000);

  test('one on a host of its own does not either', async ({ platform, world, tabs }) => {
    const tab = await tabs(name);
    await signIn(platform, tab, platform.url);
    const entry = new URL(await tab.evaluate<string>('document.querySelector("script[src]").src')).pathname;
    await tab.goto(`http://${world.hostile.stubId}.localhost:${new URL(platform.url).port}/`);
    await sees(tab, `document.querySelector('#next') !== null`);
    expect(await tab.evaluate(tries(platform.url, entry, platform.workspaceId))).toEqual({
      ...NOTHING_READ,
      key: 'none',
      cookie: 'none',
    });
    expect((await tab.frames()).join(' ')).not.toContain('/w/');
    await sendsForeignSignIn(platform, tab, platform.url);
    await isUntouched(platform, tab, platform.url);
  }, 240_000);

  test('markup, codes of terminals, turned and endless lines are text', async ({ platform, world, tabs }) => {
    const tab = await tabs(name);
    await signIn(platform, tab, platform.url);
    const home = new URL(await tab.evaluate<string>('location.href'));
    const turned = `\u202e${HOSTILE}\u2066\u001b[31mred\u001b]0;taken\u0007\u0000`;
    const ends = [
      await platform.invoke(world.says, { text: HOSTILE, times: 20_000 }),
      await platform.invoke(world.says, { text: turned }),
    ];
    for (const { taskId } of ends) {
      await platform.taskIs(taskId, 'COMPLETE');
      await tab.goto(`${home.href}/tasks/${taskId}`);
      await sees(tab, HEADING('Log'));
      await sees(tab, `document.querySelector('.lines')?.textContent.includes('onerror') === true`);
      const seen = await tab.evaluate<{
        readonly text: string;
        readonly images: number;
        readonly scripts: number;
        readonly title: string;
      }>(
        `({ text: document.body.textContent, images: document.images.length, scripts: document.scripts.length, title: document.title })`,
      );
      expect(seen).toMatchObject({ images: 0, scripts: 1, title: expect.stringContaining('Task') as string });
      // oxlint-disable-next-line no-control-regex
      expect(seen.text).not.toMatch(/[\u0000\u001b\u202e\u2066]/);
      expect(seen.text.length).toBeLessThan(1_000_000);
    }
    await tab.goto(`${home.href}/logs`);
    await sees(tab, `document.querySelector('.lines')?.textContent.includes('\\\\u202e') === true`);
    expect(await tab.evaluate('[document.images.length, document.scripts.length]')).toEqual([0, 1]);
  }, 240_000);
});
