// A browser for tests: Chromium as this system packages it, driven by playwright-core, which downloads nothing.
import { chromium } from 'playwright-core';
import type { Browser, Page } from 'playwright-core';
import { test as base } from './platform.ts';
import { findProgram, missingService } from './programs.ts';

const CHROMIUM_ARGUMENTS = [
  // Chromium refuses to run as root with its sandbox.
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--disable-dev-shm-usage',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];

/** Starts Chromium; names below `localhost` lead to this machine. */
export async function startBrowser(): Promise<Browser> {
  const executablePath = findProgram('chromium') ?? findProgram('google-chrome');
  if (executablePath === undefined) throw missingService('Chromium');
  return chromium.launch({ executablePath, args: CHROMIUM_ARGUMENTS });
}

/** Tests with an installation, a browser for the file, and a page without cookies for each test. */
export const test = base
  .extend('browser', { scope: 'file' }, async ({ platform: _platform }, { onCleanup }): Promise<Browser> => {
    const browser = await startBrowser();
    onCleanup(() => browser.close());
    return browser;
  })
  .extend('page', async ({ browser }, { onCleanup }): Promise<Page> => {
    const context = await browser.newContext();
    onCleanup(() => context.close());
    return context.newPage();
  });
