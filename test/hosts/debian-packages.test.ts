// Debian packages in an image that is built: the example `qrcode`. Its base image must have apt-get. The base image of
// set-up has none, so an image of set-up for another test stands in for it.
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'vitest';
import { MAIN, ROOT, jsonOf, test } from '../helpers/platform.ts';
import { runProgram } from '../helpers/services.ts';

/** Tag that scripts/setup/firewalld-image.mjs sets: a small Debian with Python and apt-get. */
const IMAGE = /^longshore-test-firewalld:/;

test('a program of Debian makes a QR code', { timeout: 240_000 }, async ({ platform }) => {
  const images = await platform.engine.client.listImages();
  const base = images.flatMap(({ RepoTags: tags }) => tags ?? []).find((tag) => IMAGE.test(tag));
  if (base === undefined) throw new Error('no image with apt-get: `npm run hosts` builds it');
  const folder = join(platform.directory, 'qrcode');
  mkdirSync(folder);
  copyFileSync(join(ROOT, 'examples/qrcode/app.py'), join(folder, 'app.py'));
  const text = readFileSync(join(folder, 'app.py'), 'utf8');
  expect(text).toContain('image = Image(\n');
  writeFileSync(
    join(folder, 'app.py'),
    text.replace('image = Image(\n', `image = Image(\n    base_image='${base}',\n`),
  );
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
