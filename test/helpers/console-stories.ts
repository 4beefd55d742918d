// Stories of the web console: Chromium on a real scheduler and agent, sign-in, clicks that are counted, axe. In each
// story the page breaks no rule of its policy, logs no error and asks nobody else.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Locator, Page } from 'playwright-core';
import { expect } from 'vitest';
import { test as base } from './browser.ts';
import { jsonOf } from './platform.ts';
import type { Platform } from './platform.ts';

export const SEEN_MS = 20_000;
const AXE = readFileSync(join(import.meta.dirname, '../../node_modules/axe-core/axe.min.js'), 'utf8');

export const test = base.extend('faults', async ({ page, platform }, { onCleanup }): Promise<readonly string[]> => {
  const faults: string[] = [];
  page.on('console', (message) => {
    if (message.type() === 'error' && !isRefusal(message.text()) && !isOfMachine(message.text()))
      faults.push(message.text());
  });
  page.on('pageerror', (error) => faults.push(String(error)));
  page.on('request', (request) => {
    const url = request.url();
    if (!url.startsWith(platform.url) && !url.startsWith('data:') && !url.startsWith('blob:'))
      faults.push(`asked ${url}`);
  });
  await page.exposeFunction('toldOfViolation', (text: string) => faults.push(text));
  await page.addInitScript(`addEventListener('securitypolicyviolation', (event) =>
      toldOfViolation(event.violatedDirective + ' ' + event.blockedURI))`);
  onCleanup(() => expect(faults).toEqual([]));
  return faults;
});

/** Chromium drops what it loads when a container's network appears on the machine. The console asks again. */
const isOfMachine = (text: string): boolean => text.includes('net::ERR_NETWORK_CHANGED');

/** Chromium logs each answer above 399: those of a session that is over, and of a task that is gone, are expected. */
const isRefusal = (text: string): boolean => /status of 40[14]/.test(text);

export async function linkOf(platform: Platform, token = platform.token): Promise<string> {
  const answer = await platform.call('/api/v1/console/link', { method: 'POST', token });
  return jsonOf<{ readonly url: string }>(answer).url;
}

export async function signIn(platform: Platform, page: Page): Promise<void> {
  await page.goto(await linkOf(platform));
  await page.getByRole('heading', { name: 'Overview' }).waitFor({ timeout: SEEN_MS });
}

/** Counts the clicks of a story. */
export function clicker(seenMs = SEEN_MS) {
  let clicks = 0;
  return {
    click: async (where: Locator): Promise<void> => {
      clicks += 1;
      await where.click({ timeout: seenMs });
    },
    count: () => clicks,
  };
}

export const row = (page: Page, name: string): Locator =>
  page.locator('.rows > li', { has: page.getByRole('link', { name, exact: true }) });
export const sees = (where: Locator): Promise<void> => where.first().waitFor({ timeout: SEEN_MS });

/** Faults of accessibility that axe finds on the page as it is. */
export async function axe(page: Page): Promise<readonly string[]> {
  await page.evaluate(AXE);
  return page.evaluate(
    `axe.run(document, { resultTypes: ['violations'] }).then(({ violations }) =>
      violations.map(({ id, nodes }) => id + ': ' + nodes.map(({ html }) => html).join(' ')))`,
  );
}
