// How people get the command line and the Python module: from the scheduler's own `/install/`, without any registry.
// The command line runs on the system's Node 20, without the pinned one.
import { existsSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { execa } from 'execa';
import { afterAll, beforeAll, expect } from 'vitest';
import { ROOT, jsonOf, plainEnv, test } from '../helpers/platform.ts';
import { runProgram, tempDirectory } from '../helpers/programs.ts';

const PACKAGES: string = join(ROOT, 'scripts', 'build', 'packages.mjs');
/** Nobody listens there: a client that asks a registry fails. */
const NO_REGISTRY = 'http://127.0.0.1:9';
const RUN_MS = 120_000;

const work = tempDirectory('install');
afterAll(() => work.remove());
let programs = '';

beforeAll(async () => {
  const npm = systemProgram('npm');
  programs = dirname(npm);
  const { stdout } = await execa(systemProgram('node'), ['--version']);
  expect(Number.parseInt(stdout.slice(1), 10), `${programs}/node is ${stdout}`).toBeLessThan(24);
});

/** A program of the system: the pinned Node comes first on the tests' own path. */
function systemProgram(name: string): string {
  const found = ['/usr/bin', '/usr/local/bin'].map((folder) => join(folder, name)).find((path) => existsSync(path));
  if (found === undefined) throw new Error(`this machine has no ${name} of its own, and the test needs Node 20`);
  return found;
}

function env(more: NodeJS.ProcessEnv = {}): NodeJS.ProcessEnv {
  const own = Object.entries(plainEnv()).filter(([name]) => !/^npm_|^NODE/i.test(name));
  return {
    ...Object.fromEntries(own),
    PATH: `${programs}:/usr/local/bin:/usr/bin:/bin`,
    HOME: work.path,
    npm_config_cache: join(work.path, 'npm'),
    npm_config_registry: NO_REGISTRY,
    PIP_INDEX_URL: NO_REGISTRY,
    PIP_DISABLE_PIP_VERSION_CHECK: '1',
    ...more,
  };
}

test(
  'a person installs both from the page, and deploys and calls an app',
  { timeout: 600_000 },
  async ({ platform }) => {
    const { writePackages } = (await import(PACKAGES)) as {
      writePackages: (into: string) => Promise<readonly string[]>;
    };
    await writePackages(join(platform.directory, 'releases'));
    const page = (await platform.call('/install/', { token: '' })).text;
    const lines = [...page.matchAll(/<pre>([^<]+)<\/pre>/g)].flatMap(([, text = '']) => text.split('\n'));
    const [npx = '', npm = ''] = lines.filter((line) => line.startsWith('np'));
    const [pip = ''] = lines.filter((line) => line.startsWith('pip install'));
    const folder = join(work.path, 'shop');
    mkdirSync(folder);
    const shell = (line: string, more: NodeJS.ProcessEnv = {}): Promise<string> =>
      runProgram('sh', ['-c', line], { cwd: folder, env: env(more) }, RUN_MS);

    expect(await shell(npx.replace('npx ', 'npx --yes '))).toContain('Usage: longshore');
    const prefix = join(work.path, 'prefix');
    await shell(npm, { npm_config_prefix: prefix });

    // Each part of the program loads: none needs something that this Node lacks.
    const installed = join(prefix, 'lib', 'node_modules', 'longshore');
    const parts = readdirSync(join(installed, 'lib')).filter((file) => file.startsWith('chunk-'));
    expect(parts.length).toBeGreaterThan(10);
    const load = ['--help', ...parts].map((part) => JSON.stringify(part)).join(',');
    writeFileSync(
      join(work.path, 'load.mjs'),
      `process.argv.splice(2, 0, '--help');
    await import(${JSON.stringify(join(installed, 'lib', 'main.mjs'))});
    for (const part of [${load}].slice(1)) await import(${JSON.stringify(`${installed}/lib/`)} + part);
    process.stdout.write('\\nloaded on ' + process.version + '\\n');`,
    );
    expect(await shell(`node ${join(work.path, 'load.mjs')}`)).toMatch(/loaded on v2[0-3]\./);

    const place = {
      LONGSHORE_URL: platform.url,
      LONGSHORE_TOKEN: platform.token,
      PATH: `${prefix}/bin:${env()['PATH']}`,
    };
    for (const command of ['up', 'scheduler', 'agent check', 'mounts', 'registry serve'])
      await expect(shell(`longshore ${command}`, place), command).rejects.toThrow(
        /is the package for callers[^]*it runs on/,
      );

    // A starter app comes with the package, too.
    expect(await shell('longshore init --template hello .', place)).toContain('app.py');
    const python = join(work.path, 'venv');
    await shell(`python3 -m venv ${python}`);
    await shell(`${python}/bin/${pip}`);
    expect(await shell('longshore deploy app.py', place)).toContain('/endpoint/');
    expect(JSON.parse(await shell(`longshore invoke hello --data '{"name": "Ada"}'`, place))).toEqual({
      greeting: 'Hello, Ada!',
    });
    expect(await shell('longshore status', place)).toContain('hello');
    // The installed module calls what was deployed; from another folder, so that no checkout is found.
    const call = `import app, longshore; print(longshore.__file__); print(app.handler.invoke(name='Bo'))`;
    const said = await shell(`${python}/bin/python -c "${call}"`, { ...place, PYTHONPATH: folder });
    expect(said).toContain(join(python, 'lib'));
    expect(said).toContain(`{'greeting': 'Hello, Bo!'}`);

    // A call without a deployment runs the installed command.
    writeFileSync(
      join(folder, 'train.py'),
      'from longshore import function\n\n@function\ndef train(rounds: int) -> int:\n    return rounds * 2\n\nif __name__ == "__main__":\n    print(train.remote(21))\n',
    );
    expect(await shell(`${python}/bin/python train.py`, place)).toMatch(/^42$/m);
    expect(jsonOf(await platform.call('/install/notes.txt', { token: '' }))).toMatchObject({
      code: 'package_not_found',
    });
  },
);

test('wheels say which Python they need, and hold types and licence', { timeout: RUN_MS }, async () => {
  const { writePackages } = (await import(PACKAGES)) as { writePackages: (into: string) => Promise<readonly string[]> };
  const into = join(work.path, 'wheels');
  const [, ...wheels] = await writePackages(into);
  const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { version: string };
  expect(wheels).toEqual([`longshore-${version}-py3-none-any.whl`, `longshore_shims-${version}-py3-none-any.whl`]);
  const list = async (file = ''): Promise<string> =>
    runProgram('python3', ['-m', 'zipfile', '-l', join(into, 'install', file)]);
  const module = await list(wheels[0]);
  for (const file of ['longshore/py.typed', 'longshore/runner/main.py', 'dist-info/LICENSE', 'dist-info/RECORD'])
    expect(module).toContain(file);
  expect(module).not.toMatch(/__pycache__|README|\bbeta9\//);
  expect(await list(wheels[1])).toMatch(/beta9\/py\.typed/);
});
