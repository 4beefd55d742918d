// Terminals of the web console in Chromium: a shell in a sandbox and in a deployment's container. Keys, sizes, output
// that is hostile or too fast, and what ends them.
import type { Page } from 'playwright-core';
import { expect } from 'vitest';
import { writeConsoleIfStale } from '../helpers/built-console.ts';
import { SEEN_MS, axe, clicker, linkOf, row, sees, signIn, test as base } from '../helpers/console-stories.ts';
import { jsonOf } from '../helpers/platform.ts';
import type { Platform } from '../helpers/platform.ts';
import { makeSandbox, runIn, sandboxStub, stopSandbox } from '../helpers/sandboxes.ts';
import { waitFor } from '../helpers/services.ts';

const test = base.extend('box', { scope: 'file' }, async ({ platform }): Promise<string> => {
  await writeConsoleIfStale();
  return aBox(platform);
});

async function aBox(platform: Platform): Promise<string> {
  const box = await makeSandbox(platform, await sandboxStub(platform, { cpu: 500, keepWarmSeconds: 3600 }));
  await platform.gateway(`/pods/${box}/connect`, {});
  return box;
}

/** The lines that the terminal shows. */
const shown = (page: Page): Promise<string> => page.locator('.xterm-rows').innerText();
const shows = (page: Page, text: string | RegExp): Promise<boolean> =>
  waitFor(async () => new RegExp(text).test(await shown(page)), `it shows ${String(text)}`, SEEN_MS * 2);
const status = (page: Page, text: string | RegExp): Promise<void> => sees(page.getByRole('status').getByText(text));

async function open(platform: Platform, page: Page, id: string): Promise<void> {
  await page.goto(`${platform.url}/console/terminal/w/${encodeURIComponent(id)}`);
  await status(page, /^Connected/);
}

async function say(page: Page, line: string): Promise<void> {
  await page.keyboard.type(line);
  await page.keyboard.press('Enter');
}

test('a shell is two clicks away, follows the size of the window, and says how it ended', async ({
  platform,
  box,
  page,
  faults: _faults,
}) => {
  await signIn(platform, page);
  const { click, count } = clicker();
  await click(page.getByRole('link', { name: 'Containers' }));
  const [tab] = await Promise.all([
    page.waitForEvent('popup'),
    click(page.getByRole('link', { name: `Shell in ${box.slice(-8)}, in a new tab` })),
  ]);
  expect(count()).toBe(2);
  const violations: string[] = [];
  tab.on('console', (message) => {
    if (message.type() === 'error') violations.push(message.text());
  });
  tab.on('pageerror', (error) => violations.push(String(error)));
  await status(tab, /^Connected/);
  expect(tab.url()).not.toMatch(/ticket|token|auth/);
  await say(tab, 'tty && echo sum-$((40+2))');
  await shows(tab, '/dev/pts/');
  await shows(tab, 'sum-42');
  let asked = 0;
  const columns = async (): Promise<number> => {
    const mark = `wide${(asked += 1)}`;
    await say(tab, `echo ${mark}-$(stty size | cut -d' ' -f2)-is`);
    await shows(tab, new RegExp(`${mark}-\\d+-is`));
    return Number(new RegExp(`${mark}-(\\d+)-is`).exec(await shown(tab))?.[1]);
  };
  const wide = await columns();
  await tab.setViewportSize({ width: 700, height: 600 });
  await waitFor(async () => (await columns()) < wide, 'it follows the size', SEEN_MS);
  await say(tab, "sh -c 'echo up-$((1+2)); sleep 1000'");
  await shows(tab, 'up-3');
  await tab.keyboard.press('Control+c');
  await say(tab, 'echo code-$?');
  await shows(tab, 'code-130');
  expect(await axe(tab)).toEqual([]);
  // The keyboard leads out of the terminal, too.
  await tab.keyboard.press('Shift+F6');
  expect(await tab.evaluate('document.activeElement.textContent')).toBe('Type in the terminal');
  await tab.keyboard.press('Enter');
  await say(tab, 'exit 7');
  await status(tab, 'The shell ended with exit code 7.');
  await tab.getByRole('button', { name: 'Open another shell' }).click();
  await status(tab, /^Connected/);
  await sees(tab.getByText(`longshore container shell ${box}`));
  expect(violations).toEqual([]);
});

test('output is inert: no title, no link, no clipboard, no markup', async ({ platform, box, page, faults }) => {
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write'], { origin: platform.url });
  await signIn(platform, page);
  await open(platform, page, box);
  const title = await page.title();
  await page.evaluate("navigator.clipboard.writeText('mine')");
  const hostile = [
    String.raw`\033]0;taken\007\033]2;taken\007`,
    String.raw`\033]52;c;dGFrZW4=\007`,
    String.raw`\033]8;;https://evil.example.org/\007press-me\033]8;;\007`,
    String.raw`<img src=x onerror="document.title=1"> https://evil.example.org/x`,
    String.raw`\033[21t\033[?1049h\033[?1049l\033[3;0;0t\033[9;1t`,
  ];
  await say(page, `printf '%b' '${hostile.join('')}'; echo over-$((1+1))`);
  await shows(page, 'over-2');
  const place = await page.locator('.xterm-rows').getByText('press-me').last().boundingBox();
  const [x, y] = [(place?.x ?? 0) + 10, (place?.y ?? 0) + 5];
  await page.mouse.click(x, y);
  await page.keyboard.down('Control');
  await page.mouse.click(x, y);
  await page.keyboard.up('Control');
  expect(await page.title()).toBe(title);
  expect(await page.evaluate('navigator.clipboard.readText()')).toBe('mine');
  expect([await page.locator('.shell img, .shell a').count(), page.context().pages().length]).toEqual([0, 1]);
  // Colours of any value come by a style of the cell, which this page alone allows.
  await say(page, String.raw`printf '\033[38;2;200;30;40mred-%s\033[0m\n' text`);
  await shows(page, 'red-text');
  expect(faults).toEqual([]);
});

test('output that comes too fast neither fills the page nor ends the shell', async ({
  platform,
  box,
  page,
  faults: _faults,
}) => {
  await signIn(platform, page);
  await open(platform, page, box);
  await say(page, 'head -c 60000000 /dev/zero | tr "\\\\0" x; echo; echo whole-$((3*4))');
  await waitFor(async () => (await shown(page)).includes('whole-12'), 'the end is shown', SEEN_MS * 6);
  await status(page, /^Connected/);
  await say(page, 'echo still-$((5*5))');
  await shows(page, 'still-25');
});

test('a tab that closes hangs its shell up; a container that ends is told', async ({
  platform,
  page,
  box,
  faults: _faults,
}) => {
  const short = await aBox(platform);
  await signIn(platform, page);
  await open(platform, page, box);
  await say(page, "trap 'echo hup >> /tmp/closed; exit' HUP; echo ready-$((6*7)); while :; do sleep 0.1; done");
  await shows(page, 'ready-42');
  await page.goto('about:blank');
  await waitFor(
    async () => (await runIn(platform, box, 'cat /tmp/closed 2>/dev/null || true')).stdout === 'hup\n',
    'it is hung up',
    SEEN_MS * 2,
  );
  await open(platform, page, short);
  await say(page, 'echo here-$((8*8))');
  await shows(page, 'here-64');
  expect(await stopSandbox(platform, short)).toBe(true);
  await waitFor(
    async () => /^The (terminal is over|shell ended|shell was ended)/.test(await page.getByRole('status').innerText()),
    'the end is told',
    SEEN_MS * 6,
  );
});

test('a token that is switched off ends the terminal with a sentence, and no refusal of another token is met', async ({
  platform,
  box,
  page,
  faults: _faults,
}) => {
  const ws = platform.workspaceId;
  const made = jsonOf<{ readonly id: string; readonly key: string }>(
    await platform.call(`/api/v1/token/${ws}`, { body: { name: 'for a shell' } }),
  );
  await page.goto(await linkOf(platform, made.key));
  await sees(page.getByRole('heading', { name: 'Overview' }));
  await open(platform, page, box);
  await platform.call(`/api/v1/token/${ws}/${made.id}`, { method: 'PATCH', body: { active: false } });
  await status(page, /^The terminal is over: the token was revoked/);
  // Who may not reach into containers is shown no way there.
  const reader = jsonOf<{ readonly key: string }>(
    await platform.call(`/api/v1/token/${ws}`, { body: { scopes: ['read'] } }),
  );
  await page.goto(await linkOf(platform, reader.key));
  await page
    .getByRole('button', { name: 'Sign in by the link' })
    .click({ timeout: 3_000 })
    .catch(() => undefined);
  await sees(page.getByRole('link', { name: 'Containers' }));
  await page.getByRole('link', { name: 'Containers' }).click();
  await sees(page.getByText(box));
  expect(await page.getByRole('link', { name: /^Shell in/ }).count()).toBe(0);
});

test('the containers of a deployment have shells, too', async ({ platform, box: _box, page, faults: _faults }) => {
  const greets = await platform.deploy({ app: 'failing.py', handler: 'hello', name: 'greets', keepWarmSeconds: 600 });
  await platform.invoke(greets);
  await signIn(platform, page);
  await row(page, 'greets').getByRole('link', { name: 'greets', exact: true }).click();
  await page.locator('summary', { hasText: '1 container' }).click({ timeout: SEEN_MS });
  const [tab] = await Promise.all([
    page.waitForEvent('popup'),
    page.getByRole('link', { name: /^Shell in/ }).click({ timeout: SEEN_MS }),
  ]);
  await status(tab, /^Connected/);
  await say(tab, 'echo in-$((7*7))');
  await shows(tab, 'in-49');
  await tab.setViewportSize({ width: 360, height: 740 });
  for (const colorScheme of ['light', 'dark'] as const) {
    await tab.emulateMedia({ colorScheme });
    expect([colorScheme, await axe(tab)]).toEqual([colorScheme, []]);
  }
  expect(await tab.evaluate('document.documentElement.scrollWidth')).toBe(360);
});
