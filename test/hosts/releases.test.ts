// The output of `npm run build`, and how a scheduler gives it out.
import { createHash } from 'node:crypto';
import { cpSync, mkdirSync, readFileSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fastify } from 'fastify';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { problemOf, sendProblem } from '../../scheduler/api/http/error-map.ts';
import { registerInstall } from '../../scheduler/api/http/ops/install.ts';
import { Packages } from '../../scheduler/api/ops/packages.ts';
import { Releases } from '../../scheduler/api/ops/releases.ts';
import { runProgram, tempDirectory } from '../helpers/services.ts';

const ROOT = join(import.meta.dirname, '../..');
// Plain JavaScript, so that its types are said here.
const BUILD: string = join(ROOT, 'scripts/build/release.mjs');
const { packRelease, writeRelease } = (await import(BUILD)) as {
  writeRelease: (directory: string) => Promise<void>;
  packRelease: (
    directory: string,
    into: string,
    options: { level: number },
  ) => Promise<{ readonly file: string; readonly sha256: string; readonly bytes: number }>;
};

const work = tempDirectory('release');
afterAll(() => work.remove());

/** Every file with the hash of its bytes; Node itself by its size. */
function contents(directory: string): readonly string[] {
  return readdirSync(directory, { recursive: true, encoding: 'utf8' })
    .filter((path) => statSync(join(directory, path)).isFile())
    .map((path) => {
      const file = join(directory, path);
      if (path === 'bin/node') return `${path} ${statSync(file).size}`;
      return `${path} ${createHash('sha256').update(readFileSync(file)).digest('hex')}`;
    })
    .toSorted();
}

describe('a release', () => {
  const first = join(work.path, 'first');
  const second = join(work.path, 'elsewhere', 'second');
  beforeAll(async () => {
    mkdirSync(join(work.path, 'elsewhere'));
    await writeRelease(first);
    await writeRelease(second);
  });

  test('is the same bytes each time, wherever it is built, and knows nothing of this machine', () => {
    expect(contents(second)).toEqual(contents(first));
    for (const file of readdirSync(join(first, 'lib')).filter((name) => name.endsWith('.mjs')))
      expect(readFileSync(join(first, 'lib', file), 'utf8'), file).not.toContain(ROOT);
  });

  test('runs by its own Node, without the checkout', async () => {
    const env = { PATH: '/usr/bin:/bin', HOME: work.path };
    expect(await runProgram(join(first, 'bin', 'longshore'), ['--help'], { env })).toContain('Usage: longshore');
    // The page of the API is served from its package.
    for (const file of ['swagger-ui-bundle.js', 'swagger-ui.css', 'favicon-32x32.png', 'LICENSE', 'NOTICE'])
      expect(statSync(join(first, 'node_modules', 'swagger-ui-dist', file)).size, file).toBeGreaterThan(0);
    // Before it looks for a Docker Engine, the agent needs only its settings and a state directory.
    const agent = [join(first, 'lib', 'agent.mjs')];
    const settings = { LONGSHORE_DATA_DIR: join(work.path, 'data'), DOCKER_HOST: `unix://${work.path}/none.sock` };
    await expect(runProgram(join(first, 'bin', 'node'), agent, { env: { ...env, ...settings } })).rejects.toThrow(
      'no Docker Engine answers at',
    );
  });

  test('is packed with fixed times and owners, and described with its hash', async () => {
    // Node is left out: it is most of the bytes, and does not matter here.
    writeFileSync(join(second, 'node.new'), '');
    await runProgram('mv', [join(second, 'node.new'), join(second, 'bin', 'node')]);
    const into = [join(work.path, 'a'), join(work.path, 'b')] as const;
    for (const directory of into) mkdirSync(directory);
    const packed = [
      await packRelease(second, into[0], { level: 1 }),
      await packRelease(second, into[1], { level: 1 }),
    ] as const;
    expect(packed[1]).toEqual(packed[0]);
    // A channel has both architectures, and the other one stays in it.
    const stable = join(into[1], 'stable.json');
    const channel = JSON.parse(readFileSync(stable, 'utf8')) as Record<string, object>;
    const other = process.arch === 'x64' ? 'linux-arm64' : 'linux-x64';
    writeFileSync(stable, JSON.stringify({ ...channel, [other]: { version: '8' } }));
    await packRelease(second, into[1], { level: 1 });
    expect(JSON.parse(readFileSync(stable, 'utf8'))).toEqual({ ...channel, [other]: { version: '8' } });
    const archive = join(into[0], packed[0].file);
    expect(createHash('sha256').update(readFileSync(archive)).digest('hex')).toBe(packed[0].sha256);
    const fixed = ' 0/0 +[0-9]+ 1980-01-01 00:00:00 longshore-[0-9.]+-linux-(x64|arm64)/';
    const others = `tar --full-time -tvzf '${archive}' | grep -vE '${fixed}' || true`;
    expect(await runProgram('sh', ['-c', others], { env: { ...process.env, TZ: 'UTC' } })).toBe('');
  });
});

describe('a scheduler', () => {
  const directory = join(work.path, 'given');
  const app = fastify({ routerOptions: { ignoreTrailingSlash: true } });
  app.setErrorHandler((error, request, reply) => sendProblem(reply, request.id, problemOf(error)));
  registerInstall(app, {
    releases: new Releases({ directory, dataDir: work.path, channel: 'stable' }),
    packages: new Packages({ directory, dataDir: work.path, built: join(work.path, 'nothing') }),
    baseUrlOf: () => 'http://ship.example:1994',
  });
  afterAll(() => app.close());
  const get = (path: string) => app.inject({ method: 'GET', url: path });
  const release = { version: '9.1.0', file: 'longshore-9.1.0-linux-x64.tar.gz', sha256: 'ab'.repeat(32), bytes: 3 };

  test('without a release says what it lacks', async () => {
    mkdirSync(directory);
    const answer = await get('/install/agent');
    expect(answer.statusCode).toBe(404);
    expect(answer.json()).toMatchObject({ code: 'release_not_found' });
  });

  test('without packages says how to build them', async () => {
    for (const url of ['/install', '/install/longshore.tgz']) {
      const none = await get(url);
      expect(none.statusCode).toBe(404);
      expect(none.json()).toMatchObject({
        code: 'package_not_found',
        message: expect.stringContaining('npm run build'),
      });
    }
  });

  test('gives out the script with the hash of its channel, and the bytes', async () => {
    writeFileSync(join(directory, release.file), 'abc');
    writeFileSync(join(directory, 'stable.json'), JSON.stringify({ 'linux-x64': release }));
    const script = await get('/install/agent');
    expect(script.statusCode).toBe(200);
    expect(script.body).toContain(`\nRELEASE_SHA256='${release.sha256}'\n`);
    expect(script.body).toContain(`\nRELEASE_FILE='${release.file}'\n`);
    expect(script.body).toContain(`\nRELEASE_ARM64_SHA256=''\n`);
    const arm = { ...release, file: 'longshore-9.1.0-linux-arm64.tar.gz', sha256: 'cd'.repeat(32) };
    writeFileSync(join(directory, 'both.json'), JSON.stringify({ 'linux-x64': release, 'linux-arm64': arm }));
    const both = await get('/install/agent?channel=both');
    expect(both.body).toContain(`\nRELEASE_SHA256='${release.sha256}'\n`);
    expect(both.body).toContain(`\nRELEASE_ARM64_SHA256='${arm.sha256}'\n`);
    writeFileSync(join(directory, 'none.json'), '{}');
    expect((await get('/install/agent?channel=none')).statusCode).toBe(404);
    expect((await get('/install/agent?channel=beta')).statusCode).toBe(404);
    const archive = await get(`/install/releases/${release.file}`);
    expect(archive).toMatchObject({ statusCode: 200, body: 'abc' });
    expect(archive.headers['content-length']).toBe('3');
    expect((await get(`/install/releases/${release.file}.asc`)).statusCode).toBe(404);
    writeFileSync(join(directory, `${release.file}.asc`), 'signature');
    const signature = await get(`/install/releases/${release.file}.asc`);
    expect(signature).toMatchObject({ statusCode: 200, body: 'signature' });
    expect(signature.headers['content-type']).toBe('application/pgp-signature');
  });

  test('gives out nothing else, and takes no description that could write into the script', async () => {
    writeFileSync(join(work.path, 'longshore-1-linux-x64.tar.gz'), 'elsewhere');
    for (const name of [
      'stable.json',
      '..%2Flongshore-1-linux-x64.tar.gz',
      '..%2f..%2fetc%2fpasswd',
      'longshore-0-linux-x64.tar.gz',
    ])
      expect((await get(`/install/releases/${name}`)).statusCode, name).toBe(404);
    expect((await get('/install/agent?channel=../stable')).statusCode).toBe(404);
    const bad = { ...release, version: "9'; rm -rf /; '" };
    writeFileSync(join(directory, 'bad.json'), JSON.stringify({ 'linux-x64': bad }));
    expect((await get('/install/agent?channel=bad')).statusCode).toBe(404);
  });

  test('gives out the packages of a release, with lines that name nobody else', async () => {
    cpSync(join(work.path, 'first', 'dist', 'install'), join(directory, 'install'), { recursive: true });
    const page = await get('/install/');
    expect(page).toMatchObject({ statusCode: 200, headers: { 'content-type': 'text/html; charset=utf-8' } });
    const names = readdirSync(join(directory, 'install')).toSorted();
    expect(names).toEqual([
      expect.stringMatching(/^longshore-[0-9.]+-py3-none-any\.whl$/),
      'longshore.tgz',
      expect.stringMatching(/^longshore_shims-[0-9.]+-py3-none-any\.whl$/),
    ]);
    for (const name of names) expect(page.body).toContain(`http://ship.example:1994/install/${name}`);
    expect([...page.body.matchAll(/https?:\/\/([^/<\s]+)/g)].every(([, host]) => host === 'ship.example:1994')).toBe(
      true,
    );
    expect(page.body).not.toMatch(/npmjs|pypi|--registry|--index-url/);

    for (const name of names) {
      const url = `/install/${name}`;
      const file = await get(url);
      expect(file.statusCode, name).toBe(200);
      expect(file.rawPayload.equals(readFileSync(join(directory, 'install', name))), name).toBe(true);
      const { etag } = file.headers;
      const again = await app.inject({ method: 'GET', url, headers: { 'if-none-match': String(etag) } });
      expect(again).toMatchObject({ statusCode: 304, body: '' });
      const head = await app.inject({ method: 'HEAD', url });
      expect(head).toMatchObject({ statusCode: 200, body: '' });
      expect(head.headers).toMatchObject({ etag, 'content-length': String(file.rawPayload.byteLength) });
      for (const method of ['POST', 'PUT', 'DELETE'] as const)
        expect((await app.inject({ method, url })).statusCode, method).toBe(404);
    }
    writeFileSync(join(directory, 'install', 'longshore.tgz'), 'another build');
    expect((await get('/install/longshore.tgz')).body).toBe('another build');
  });

  test('gives out no other file of that folder or above it', async () => {
    writeFileSync(join(directory, 'install', 'notes.txt'), 'mine');
    writeFileSync(join(directory, 'longshore-1-py3-none-any.whl'), 'above');
    for (const name of [
      'notes.txt',
      '..%2Flongshore-1-py3-none-any.whl',
      '..%2f..%2fetc%2fpasswd',
      '../longshore-1-py3-none-any.whl',
      'longshore-..-py3-none-any.whl',
      'longshore.tgz%00',
      '.',
      'package.json',
    ])
      expect((await get(`/install/${name}`)).body, name).not.toMatch(/mine|above|root:/);
    expect((await get('/install/notes.txt')).json()).toMatchObject({ code: 'package_not_found' });
  });
});
