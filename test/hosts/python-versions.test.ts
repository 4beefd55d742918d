// Base images that a machine makes from packages of Debian, for want of a registry: `apt-get` in image commands, other
// Pythons on demand, and a refused deploy of one that there is not. The mirrors are those of this machine's own apt.
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect } from 'vitest';
import { readReleases } from '#agent/bases/apt.ts';
import { Builder } from '../helpers/builder.ts';
import { docker } from '../helpers/docker.ts';
import { jsonOf, MAIN, Platform, test as base } from '../helpers/platform.ts';
import { endOf } from '../helpers/programs.ts';
import { waitFor } from '../helpers/services.ts';

const MADE_MS = 590_000;
// eslint-disable-next-line no-empty-pattern -- the runner needs the first argument
const platformTest = base.override('platform', { scope: 'file' }, async ({}, { onCleanup }): Promise<Platform> => {
  const platform = new Platform(await docker(), { LONGSHORE_BASE_IMAGE: 'longshore-python:{version}' });
  onCleanup(() => platform.stop());
  await platform.start();
  return platform;
});
const test = platformTest.extend('builder', { scope: 'file' }, ({ platform }): Builder => new Builder(platform));

beforeAll(async () => {
  const releases = [...(await readReleases()).keys()];
  if (!releases.includes('3.13'))
    throw new Error(
      `this test makes base images from a mirror of Debian, and this machine's sources lead to those of ${releases.join(', ') || 'none'}: it needs Debian, its apt-get and a mirror that has trixie`,
    );
});

/** An app that says its Python, and a command line beside it. */
function app(platform: Platform, name: string, image: string) {
  const folder = join(platform.directory, name);
  mkdirSync(folder, { recursive: true });
  writeFileSync(
    join(folder, 'app.py'),
    `import platform, shutil
from longshore import Image, endpoint

@endpoint(name="${name}", image=${image})
def handler():
    return {"python": platform.python_version(), "tree": shutil.which("tree")}
`,
  );
  const env = {
    PATH: process.env['PATH'],
    HOME: platform.directory,
    LONGSHORE_URL: platform.url,
    LONGSHORE_TOKEN: platform.token,
  };
  return (...args: readonly string[]) => endOf(process.execPath, [MAIN, ...args], { cwd: folder, env });
}

/** @returns the app's answer, and what its deployer and a caller on the command line read meanwhile */
async function answerOf(platform: Platform, name: string, image: string) {
  const run = app(platform, name, image);
  const ended = await run('deploy', 'app.py', '--json');
  expect(ended.stderr).not.toMatch(/warning: (?!No machine has the base image of Python 3\.13 yet)/);
  const { url } = JSON.parse(ended.stdout.slice(ended.stdout.indexOf('{\n'))) as { readonly url: string };
  const invoked = run('invoke', name, '--data', '{}');
  // A call waits for the image, on a slow machine not long enough.
  const answered = await waitFor(
    async () => {
      const answer = await platform.call(url, { body: {} }).catch(() => undefined);
      return answer?.status === 200 ? answer : undefined;
    },
    'the app answers',
    MADE_MS,
  );
  return { answer: jsonOf(answered), read: `${ended.stderr}${(await invoked).stderr}` };
}

describe('packages of Debian', () => {
  test.for([
    ['commands without a list of packages', { commands: ['apt-get install -y tree'] }],
    [
      'commands that fetch the list',
      { commands: ['apt-get update && apt-get install -y --no-install-recommends tree'] },
    ],
    ['system packages', { systemPackages: ['tree'] }],
  ] as const)(
    'are installed by %s, and leave no lists behind',
    { timeout: 300_000 },
    async ([what, how], { builder }) => {
      const looked = 'tree --version; du -sm /var/lib/apt/lists /var/cache/apt | sed s/^/MIB-/; dpkg --audit';
      const { commands = [], ...rest } = { commands: [], ...how } as { readonly commands?: readonly string[] };
      const { last, text } = await builder.build({
        pythonVersion: 'python3.11',
        ...rest,
        commands: [...commands, looked],
      });
      expect(last, text).toMatchObject({ success: true, msg: '' });
      expect(text).toMatch(/^tree v\d/m);
      const [lists = 99, cache = 99] = [...text.matchAll(/^MIB-(\d+)/gm)].map(([, mib]) => Number(mib));
      expect(cache).toBeLessThan(2);
      // Lists that the command itself fetched are its own affair.
      if (!what.includes('fetch')) expect(lists).toBeLessThan(2);
    },
  );

  test('are installed by a Dockerfile whose base is the machine’s', { timeout: 300_000 }, async ({ builder }) => {
    const { last, text } = await builder.build({
      dockerfile: 'FROM longshore-python:3.11\nRUN apt-get update && apt-get install -y tree\nRUN tree --version',
    });
    expect(last, text).toMatchObject({ success: true, msg: '' });
    expect(text).toMatch(/^tree v\d/m);
  });

  test('come by another user’s rights no more than else', { timeout: 300_000 }, async ({ builder }) => {
    const { last, text } = await builder.build({
      pythonVersion: 'python3.11',
      commands: [
        'apt-get install -y adduser >/dev/null; adduser --system tester; grep -c NoNewPrivs:.1 /proc/self/status',
      ],
    });
    expect(last, text).toMatchObject({ success: true, msg: '' });
    expect(text).toMatch(/^1$/m);
  });
});

describe('another Python', () => {
  test('is made when an app first asks for it, once, and serves', { timeout: MADE_MS }, async ({ platform }) => {
    // The image may be here from an earlier run.
    await platform.engine.client
      .getImage('longshore-python:3.13')
      .remove()
      .catch(() => undefined);
    // The agent looks at its images once a minute.
    const dryRun = () => app(platform, 'newer', 'Image(python_version="python3.13")')('deploy', 'app.py', '--dry-run');
    await waitFor(
      async () => {
        const { stdout, stderr } = await dryRun();
        return `${stdout}${stderr}`.includes('No machine has the base image of Python 3.13 yet');
      },
      'the scheduler knows that the image is gone',
      90_000,
    );
    const answers = await Promise.all([
      answerOf(platform, 'newer', 'Image(python_version="python3.13")'),
      answerOf(platform, 'newest', 'Image(python_version="python3.13", system_packages=["tree"])'),
    ]);
    expect(answers.map(({ answer }) => answer)).toEqual([
      { python: expect.stringMatching(/^3\.13\./) as string, tree: null },
      { python: expect.stringMatching(/^3\.13\./) as string, tree: '/usr/bin/tree' },
    ]);
    const [plain = '', built = ''] = answers.map(({ read }) => read);
    expect(plain).toContain('No machine has the base image of Python 3.13 yet');
    expect(plain).toMatch(/^waiting: making the base image of Python 3\.13: /m);
    expect(built).toMatch(/making the base image of Python 3\.13: installing packages/);
    const made = platform.agent
      .log()
      .split('\n')
      .filter((line) => line.includes('base image made'));
    expect(made).toHaveLength(1);
  });

  test('that Debian has not is refused by deploy, and nothing is made', { timeout: 120_000 }, async ({ platform }) => {
    const deployments = () => platform.gateway('/deployments').then((answer) => JSON.stringify(answer));
    const run = app(platform, 'missing', 'Image(python_version="python3.12")');
    const before = await deployments();
    const ended = await run('deploy', 'app.py');
    expect([ended.code, ended.stderr]).toEqual([
      1,
      expect.stringMatching(/has Python 3\.12: their base images have Python (?:3\.9, )?3\.11, 3\.13\./),
    ]);
    expect(await deployments()).toBe(before);
    for (const verb of [
      ['deploy', 'app.py', '--dry-run'],
      ['serve', 'app.py'],
    ]) {
      const other = await run(...verb);
      expect([other.code, other.stderr + other.stdout]).toEqual([1, expect.stringContaining('has Python 3.12:')]);
    }
  });
});
