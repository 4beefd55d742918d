// Debian's packages in the base image that this machine makes, as commands and Dockerfiles of apps install them. Each
// row has failed for a person, or fails in images of the same kind. The mirror is a real one.
import { execFile } from 'node:child_process';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { beforeAll, expect, test } from 'vitest';
import { BASE_REVISION } from '#agent/bases/suites.ts';
import { ROOT } from '../helpers/platform.ts';
import { endOf } from '../helpers/programs.ts';

const IMAGE = 'longshore-python:3.11';
const MINUTES_5 = 300_000;

beforeAll(async () => {
  const label = '{{index .Config.Labels "io.longshore.base"}}';
  const { stdout } = await promisify(execFile)('docker', ['image', 'inspect', '-f', label, IMAGE]).catch(() => ({
    stdout: '',
  }));
  if (stdout.trim() === String(BASE_REVISION)) return;
  const made = await endOf(process.execPath, [join(ROOT, 'agent/bases/make.ts'), '3.11']);
  expect(made.code, made.stderr).toBe(0);
}, 600_000);

/** Runs a shell command in a container of the image. */
async function inImage(command: string, flags: readonly string[] = []) {
  const ended = await endOf('docker', ['run', '--rm', ...flags, IMAGE, 'sh', '-c', `(${command}) 2>&1`]);
  return { code: ended.code, text: ended.stdout };
}

const INSTALL = 'apt-get install -y --no-install-recommends';

test.for([
  // Scripts of Java's packages link manual pages into folders that an image without them must have.
  ['a Java', `${INSTALL} default-jre-headless && java -version`, /^OpenJDK Runtime Environment/m],
  [
    'a locale by localedef',
    `${INSTALL} locales && localedef -i de_DE -c -f UTF-8 -A /usr/share/locale/locale.alias de_DE.UTF-8 && locale -a`,
    /^de_DE\.utf8$/m,
  ],
  ['programs in the place of BusyBox’s', `${INSTALL} netcat-openbsd && nc -h`, /^OpenBSD netcat/m],
  [
    'a version by number behind an update',
    `apt-get update && ${INSTALL} tree="$(apt-cache policy tree | sed -n 's/ *Candidate: //p')" && tree --version`,
    /^tree v\d/m,
  ],
  ['by satisfy', 'apt-get satisfy -y "tree (>= 1)" && tree --version', /^tree v\d/m],
  ['by download and dpkg', 'cd /tmp && apt-get download tree && dpkg -i tree*.deb && tree --version', /^tree v\d/m],
  [
    'by upgrade without an update',
    'apt-get upgrade -y && echo upgraded',
    /fetching the lists of packages first[^]*upgraded/,
  ],
  ['a daemon, which does not start', `${INSTALL} cron && dpkg --audit && echo whole`, /^whole$/m],
  ['programs of another repository', `${INSTALL} software-properties-common && add-apt-repository --help`, /^usage: /m],
] as const)('installs %s', { timeout: MINUTES_5 }, async ([, command, said]) => {
  const { text } = await inImage(command);
  expect(text).toMatch(said);
});

test('a reinstalled Python stays open to pip', { timeout: MINUTES_5 }, async () => {
  const python = 'python3.11 python3.11-minimal libpython3.11-stdlib libpython3.11-minimal';
  const { code, text } = await inImage(
    `apt-get update -qq && apt-get install -y --reinstall ${python} >/dev/null && ${INSTALL} python3-pip >/dev/null && pip install --no-index --dry-run pip`,
  );
  expect(code, text).toBe(0);
  expect(text).not.toContain('externally-managed');
});

test('says that no mirror answers, and not that there is no package', { timeout: MINUTES_5 }, async () => {
  const { code, text } = await inImage('apt-get install -y tree', ['--network', 'none']);
  expect(code).toBe(100);
  expect(text).toMatch(/Failed to fetch http/);
  expect(text).toMatch(/^E: no mirror gave its list of packages: see the lines above$/m);
  expect(text).not.toContain('Unable to locate package');
});

test('another user than root is told what is missing', { timeout: MINUTES_5 }, async () => {
  const { code, text } = await inImage('apt-get install -y tree', ['--user', '1000']);
  expect(code).toBe(100);
  expect(text).toMatch(/^E: apt-get needs root for this: write USER root before this step$/m);
});

test('a mirror that breaks off in the middle of a package is asked again', { timeout: MINUTES_5 }, async () => {
  const { text: sources } = await inImage('cat /etc/apt/sources.list');
  const origin = /https?:\/\/[^/\s]+/.exec(sources)?.[0] ?? '';
  const broken = new Set<string>();
  const mirror = createServer((request, response) => {
    const { url = '' } = request;
    const { range } = request.headers;
    void fetch(`${origin}${url}`, range === undefined ? {} : { headers: { range } }).then(async (answer) => {
      const body = Buffer.from(await answer.arrayBuffer());
      const contentRange = answer.headers.get('content-range');
      response.writeHead(answer.status, {
        'content-length': body.length,
        ...(contentRange === null ? {} : { 'content-range': contentRange }),
      });
      if (!url.endsWith('.deb') || broken.has(url)) return response.end(body);
      broken.add(url);
      return response.write(body.subarray(0, 1000), () => response.destroy());
    });
  });
  await new Promise<void>((resolve) => mirror.listen(0, '127.0.0.1', resolve));
  const { port } = mirror.address() as AddressInfo;
  try {
    const here = `sed -i s,${origin},http://127.0.0.1:${port}, /etc/apt/sources.list`;
    const { code, text } = await inImage(`${here} && ${INSTALL} tree && tree --version`, ['--network', 'host']);
    expect(code, text).toBe(0);
    expect(text).toMatch(/^tree v\d/m);
    expect([...broken].join()).toMatch(/\/tree_[^/]+\.deb$/);
  } finally {
    mirror.close();
  }
});
