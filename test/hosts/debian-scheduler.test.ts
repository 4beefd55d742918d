// The scheduler as a Debian package on a host that runs systemd, and the checksums, signature and bytes of a build.
import { mkdirSync, readFileSync, readdirSync, realpathSync, renameSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { execa } from 'execa';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { ROOT } from '../helpers/platform.ts';
import { findProgram, freePort, startProgram } from '../helpers/programs.ts';
import { docker, tempDirectory } from '../helpers/services.ts';
import type { TestDocker } from '../helpers/services.ts';
import { SystemdHost } from '../helpers/systemd-host.ts';

const UNIT = 'longshore-scheduler.service';
// Plain JavaScript, so that its types are said here.
const script = async <T>(name: string): Promise<T> => (await import(join(ROOT, 'scripts/build', name))) as T;
const { writeRelease } = await script<{ writeRelease: (directory: string) => Promise<void> }>('release.mjs');
const { writeDebianPackages } = await script<{
  writeDebianPackages: (
    release: string,
    into: string,
    options: { level: number; key?: string },
  ) => Promise<readonly string[]>;
}>('debian.mjs');

const NODE = join(realpathSync(join(ROOT, 'node_modules')), `node-linux-${process.arch}`, 'bin', 'node');
const NODE_THERE = '/usr/local/lib/node-of-tests';
const APT_MS = 240_000;

let engine: TestDocker;
let host: SystemdHost;
let work: ReturnType<typeof tempDirectory>;
let built = '';
let http = 0;
let redis: Awaited<ReturnType<typeof startProgram>>;

async function build(version: string): Promise<string> {
  const path = join(built, 'package.json');
  writeFileSync(path, JSON.stringify({ ...JSON.parse(readFileSync(path, 'utf8')), version }));
  const made = await writeDebianPackages(built, join(work.path, 'debs', version), { level: 1 });
  return `/debs/${version}/${made.find((file) => file.startsWith('longshore-scheduler_')) ?? ''}`;
}

/** Without a terminal of its own, apt passes on all that the scripts of a package print before they fail. */
const apt = (...args: readonly string[]): Promise<string> =>
  host.sh(
    `DEBIAN_FRONTEND=noninteractive apt-get -y -q -o Dpkg::Use-Pty=0 --allow-downgrades ${args.join(' ')} 2>&1`,
    APT_MS,
  );
const call = (path: string, token = ''): Promise<string> =>
  host.sh(`curl -sS -H 'authorization: Bearer ${token}' http://127.0.0.1:${http}${path}`);
async function paths(): Promise<readonly string[]> {
  const left = ['/proc', '/sys', '/dev', '/run', '/tmp', '/var/log', '/var/lib/dpkg', '/var/lib/apt', '/var/cache'];
  const prune = [...left, host.dataDir].map((path) => `-path ${path}`).join(' -o ');
  return (await host.sh(`find / -xdev \\( ${prune} \\) -prune -o -print`)).split('\n').toSorted();
}

beforeAll(async () => {
  engine = await docker();
  work = tempDirectory('debian');
  built = join(work.path, 'built');
  mkdirSync(join(work.path, 'debs'));
  host = new SystemdHost(engine, { [dirname(NODE)]: NODE_THERE, [join(work.path, 'debs')]: '/debs' });
  await Promise.all([writeRelease(built), host.start()]);
  writeFileSync(join(built, 'bin', 'node.new'), `#!/bin/sh\nexec '${NODE_THERE}/node' "$@"\n`, { mode: 0o755 });
  renameSync(join(built, 'bin', 'node.new'), join(built, 'bin', 'node'));
  const port = await freePort();
  redis = await startProgram(findProgram('redis-server') ?? '', [
    '--port',
    String(port),
    '--dir',
    work.path,
    '--save',
    '',
  ]);
  http = await freePort();
  const settings = [
    `LONGSHORE_HTTP_ADDRESS=127.0.0.1:${http}`,
    'LONGSHORE_AGENT_ADDRESS=127.0.0.1:0',
    `REDIS_URL=redis://127.0.0.1:${port}`,
  ];
  writeFileSync(join(work.path, 'debs', 'settings'), settings.map((line) => `${line}\n`).join(''));
});

afterAll(async () => {
  await host.remove();
  await engine.cleanUp();
  await redis.end();
  work.remove();
});

test('is installed, started by the operator, upgraded with a migration, and leaves what its page says', async () => {
  const before = await paths();
  expect(await apt('install', await build('9.0.1'))).toContain('systemctl enable --now longshore-scheduler');
  expect(await host.sh('stat -c %a:%U /etc/longshore/scheduler.env')).toBe('600:root\n');
  await host.sh(`cat /debs/settings >> /etc/longshore/scheduler.env && systemctl enable -q --now ${UNIT}`, 120_000);
  const made = JSON.parse(
    await host.sh(
      `curl -sS -X POST http://127.0.0.1:${http}/api/v1/gateway/auth/authorize -H 'content-type: application/json' -d '{}'`,
    ),
  ) as { readonly newToken: string };
  expect(made.newToken).not.toBe('');

  const migrations = join(built, 'scheduler/stores/store/migrations');
  const next = String(readdirSync(migrations).filter((file) => file.endsWith('.sql')).length + 1).padStart(4, '0');
  writeFileSync(join(migrations, `${next}_of_this_test.sql`), 'create table of_this_test (id integer);\n');
  await apt('install', await build('9.0.2'));
  expect(await host.property(UNIT, 'ActiveState')).toBe('active');
  expect(await host.sh(`journalctl -u ${UNIT} -o cat`)).toContain('of_this_test');
  expect(JSON.parse(await call('/api/v1/health'))).toMatchObject({ status: 'ok' });
  // The records are those of before.
  expect(JSON.parse(await call('/api/v1/workspace/current', made.newToken))).toHaveProperty('external_id');

  await apt('remove', 'longshore-scheduler');
  const added = (await paths()).filter((path) => !before.includes(path));
  const places = ['/etc/longshore', '/var/lib/longshore', '/var/lib/private'];
  expect(added.filter((path) => !places.some((place) => path === place || path.startsWith(`${place}/`)))).toEqual([]);
  expect(added).toContain('/etc/longshore/scheduler.env');
  expect(await host.try(`systemctl cat ${UNIT}`)).toContain('No files found');
  await apt('purge', 'longshore-scheduler');
  expect(await paths()).toEqual(before);
});

test('two builds are the same bytes, and the signature of the checksums is good', async () => {
  const home = join(work.path, 'gpg');
  mkdirSync(home, { mode: 0o700 });
  const env = { GNUPGHOME: home };
  const gpg = (...args: readonly string[]) => execa('gpg', ['--batch', ...args], { env, all: true });
  onTestFinished(async () => void (await execa('gpgconf', ['--kill', 'all'], { env, reject: false })));
  await gpg('--passphrase', '', '--quick-generate-key', 'builds@longshore.example', 'default', 'default', 'never');
  const kept = process.env['GNUPGHOME'];
  process.env['GNUPGHOME'] = home;
  onTestFinished(() => {
    if (kept === undefined) delete process.env['GNUPGHOME'];
    else process.env['GNUPGHOME'] = kept;
  });
  const [one, two] = [join(work.path, 'one'), join(work.path, 'two')];
  await writeDebianPackages(built, one, { level: 1, key: 'builds@longshore.example' });
  const made = await writeDebianPackages(built, two, { level: 1 });
  expect(readFileSync(join(one, 'SHA256SUMS'), 'utf8')).toBe(readFileSync(join(two, 'SHA256SUMS'), 'utf8'));
  expect(made).not.toContain('SHA256SUMS.asc');
  await execa('sha256sum', ['-c', '--quiet', 'SHA256SUMS'], { cwd: one });
  const { all } = await gpg('--verify', join(one, 'SHA256SUMS.asc'), join(one, 'SHA256SUMS'));
  expect(all).toContain('Good signature');
  await expect(writeDebianPackages(built, two, { level: 1, key: 'nobody@longshore.example' })).rejects.toThrow('gpg');
});
