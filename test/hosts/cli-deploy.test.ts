// `longshore deploy` of files and folders, and its dry run, against a real scheduler without a machine.
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { endOf } from '../helpers/programs.ts';
import { ROOT } from '../helpers/repository.ts';
import { tempDirectory } from '../helpers/services.ts';
import { aPlatform } from '../integration/verbs-fixture.ts';
import type { Json, Platform } from '../integration/verbs-fixture.ts';

const MAIN = join(ROOT, 'cli', 'main.ts');
const directory = tempDirectory('cli-deploy');
let platform: Platform;
beforeAll(async () => {
  platform = await aPlatform();
});
afterAll(async () => {
  await platform.stop();
  directory.remove();
});

function write(path: string, text: string): string {
  const full = join(directory.path, path);
  mkdirSync(dirname(full), { recursive: true });
  writeFileSync(full, text);
  return full;
}

async function deploy(args: readonly string[], token = platform.own.token, cwd = directory.path) {
  const ended = await endOf(process.execPath, [MAIN, 'deploy', ...args], {
    cwd,
    env: {
      ...process.env,
      LONGSHORE_URL: `http://${platform.address}`,
      LONGSHORE_TOKEN: token,
      LONGSHORE_CONTEXT_FILE: join(directory.path, 'contexts.json'),
    },
  });
  return { ...ended, json: () => JSON.parse(ended.stdout) as Json };
}

/** Everything that a deploy makes. */
async function made(): Promise<readonly unknown[]> {
  const { workspaceId, token } = platform.own;
  const lists = await Promise.all(
    [`GET /api/v1/stub/${workspaceId}`, `GET /api/v1/volume/${workspaceId}`, `GET /api/v1/image/${workspaceId}`].map(
      async (line) => (await platform.call(line, undefined, { token })).json['data'],
    ),
  );
  return [...lists, (await platform.gateway('GET /deployments')).json['deployments']];
}

const WRONG = `from longshore import Image, Volume, endpoint

@endpoint(name="wrong", cpu=2, memory="2Gi", gpu="H10", pool="gpuu", secrets=["API_KEI"], env={"MODE": "x"},
          volumes=[Volume("models", "models")], image=Image(python_packages=["humanize==4.9.0"]))
def handler(a):
    return a
`;

test('a dry run says all that is wrong, with the names that were meant, and makes nothing', async () => {
  const { workspaceId } = platform.own;
  const secret = { name: 'API_KEY', value: 'v' };
  expect((await platform.call(`POST /api/v1/secret/${workspaceId}`, secret)).status).toBeLessThan(300);
  expect((await platform.gateway('POST /pools', { name: 'gpu' })).json['ok']).toBe(true);
  const file = write('wrong/app.py', WRONG);
  const before = await made();
  const shown = await deploy(['--dry-run', file]);
  expect(shown.code).toBe(1);
  for (const text of [
    'wrong (endpoint) would be version 1',
    'cpu         2 cores',
    'memory      2 GiB',
    'volume      models at models, would be made',
    'secrets     API_KEI',
    'variables   MODE',
    'image       would be built, ',
    'RUN pip install humanize==4.9.0',
    'there is no secret API_KEI in this workspace; did you mean API_KEY?',
    'no GPU model is called H10: no machine here has a GPU',
    'There is no pool gpuu that this workspace may use',
    'did you mean gpu?',
    'app.py  ',
    'nothing was changed: 3 problems',
  ])
    expect(shown.stdout).toContain(text);
  // Editors and terminals open the place of the handler.
  for (const text of ['there is no secret', 'no GPU model', 'There is no pool'])
    expect(shown.stdout).toMatch(new RegExp(`problem: \\S*app\\.py:3: ${text}`));
  const json = await deploy(['--dry-run', '--json', file]);
  expect(json.code).toBe(1);
  expect(json.json()).toMatchObject({
    ok: false,
    deployments: [
      {
        name: 'wrong',
        kind: 'endpoint',
        version: 1,
        config: { cpuMillicores: 2000, memoryMib: 2048 },
        image: { kind: 'built', exists: false },
        volumes: [{ name: 'models', mountPath: 'models', kind: 'volume', exists: false }],
      },
    ],
    files: [{ files: [{ path: 'app.py', bytes: WRONG.length }], isThere: false }],
  });
  expect(await made()).toEqual(before);
});

test('a dry run of a good file ends with 0 and names the next version; a restricted token may ask', async () => {
  const file = write('good/app.py', 'from longshore import function\n\n@function(cpu=1)\ndef work():\n    pass\n');
  expect(await deploy([file])).toMatchObject({ code: 0 });
  const again = await deploy(['--dry-run', file], platform.restricted);
  expect(again).toMatchObject({ code: 0, stderr: '' });
  expect(again.stdout).toContain('work (function) would be version 2');
  expect(again.stdout).toContain('cpu         1 core\n');
  expect(again.stdout).toContain('uploaded already');
  expect(again.stdout).toContain('nothing was changed: without --dry-run this is deployed');
});

test('a file without a named handler deploys all of them, in the order of their definition', async () => {
  const three = ['zeta', 'alpha', 'mid'].map((name) => `@endpoint(name="${name}")\ndef ${name}():\n    pass\n`);
  const file = write('three/app.py', `from longshore import endpoint\n\n${three.join('\n')}`);
  const shown = await deploy([file]);
  expect(shown).toMatchObject({ code: 0 });
  const rows = shown.stdout.trimEnd().split('\n');
  expect(rows[0]).toMatch(/^NAME +KIND +VERSION +URL$/);
  const end = rows.indexOf('');
  expect(rows.slice(1, end).map((row) => row.split(/ +/).slice(0, 3))).toEqual([
    ['zeta', 'endpoint', 'v1'],
    ['alpha', 'endpoint', 'v1'],
    ['mid', 'endpoint', 'v1'],
  ]);
  // The first of each kind stands for the others.
  expect(rows.slice(end + 1)).toEqual([
    'Call them:',
    expect.stringMatching(/^ {2}curl -X POST \S+\/endpoint\/zeta\/v1 /) as string,
    expect.stringMatching(/ invoke zeta$/) as string,
  ]);
  expect(await deploy([file, '--name', 'all'])).toMatchObject({
    code: 2,
    stderr: expect.stringContaining(`--name is for one handler: name it, as in ${file}:zeta`) as string,
  });
});

test('a file with a handler that is refused changes nothing; others of a folder do not suffer', async () => {
  const app = (name: string, more = '') => `\n\n@endpoint(name="${name}"${more})\ndef ${name}():\n    pass\n`;
  const head = 'from longshore import endpoint\n';
  write('half/a/app.py', `${head}${app('sound')}${app('lacking', ', secrets=["NOT_THERE", "NOR_THIS"]')}`);
  write('half/b/app.py', `${head}${app('other')}`);
  const ended = await deploy(['half', '--json']);
  expect(ended.code).toBe(1);
  expect(ended.json()).toMatchObject({
    deployed: [{ name: 'other' }],
    failed: ['NOT_THERE', 'NOR_THIS'].map((name) => ({
      target: 'half/a/app.py:lacking',
      error: expect.stringContaining(`longshore secret set ${name}`) as string,
    })),
    heldBack: ['half/a/app.py:sound'],
  });
});

test('a folder deploys all its apps; a failing one hides no other and gives exit code 1', async () => {
  const ok = (name: string) => `from longshore import endpoint\n\n@endpoint(name="${name}")\ndef f():\n    pass\n`;
  write('folder/a/app.py', ok('first'));
  write(
    'folder/b/app.py',
    'import longshore\n\n@longshore.endpoint()\ndef g():\n    pass\n\nraise ValueError("broken")\n',
  );
  write('folder/c/app.py', ok('second').replace('name="second"', 'name="second", secrets=["NOT_THERE"]'));
  write('folder/d/app.py', ok('third'));
  write('folder/e/app.py', ok('first'));
  write('folder/lib.py', 'import json\n\n# endpoint\n');
  write('folder/ignored/app.py', ok('ignored'));
  write('folder/.longshoreignore', 'ignored/\n');
  const ended = await deploy(['folder', '--json']);
  expect(ended.code).toBe(1);
  expect(ended.json()).toMatchObject({
    deployed: [
      { name: 'first', target: 'folder/a/app.py:f', version: 1 },
      { name: 'third', target: 'folder/d/app.py:f', version: 1 },
    ],
    failed: [
      { target: 'folder/b/app.py', error: expect.stringContaining('ValueError: broken') as string },
      { target: 'folder/e/app.py:f', error: expect.stringContaining('the name of folder/a/app.py:f') as string },
      { target: 'folder/c/app.py:f', error: expect.stringContaining('there is no secret NOT_THERE') as string },
    ],
  });
  expect(await deploy(['.'], platform.own.token, join(directory.path, 'three'))).toMatchObject({ code: 0 });
  const nothing = await deploy(['folder/nothing']);
  expect(nothing.code).toBe(2);
  mkdirSync(join(directory.path, 'empty'));
  expect(await deploy(['empty'])).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('no Python file in ') as string,
  });
});
