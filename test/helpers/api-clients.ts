// Generators of clients from docs/openapi.json, at pinned versions. Each is installed once for a version, beside
// set-up's state.
import { createHash } from 'node:crypto';
import { cpSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { execa } from 'execa';

const ROOT = resolve(import.meta.dirname, '..', '..');
export const OPENAPI_FILE = join(ROOT, 'docs', 'openapi.json');
const PATHS: string = join(ROOT, 'scripts', 'setup', 'paths.mjs');
const PYTHON_GENERATOR = '0.29.1';
const INSTALL_MS = 300_000;

/** Makes a directory beside set-up's state once; what an interrupted installation left is removed first. */
export async function once(name: string, install: (directory: string) => Promise<void>): Promise<string> {
  const { stateDir } = (await import(PATHS)) as { readonly stateDir: () => string };
  const directory = join(stateDir(), name);
  const complete = join(directory, 'complete');
  if (existsSync(complete)) return directory;
  rmSync(directory, { recursive: true, force: true });
  mkdirSync(directory, { recursive: true });
  await install(directory);
  writeFileSync(complete, '');
  return directory;
}

/** @returns a folder whose `node_modules` has openapi-typescript, openapi-fetch and the TypeScript that they take */
export async function typescriptGenerator(): Promise<string> {
  const from = join(ROOT, 'test', 'tools', 'api-clients');
  const lock = readFileSync(join(from, 'package-lock.json'));
  const version = createHash('sha256').update(lock).digest('hex').slice(0, 12);
  return once(`api-clients-${version}`, async (directory) => {
    cpSync(from, directory, { recursive: true });
    const args = ['ci', '--ignore-scripts', '--no-audit', '--no-fund'];
    await execa('npm', args, { cwd: directory, timeout: INSTALL_MS });
  });
}

/** @returns a Python environment with openapi-python-client, and what its clients import */
export async function pythonGenerator(): Promise<string> {
  return once(`openapi-python-client-${PYTHON_GENERATOR}`, async (directory) => {
    await execa('python3', ['-m', 'venv', directory], { timeout: INSTALL_MS });
    const pip = ['-m', 'pip', 'install', '--quiet', '--disable-pip-version-check'];
    const packages = [`openapi-python-client==${PYTHON_GENERATOR}`, 'httpx', 'attrs', 'python-dateutil'];
    await execa(join(directory, 'bin', 'python'), [...pip, ...packages], { timeout: INSTALL_MS });
  });
}
