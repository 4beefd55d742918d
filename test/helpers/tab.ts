// A tab of a browser, whichever it is: as much of it as tests need that run in several.
import type { Page } from 'playwright-core';

export interface Cookie {
  readonly name: string;
  readonly domain: string;
  readonly path: string;
  readonly value: string;
}

export interface Tab {
  /** Loads an address, and waits until it is loaded. */
  readonly goto: (url: string) => Promise<void>;
  /** The value of an expression in the page; it may be a promise, and must be JSON. */
  readonly evaluate: <T = unknown>(expression: string) => Promise<T>;
  readonly cookies: () => Promise<readonly Cookie[]>;
  /** Addresses of the page's frames. */
  readonly frames: () => Promise<readonly string[]>;
}

export const tabOf = (page: Page): Tab => ({
  goto: async (url) => void (await page.goto(url)),
  evaluate: (expression) => page.evaluate(expression),
  cookies: () => page.context().cookies(),
  frames: () =>
    Promise.resolve(
      page
        .mainFrame()
        .childFrames()
        .map((frame) => frame.url()),
    ),
});
