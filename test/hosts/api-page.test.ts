// The page of the API's description in a browser: complete without a request to any other place, and a call with a
// token answers.
import { describe, expect } from 'vitest';
import type { Page } from 'playwright-core';
import { test } from '../helpers/browser.ts';

/** Requests and complaints of a page. */
interface Watched {
  readonly asked: string[];
  readonly complaints: string[];
}

interface Viewer {
  getSystem(): { readonly specSelectors: { operations(): { readonly size: number } } };
}

function watch(page: Page): Watched {
  const watched: Watched = { asked: [], complaints: [] };
  page.on('request', (request) => watched.asked.push(request.url()));
  page.on('console', (message) => {
    if (message.type() === 'error' || message.type() === 'warning') watched.complaints.push(message.text());
  });
  page.on('pageerror', (error) => watched.complaints.push(String(error)));
  page.on('requestfailed', (request) => {
    // A reload cuts off requests under way.
    const text = request.failure()?.errorText ?? '';
    if (text !== 'net::ERR_ABORTED') watched.complaints.push(`${request.url()} ${text}`);
  });
  return watched;
}

describe('the page of the API', () => {
  test('shows every call, asks nobody else for anything, and says nothing on the console', async ({
    platform,
    page,
  }) => {
    const { asked, complaints } = watch(page);
    await page.goto(`${platform.url}/docs`);
    const { paths } = (await (await fetch(`${platform.url}/openapi.json`)).json()) as { readonly paths: object };
    const calls = Object.values(paths).flatMap((methods: object) => Object.keys(methods));
    // Calls below the visible part are rendered when somebody scrolls to them; the viewer knows them all.
    await page.waitForSelector('.opblock');
    const known = await page.evaluate(() => {
      const viewer = (globalThis as unknown as { readonly ui: Viewer }).ui;
      return viewer.getSystem().specSelectors.operations().size;
    });
    expect(known).toBe(calls.length);
    // The longest of all descriptions is opened.
    await page.goto(`${platform.url}/docs#/gateway/GetOrCreateStub`);
    await page.reload();
    await page.waitForSelector('.opblock.is-open .response');
    const { origin } = new URL(platform.url);
    expect(asked.filter((url) => !url.startsWith('data:') && new URL(url).origin !== origin)).toEqual([]);
    expect(complaints).toEqual([]);
  });

  test('sends a call with the token that was entered, and shows its answer', async ({ platform, page }) => {
    const { complaints } = watch(page);
    await page.goto(`${platform.url}/docs#/workspace/getWorkspaceCurrent`);
    await page.waitForSelector('.opblock.is-open');
    const row = '.opblock.is-open .live-responses-table tbody';
    const isAnswered = async (status: string): Promise<void> => {
      await page.locator('.opblock.is-open .execute').click();
      await page.locator(`${row} .response-col_status`, { hasText: status }).first().waitFor();
    };
    await page.locator('.opblock.is-open .try-out__btn').click();
    await isAnswered('401');
    await page.locator('.opblock.is-open .authorization__btn').click();
    await page.locator('.auth-container input').fill(platform.token);
    await page.locator('.auth-btn-wrapper .authorize').click();
    await page.locator('.auth-btn-wrapper .btn-done').click();
    await isAnswered('200');
    const answer = await page.locator(`${row} .response-col_description`).first().innerText();
    expect(answer).toContain('"external_id"');
    // The browser itself reports the call that was refused.
    expect(complaints.filter((text) => !text.includes('401'))).toEqual([]);
    expect(await page.evaluate(() => localStorage.length + sessionStorage.length)).toBe(0);
  });

  test('may load nothing from elsewhere, and no other page may frame it', async ({ platform, page }) => {
    const head = await fetch(`${platform.url}/docs`);
    const policy = head.headers.get('content-security-policy') ?? '';
    expect(policy).toContain("default-src 'none'");
    expect(policy).not.toMatch(/unsafe|\*|https?:/);
    expect(policy).toContain("frame-ancestors 'none'");
    await page.goto(`${platform.url}/docs`);
    const outcome = await page.evaluate(() =>
      fetch('http://127.0.0.1:9/').then(
        () => 'sent',
        (error: unknown) => String(error),
      ),
    );
    expect(outcome).toContain('Failed to fetch');
    for (const file of ['swagger-ui.js', 'package.json', '..%2Fpackage.json', '%2e%2e%2fpackage.json']) {
      expect([file, (await fetch(`${platform.url}/docs/${file}`)).status]).toEqual([file, 404]);
    }
    const bundle = await fetch(`${platform.url}/docs/swagger-ui-bundle.js`);
    const tag = bundle.headers.get('etag') ?? '';
    expect((await bundle.arrayBuffer()).byteLength).toBeGreaterThan(1_000_000);
    const again = await fetch(`${platform.url}/docs/swagger-ui-bundle.js`, { headers: { 'if-none-match': tag } });
    expect(again.status).toBe(304);
  });
});
