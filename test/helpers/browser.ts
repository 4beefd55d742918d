// A browser for tests: Chromium as this system packages it, driven by playwright-core, which downloads nothing.
import { chromium } from 'playwright-core';
import type { Browser } from 'playwright-core';
import { findProgram, missingService } from './programs.ts';

const ARGUMENTS = [
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
  return chromium.launch({ executablePath, args: ARGUMENTS });
}
