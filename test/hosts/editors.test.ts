// Apps in editors: the installed module under real type checkers, mypy and pyright, and pyright's language server.
import { createHash } from 'node:crypto';
import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { execa } from 'execa';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { once } from '../helpers/api-clients.ts';
import { LanguageServer } from '../helpers/language-server.ts';
import { tempDirectory } from '../helpers/services.ts';

const ROOT = resolve(import.meta.dirname, '..', '..');
const FIXTURES = join(ROOT, 'test', 'fixtures', 'editors');
const PACKAGES: string = join(ROOT, 'scripts', 'build', 'packages.mjs');
const MYPY = '2.4.1';
const PYRIGHT = '1.1.414';
/** Imports of the examples. */
const LIBRARIES = [
  'numpy==2.2.6',
  'standardwebhooks==1.1.0',
  'fastapi==0.165.0',
  'humanize==4.9.0',
  'safetensors==0.8.0',
  'tabulate==0.9.0',
  'tokenizers==0.23.3',
  'types-tabulate==0.9.0.*',
];
/** Another list of packages is another environment. */
const TOOLS = createHash('sha256')
  .update([MYPY, PYRIGHT, ...LIBRARIES].join())
  .digest('hex')
  .slice(0, 12);
const RUN_MS = 300_000;

const work = tempDirectory('editors');
afterAll(() => work.remove());
let tools = '';
let python = '';

beforeAll(async () => {
  tools = await once(`editors-${TOOLS}`, async (directory) => {
    await execa('python3', ['-m', 'venv', directory], { timeout: RUN_MS });
    const packages = [`mypy==${MYPY}`, `pyright==${PYRIGHT}`, ...LIBRARIES];
    const pip = ['-m', 'pip', 'install', '--quiet', '--disable-pip-version-check'];
    await execa(join(directory, 'bin', 'python'), [...pip, ...packages], { timeout: RUN_MS });
  });
  // An environment of its own has the wheels, and sees the libraries beside the tools.
  const environment = join(work.path, 'venv');
  await execa('python3', ['-m', 'venv', environment], { timeout: RUN_MS });
  python = join(environment, 'bin', 'python');
  const { writePackages } = (await import(PACKAGES)) as { writePackages: (into: string) => Promise<readonly string[]> };
  const wheels = (await writePackages(work.path)).filter((file) => file.endsWith('.whl'));
  const pip = ['-m', 'pip', 'install', '--quiet', '--disable-pip-version-check', '--no-index'];
  await execa(python, [...pip, ...wheels.map((file) => join(work.path, 'install', file))], { timeout: RUN_MS });
  const site = ['-c', 'import sysconfig; print(sysconfig.get_path("purelib"))'];
  const [own, theirs] = await Promise.all(
    [python, join(tools, 'bin', 'python')].map(async (program) => (await execa(program, site)).stdout),
  );
  writeFileSync(join(own ?? '', 'tools.pth'), `${theirs}\n`);
}, RUN_MS * 3);

const env = (): NodeJS.ProcessEnv => ({ ...process.env, PYRIGHT_PYTHON_IGNORE_WARNINGS: '1' });

/** Errors of `mypy --strict`, as lines `file:line: …`. */
async function mypy(folder: string, ...args: readonly string[]): Promise<readonly string[]> {
  const flags = ['--strict', '--python-executable', python, '--cache-dir', join(work.path, 'mypy')];
  const shown = ['--no-error-summary', '--hide-error-context', '--no-pretty'];
  const { stdout, stderr, exitCode } = await execa(join(tools, 'bin', 'mypy'), [...flags, ...shown, ...args], {
    cwd: folder,
    reject: false,
    timeout: RUN_MS,
  });
  if (exitCode !== 0 && exitCode !== 1) throw new Error(`mypy ended with ${exitCode}: ${stderr}${stdout}`);
  return stdout.split('\n').filter((line) => line !== '' && !line.includes(': note: '));
}

/** Errors and warnings of pyright, as lines `file:line: …`. */
async function pyright(folder: string, ...files: readonly string[]): Promise<readonly string[]> {
  const args = ['--outputjson', '--pythonpath', python, ...files];
  const { stdout } = await execa(join(tools, 'bin', 'pyright'), args, {
    cwd: folder,
    env: env(),
    reject: false,
    timeout: RUN_MS,
  });
  const { generalDiagnostics } = JSON.parse(stdout) as {
    generalDiagnostics: readonly {
      readonly file: string;
      readonly message: string;
      readonly severity: string;
      readonly rule?: string;
      readonly range: { readonly start: { readonly line: number } };
    }[];
  };
  return (
    generalDiagnostics
      // A library without sources is a remark about this environment.
      .filter(({ rule }) => rule !== 'reportMissingModuleSource')
      .map(({ file, message, range }) => `${basename(file)}:${range.start.line + 1}: ${message}`)
  );
}

const linesOf = (found: readonly string[]): readonly number[] =>
  [...new Set(found.map((line) => Number(/^[^:]+:(\d+):/.exec(line)?.[1])))].toSorted((a, b) => a - b);

describe('an app passes a strict type checker, and its mistakes do not', () => {
  const marked = readFileSync(join(FIXTURES, 'wrong.py'), 'utf8')
    .split('\n')
    .flatMap((line, at) => (line.endsWith('# wrong') ? [at + 1] : []));

  test('mypy --strict', { timeout: RUN_MS }, async () => {
    expect(await mypy(FIXTURES, 'typed.py')).toEqual([]);
    expect(linesOf(await mypy(FIXTURES, 'wrong.py'))).toEqual(marked);
  });

  test('pyright', { timeout: RUN_MS }, async () => {
    expect(await pyright(FIXTURES, 'typed.py')).toEqual([]);
    expect(linesOf(await pyright(FIXTURES, 'wrong.py'))).toEqual(marked);
  });
});

test('each example passes mypy --strict and pyright', { timeout: RUN_MS * 3 }, async () => {
  const examples = join(ROOT, 'examples');
  const files = readdirSync(examples, { recursive: true, encoding: 'utf8' }).filter((file) => file.endsWith('.py'));
  expect(files.length).toBeGreaterThan(20);
  const wrong: string[] = [];
  for (const file of files) {
    const found = await mypy(join(examples, dirname(file)), basename(file));
    wrong.push(...found.map((line) => `${dirname(file)}/${line}`));
  }
  expect(wrong).toEqual([]);
  expect(await pyright(examples, ...files)).toEqual([]);
});

test('the module itself passes mypy --strict', { timeout: RUN_MS }, async () => {
  expect(await mypy(join(ROOT, 'python'), 'longshore', 'beam', 'beta9')).toEqual([]);
});

test('an editor shows what a name is for, its parameters and an example', { timeout: RUN_MS }, async () => {
  const file = join(work.path, 'app.py');
  writeFileSync(
    file,
    [
      'from longshore import Image, function',
      '',
      '@function(cpu=2)',
      'def add(a: int, b: int = 0) -> int:',
      '    """Adds two numbers."""',
      '    return a + b',
      '',
      'add.remote(1)',
      'add.put(1)',
      'add(1)',
      'Image()',
      '',
    ].join('\n'),
  );
  const langserver = join(tools, 'bin', 'pyright-python-langserver');
  const settings = join(work.path, 'pyrightconfig.json');
  writeFileSync(settings, JSON.stringify({ venvPath: work.path, venv: 'venv' }));
  const server = await LanguageServer.start(langserver, ['--stdio'], work.path, env());
  try {
    expect(await server.hover(file, '@function')).toMatch(/keep_warm_seconds: float[^]*add\.remote\(1, b=2\)/);
    expect(await server.hover(file, 'add.remote')).toMatch(/a: int,\s+b: int = 0\s+\) -> int[^]*total = add\.remote/);
    expect(await server.hover(file, 'add.put')).toMatch(/a: int,\s+b: int = 0\s+\) -> Task[^]*task\.status\(\)/);
    expect(await server.hover(file, 'def add')).toContain('Adds two numbers.');
    expect(await server.hover(file, 'import Image')).toMatch(/Image[^]*python_packages/);
  } finally {
    server.stop();
  }
});
