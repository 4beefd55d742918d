import { mkdirSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fastify } from 'fastify';
import { afterEach, expect, test } from 'vitest';
import { registerPages } from '#scheduler/api/http/console/pages.ts';
import { problemOf, sendProblem } from '#scheduler/api/http/error-map.ts';
import { ConsoleFiles } from '#scheduler/api/ops/console-files.ts';
import { tempDirectory } from '../../helpers/programs.ts';

const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0)) await end();
});

function built(folder: string, name: string, atSeconds: number): void {
  mkdirSync(folder, { recursive: true });
  const files = { [`${name}.js`]: 'text/javascript; charset=utf-8', 'style-1.css': 'text/css; charset=utf-8' };
  const terminal = { entry: 'terminal-1.js', style: 'terminal-1.css' };
  const entries = { entry: `${name}.js`, style: 'style-1.css', worker: 'worker-1.js', terminal };
  for (const file of Object.keys(files))
    for (const [ending, text] of [
      ['', 'plain'],
      ['.gz', 'gzipped'],
      ['.br', 'smaller'],
    ])
      writeFileSync(join(folder, `${file}${ending}`), text ?? '');
  const list = join(folder, 'files.json');
  writeFileSync(list, JSON.stringify({ ...entries, files }));
  utimesSync(list, atSeconds, atSeconds);
}

function served(): { readonly folder: string; readonly app: ReturnType<typeof fastify> } {
  const made = tempDirectory('console-pages');
  const app = fastify({ routerOptions: { ignoreTrailingSlash: true } });
  app.setErrorHandler((error, request, reply) => sendProblem(reply, request.id, problemOf(error)));
  const folder = join(made.path, 'console');
  void app.register(
    (scope, _options, done) => {
      registerPages(scope, { files: new ConsoleFiles(folder) });
      done();
    },
    { prefix: '/console' },
  );
  ends.push(
    () => app.close(),
    () => made.remove(),
  );
  return { folder, app };
}

test('without a build the address says how to make one', async () => {
  const { app } = served();
  const answer = await app.inject('/console/');
  expect([answer.statusCode, answer.body]).toEqual([404, expect.stringContaining('npm run build -- --console')]);
});

test('every address is the page, with a nonce of its own and files that are found from there', async () => {
  const { app, folder } = served();
  built(folder, 'main-1', 1_000);
  const pages = await Promise.all(['/console/', '/console/w/a', '/console/w/a/tasks/b'].map((url) => app.inject(url)));
  expect(pages.map(({ body }) => /src="([^"]*)"/.exec(body)?.[1])).toEqual([
    'assets/main-1.js',
    '../assets/main-1.js',
    '../../../assets/main-1.js',
  ]);
  const nonces = pages.map(({ body, headers }) => {
    const nonce = /nonce="([^"]+)"/.exec(body)?.[1] ?? '';
    const policy = String(headers['content-security-policy']);
    expect(policy).toContain(`script-src 'nonce-${nonce}' 'strict-dynamic';`);
    expect(policy).toContain("default-src 'none'");
    expect(policy).toContain("frame-ancestors 'none'");
    expect(policy).toContain("require-trusted-types-for 'script'");
    // The page may load a worker, by the address of its own policy alone.
    expect(policy).toContain("trusted-types longshore; worker-src 'self'");
    expect(body).toContain('data-worker="worker-1.js"');
    expect(policy).not.toMatch(/unsafe|script-src[^;]*'self'/);
    return nonce;
  });
  expect(new Set(nonces).size).toBe(3);
  expect((await app.inject('/console')).headers['location']).toBe('console/');
  for (const url of ['/console/api/v1/nothing', '/console/session', '/console/assets/files.json'])
    expect([url, (await app.inject(url)).statusCode]).toEqual([url, 404]);
});

test('a terminal is a document of its own, and styles of a script are allowed there alone', async () => {
  const { app, folder } = served();
  built(folder, 'main-1', 1_000);
  const { body, headers } = await app.inject('/console/terminal/acme/c-1');
  expect(/src="([^"]*)"/.exec(body)?.[1]).toBe('../../assets/terminal-1.js');
  expect(body).toContain('href="../../assets/style-1.css"');
  expect(body).toContain('href="../../assets/terminal-1.css"');
  const policy = String(headers['content-security-policy']);
  expect(policy).toContain("style-src 'self' 'unsafe-inline';");
  expect(policy).toMatch(/script-src 'nonce-[^']+' 'strict-dynamic';/);
  expect(policy).toContain("trusted-types 'none'");
  expect(policy).not.toContain('worker-src');
  for (const url of ['/console/terminal', '/console/w/terminal/tasks'])
    expect(String((await app.inject(url)).headers['content-security-policy'])).not.toContain('unsafe');
});

test('files are sent as the browser takes them, and those of a newer build in their place', async () => {
  const { app, folder } = served();
  built(folder, 'main-1', 1_000);
  const ask = (name: string, accept = '') =>
    app.inject({ url: `/console/assets/${name}`, headers: { 'accept-encoding': accept } });
  const bodies = await Promise.all(
    ['', 'gzip, deflate', 'gzip, br', 'br;q=0, gzip'].map((accept) => ask('main-1.js', accept)),
  );
  expect(bodies.map(({ body }) => body)).toEqual(['plain', 'gzipped', 'smaller', 'gzipped']);
  expect(bodies[2]?.headers).toMatchObject({
    'content-encoding': 'br',
    'cache-control': expect.stringContaining('immutable'),
    // A worker loads nothing.
    'content-security-policy': "default-src 'none'; connect-src 'self'",
  });
  rmSync(folder, { recursive: true });
  built(folder, 'main-2', 2_000);
  expect([(await ask('main-1.js')).statusCode, (await ask('main-2.js')).body]).toEqual([404, 'plain']);
  for (const name of ['..%2ffiles.json', 'main-2.js.gz', '__proto__'])
    expect([name, (await ask(name)).statusCode]).toEqual([name, 404]);
});
