// Debian packages in an image that is built, from a real mirror: the example `qrcode`.
import { copyFileSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'vitest';
import { MAIN, ROOT, jsonOf, test } from '../helpers/platform.ts';
import { runProgram } from '../helpers/services.ts';

test('a program of Debian makes a QR code', { timeout: 240_000 }, async ({ platform }) => {
  const folder = join(platform.directory, 'qrcode');
  mkdirSync(folder);
  copyFileSync(join(ROOT, 'examples/qrcode/app.py'), join(folder, 'app.py'));
  const env = {
    PATH: process.env['PATH'],
    HOME: platform.directory,
    LONGSHORE_URL: platform.url,
    LONGSHORE_TOKEN: platform.token,
  };
  const said = await runProgram(process.execPath, [MAIN, 'deploy', 'app.py', '--json'], { cwd: folder, env });
  const { url } = JSON.parse(said.slice(said.indexOf('{\n'))) as { readonly url: string };
  const { code, by } = jsonOf(await platform.call(url, { body: { text: 'https://example.com' } }));
  expect(code).toMatch(/^<\?xml [^]*<svg [^]*<\/svg>/);
  expect(by).toMatch(/^qrencode version \d/);
});
