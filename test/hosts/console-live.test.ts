// The console's live stream in Chromium, on a real scheduler and agent: ten tabs by HTTP/1.1 with one stream, a hidden
// tab, a browser without shared workers, a scheduler that restarts, and a token that is switched off.
import type { BrowserContext, Locator, Page } from 'playwright-core';
import { expect } from 'vitest';
import { writeConsoleIfStale } from '../helpers/built-console.ts';
import { test as base } from '../helpers/browser.ts';
import { axe, linkOf, row } from '../helpers/console-stories.ts';
import { jsonOf } from '../helpers/platform.ts';
import type { Deployment, Platform } from '../helpers/platform.ts';
import { waitFor } from '../helpers/programs.ts';

const SEEN_MS = 60_000;

interface World {
  readonly hello: Deployment;
  readonly failing: Deployment;
  readonly printing: Deployment;
}

const test = base.extend('world', { scope: 'file' }, async ({ platform }): Promise<World> => {
  await writeConsoleIfStale();
  const [hello, failing, printing] = await Promise.all([
    platform.deploy({ app: 'failing.py', handler: 'hello', name: 'greets' }),
    platform.deploy({ app: 'failing.py', handler: 'raises', name: 'raises' }),
    platform.deploy({ app: 'printing.py', handler: 'count', name: 'prints' }),
  ]);
  await platform.invoke(hello, { name: 'you' });
  return { hello, failing, printing };
});

async function signIn(platform: Platform, page: Page, token = platform.token): Promise<string> {
  await page.goto(await linkOf(platform, token));
  await sees(page.getByRole('heading', { name: 'Overview' }));
  return page.url();
}

const sees = (where: Locator): Promise<void> => where.first().waitFor({ timeout: SEEN_MS });

/** Streams of this kind that the scheduler has open. */
async function streams(platform: Platform): Promise<number> {
  const { text } = await platform.call('/metrics');
  return Number(/^longshore_scheduler_event_streams\{kind="live"\} (\d+)$/m.exec(text)?.[1]);
}
const streamsAre = (platform: Platform, count: number): Promise<unknown> =>
  waitFor(async () => (await streams(platform)) === count, `${count} streams are open`, SEEN_MS);

/** Makes a tab believe that it is hidden, or in view. */
const show = (page: Page, state: 'hidden' | 'visible'): Promise<unknown> =>
  page.evaluate(`Object.defineProperty(document, 'visibilityState', { value: '${state}', configurable: true });
    document.dispatchEvent(new Event('visibilitychange'))`);

test('ten tabs are live by one stream, and none is open when all are hidden', async ({ platform, world, page }) => {
  const home = await signIn(platform, page);
  const context: BrowserContext = page.context();
  const others: Page[] = [];
  for (let at = 0; at < 9; at += 1) {
    const tab = await context.newPage();
    others.push(tab);
    await tab.goto([home, `${home}/tasks`, `${home}/logs`][at % 3] ?? home);
    await sees(tab.getByRole('heading', { level: 1 }));
  }
  const tabs = [page, ...others];
  for (const [at, tab] of others.entries())
    await sees([row(tab, 'greets'), tab.locator('.tasks > li'), tab.getByText('● live')][at % 3] as Locator);
  await streamsAre(platform, 1);
  const [failed] = await Promise.all([
    platform.invoke(world.failing, {}),
    platform.invoke(world.printing, { lines: 3 }),
  ]);
  expect(failed.status).toBe(500);
  for (const [at, tab] of tabs.entries()) {
    // The first is an overview; the others take turns.
    const kind = at === 0 ? 0 : (at - 1) % 3;
    await sees(
      [
        row(tab, 'raises').getByText('FAILING'),
        tab.locator('.tasks > li', { hasText: failed.taskId.slice(0, 8) }),
        tab.locator('.lines').getByText('line 2'),
      ][kind] as Locator,
    );
  }
  expect(await streams(platform)).toBe(1);
  for (const tab of tabs) await show(tab, 'hidden');
  await streamsAre(platform, 0);
  await show(page, 'visible');
  await streamsAre(platform, 1);
  await Promise.all(tabs.slice(1).map((tab) => tab.close()));
});

test('a browser without shared workers has a stream of its own', async ({ platform, world, page }) => {
  await page.addInitScript('delete globalThis.SharedWorker');
  const home = await signIn(platform, page);
  await sees(row(page, 'greets'));
  await streamsAre(platform, 1);
  await page.goto(`${home}/tasks`);
  const called = await platform.invoke(world.hello, { name: 'again' });
  await sees(page.locator('.tasks > li', { hasText: called.taskId.slice(0, 8) }));
});

test('the overview and a deployment show the calls of the hour', async ({ platform, world, page }) => {
  await platform.invoke(world.hello, { name: 'counted' });
  const home = await signIn(platform, page);
  await sees(row(page, 'greets').getByText(/\d+ calls? in the hour, no errors/));
  await sees(row(page, 'greets').getByRole('img', { name: /calls by five minutes: [\d, ]+/ }));
  await page.goto(`${home}/d/greets`);
  await sees(page.getByRole('heading', { name: 'Calls of the last hour' }));
  await sees(page.getByRole('row', { name: /^ran \d/ }));
  expect(await axe(page)).toEqual([]);
});

test('a task is shown as it changes, and lines of it as they come', async ({ platform, world, page }) => {
  const home = await signIn(platform, page);
  const called = await platform.invoke(world.printing, { lines: 2 });
  await page.goto(`${home}/tasks/${called.taskId}`);
  await sees(page.getByText('COMPLETE'));
  await sees(page.locator('.lines').getByText('line 1'));
});

test('a deployment and a task are found by the keyboard alone, and single keys can be switched off', async ({
  platform,
  world,
  page,
}) => {
  const home = await signIn(platform, page);
  await sees(row(page, 'greets'));
  const called = await platform.invoke(world.hello, { name: 'found' });
  await platform.taskIs(called.taskId, 'COMPLETE');
  await page.keyboard.press('/');
  const box = page.getByRole('dialog', { name: 'Search' });
  await page.keyboard.type('gree');
  await sees(box.getByRole('link', { name: 'greets' }));
  expect(await axe(page)).toEqual([]);
  await page.keyboard.press('Enter');
  await page.waitForURL(`${home}/d/greets`);
  await page.keyboard.press('Control+k');
  await page.keyboard.type(called.taskId.slice(0, 8));
  await sees(box.getByText('task'));
  await page.keyboard.press('Enter');
  await page.waitForURL(`${home}/tasks/${called.taskId}`);
  await box.waitFor({ state: 'detached' });
  await page.keyboard.press('g');
  await page.keyboard.press('d');
  await page.waitForURL(home);
  await sees(row(page, 'greets'));
  await page.keyboard.press('j');
  expect(await page.evaluate('document.activeElement.closest(".rows > li") !== null')).toBe(true);
  await page.keyboard.press('?');
  const help = page.getByRole('dialog', { name: 'Keys' });
  await help.getByRole('button', { name: 'Single keys: on' }).click();
  await page.keyboard.press('Escape');
  await help.waitFor({ state: 'detached' });
  await page.keyboard.press('g');
  await page.keyboard.press('t');
  await page.keyboard.press('Control+k');
  await sees(box);
  expect(page.url()).toBe(home);
});

test('a token that is switched off ends the session within seconds', async ({ platform, world: _world, page }) => {
  const tokens = `/api/v1/token/${platform.workspaceId}`;
  const made = jsonOf<{ readonly id: string; readonly key: string }>(
    await platform.call(tokens, { body: { name: 'soon gone' } }),
  );
  await signIn(platform, page, made.key);
  await sees(row(page, 'greets'));
  await platform.call(`${tokens}/${made.id}`, { method: 'DELETE' });
  await sees(page.getByText('You were signed out'));
});

test('a scheduler that restarts is named with the time of what is shown, and is back without a reload', async ({
  platform,
  world,
  page,
}) => {
  const home = await signIn(platform, page);
  await sees(row(page, 'greets'));
  await page.evaluate('globalThis.stayed = true');
  await platform.scheduler.kill();
  await sees(page.getByText(/As of \d+:\d+:\d+: the (scheduler does not answer|connection to the scheduler broke)/));
  await sees(row(page, 'greets'));
  await platform.startScheduler();
  await page.getByText(/As of \d/).waitFor({ state: 'detached', timeout: SEEN_MS });
  expect(await page.evaluate('globalThis.stayed')).toBe(true);
  await page.goto(`${home}/tasks`);
  const called = await waitFor(
    async () => {
      const answer = await platform.invoke(world.hello, { name: 'after' });
      return answer.status === 200 && answer;
    },
    'calls are served again',
    SEEN_MS,
  );
  await sees(page.locator('.tasks > li', { hasText: called.taskId.slice(0, 8) }));
});
