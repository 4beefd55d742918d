// The web console in Chromium, on a real scheduler and agent: sign-in, and the jobs for which people open it, with the
// clicks that each takes.
import type { Locator } from 'playwright-core';
import { expect } from 'vitest';
import { writeConsoleIfStale } from '../helpers/built-console.ts';
import { SEEN_MS, axe, clicker, linkOf, row, sees, signIn, test as base } from '../helpers/console-stories.ts';
import { jsonOf } from '../helpers/platform.ts';
import type { Deployment } from '../helpers/platform.ts';

const HOSTILE = '<img src=x onerror="document.title=\'taken\'">';

interface World {
  readonly hello: Deployment;
  readonly failing: Deployment;
  readonly printing: Deployment;
  readonly failedTask: string;
}

const test = base.extend('world', { scope: 'file' }, async ({ platform }): Promise<World> => {
  await writeConsoleIfStale();
  const [hello, failing, printing] = await Promise.all([
    platform.deploy({ app: 'failing.py', handler: 'hello', name: 'greets' }),
    platform.deploy({ app: 'failing.py', handler: 'raises', name: 'raises', keepInputs: true }),
    platform.deploy({ app: 'printing.py', handler: 'count', name: 'prints' }),
  ]);
  const [, failed] = await Promise.all([
    platform.invoke(hello, { name: 'you' }),
    platform.invoke(failing, { key: HOSTILE }),
    // A GPU that no machine has: its calls are refused, and the console says why.
    platform.deploy({ app: 'failing.py', handler: 'hello', name: 'waits', gpu: 'H100' }),
  ]);
  expect(failed.status).toBe(500);
  await platform.taskIs(failed.taskId, 'ERROR');
  return { hello, failing, printing, failedTask: failed.taskId };
});

test('a link signs a browser in once, and leaves it no token', async ({
  platform,
  world: _world,
  page,
  faults: _faults,
}) => {
  const link = await linkOf(platform);
  await page.goto(link);
  await sees(page.getByRole('heading', { name: 'Overview' }));
  expect(page.url()).not.toContain('#');
  const stored = JSON.stringify(await page.evaluate('Object.entries(localStorage)'));
  expect(stored).toContain('longshore-console-key');
  const cookies = await page.context().cookies();
  expect(cookies.map(({ name, path, httpOnly, sameSite }) => [name, path, httpOnly, sameSite])).toEqual([
    ['longshore_console', '/console', true, 'Strict'],
  ]);
  expect(stored + JSON.stringify(cookies)).not.toContain('eyJ');
  expect(await page.evaluate('document.cookie')).toBe('');
  await page.reload();
  await sees(page.getByRole('heading', { name: 'Overview' }));
  // The browser that has a session is asked first; the link itself is used up.
  await page.goto('about:blank');
  await page.goto(link);
  await page.getByRole('button', { name: 'Sign in by the link' }).click();
  await sees(page.getByText('this link was used'));
});

test('a page whose script did not come is loaded again', async ({ platform, page }) => {
  let dropped = 0;
  await page.route(/\/assets\/main-[^/]*\.js$/, async (route) => {
    dropped += 1;
    await (dropped === 1 ? route.abort('connectionfailed') : route.continue());
  });
  await page.goto(`${platform.url}/console/`);
  await sees(page.getByRole('button', { name: 'Sign in' }));
  expect(dropped).toBe(2);
});

test('a pasted token signs in; an empty workspace says how to begin; sign-out ends it', async ({
  platform,
  world: _world,
  page,
  faults: _faults,
}) => {
  const made = jsonOf<{ readonly token: string }>(
    await platform.call('/api/v1/workspace', { body: { name: 'fresh' } }),
  );
  await page.goto(`${platform.url}/`);
  await sees(page.getByText('longshore console'));
  await page.getByLabel('Or paste a token').fill('eyJ.not.one');
  await page.getByRole('button', { name: 'Sign in' }).click();
  await sees(page.getByText('no such token'));
  await page.getByLabel('Or paste a token').fill(made.token);
  await page.getByRole('button', { name: 'Sign in' }).click();
  for (const line of ['longshore init', 'longshore deploy', 'longshore invoke']) await sees(page.getByText(line));
  expect(page.url()).toContain('/console/w/fresh');
  await page.getByRole('button', { name: 'Sign out' }).click();
  await sees(page.getByLabel('Or paste a token'));
  expect(await page.evaluate(`localStorage.getItem('longshore-console-key')`)).toBeNull();
});

test('jobs 1 to 5: health, why it waits, live lines, the failed task, its input and attempts', async ({
  platform,
  world,
  page,
  faults: _faults,
}) => {
  await signIn(platform, page);
  // 1: is my deployment healthy? No click.
  await sees(row(page, 'greets').getByText(/HEALTHY|IDLE/));
  await sees(row(page, 'raises').getByText('FAILING'));
  // 2: why does it wait? The sentence without a click, the whole explanation with one.
  await sees(row(page, 'waits').getByText(/GPU|refused/));
  const why = clicker();
  await why.click(row(page, 'waits').getByRole('link', { name: 'Why' }));
  await sees(page.getByRole('heading', { name: 'Next steps' }));
  expect(why.count()).toBe(1);
  // 3: its live lines, with one click; a line comes without another.
  await page.goBack();
  const logs = clicker();
  await logs.click(row(page, 'prints').getByRole('link', { name: 'Logs' }));
  await sees(page.getByText('● live'));
  await platform.invoke(world.printing, { lines: 3 });
  await sees(page.locator('.lines').getByText('line 2'));
  expect(logs.count()).toBe(1);
  // 4: the failed task with its error line, with one click.
  await page.goBack();
  const task = clicker();
  await task.click(row(page, 'raises').getByRole('link', { name: /Last failure/ }));
  await sees(page.getByRole('status').getByText('KeyError'));
  expect(page.url()).toContain(world.failedTask);
  expect(task.count()).toBe(1);
  // 5: its input, result, attempts and lines, with one more. What a caller sent is text, and nothing else.
  for (const heading of ['Attempts', 'Log']) await sees(page.getByRole('heading', { name: heading, exact: true }));
  await task.click(page.getByRole('button', { name: /Show the input/ }));
  await sees(page.getByLabel('Input').getByText('onerror'));
  expect(task.count()).toBe(2);
  expect([await page.locator('img').count(), await page.title()]).toEqual([0, expect.stringContaining('Task')]);
});

test('screens fit a narrow window, in light and dark, and axe finds no fault', async ({
  platform,
  world,
  page,
  faults: _faults,
}) => {
  await page.setViewportSize({ width: 360, height: 740 });
  await signIn(platform, page);
  const home = page.url();
  const screens: readonly (readonly [string, Locator])[] = [
    [home, row(page, 'raises').getByText('FAILING')],
    [`${home}/d/raises`, page.getByRole('heading', { name: 'Versions' })],
    [`${home}/tasks`, page.locator('.tasks > li')],
    [`${home}/tasks/${world.failedTask}`, page.getByRole('heading', { name: 'Attempts' })],
    [`${home}/logs`, page.getByText('● live')],
    [`${home}/tasks/00000000-0000-4000-8000-000000000000`, page.getByRole('alert')],
  ];
  for (const [url, ready] of screens) {
    await page.goto(url);
    await sees(ready);
    expect([url, await page.evaluate('document.documentElement.scrollWidth')]).toEqual([url, 360]);
    for (const colorScheme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme });
      expect([url, colorScheme, await axe(page)]).toEqual([url, colorScheme, []]);
    }
  }
});

test('a token that is switched off ends the session, and the page says so', async ({
  platform,
  world: _world,
  page,
  faults: _faults,
}) => {
  const tokens = `/api/v1/token/${platform.workspaceId}`;
  const made = jsonOf<{ readonly id: string; readonly key: string }>(
    await platform.call(tokens, { body: { name: 'soon gone' } }),
  );
  await page.goto(await linkOf(platform, made.key));
  await sees(page.getByRole('heading', { name: 'Overview' }));
  await platform.call(`${tokens}/${made.id}`, { method: 'DELETE' });
  // The next reading of a list finds out.
  await page.getByText('You were signed out').waitFor({ timeout: 3 * SEEN_MS });
  await sees(page.getByText('longshore console'));
});
