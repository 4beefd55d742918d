/**
 * The Python environment of the Python module's tests, beside set-up's state: the system's pytest, and the web
 * framework that an ASGI test serves. Distributions have too old frameworks, so it comes from the package index.
 */
import { existsSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { SetupError } from './log.mjs';
import { pythonWithPytest } from './packages.mjs';
import { stateDir } from './paths.mjs';
import { run } from './run.mjs';

const STARLETTE = '1.10.0';
const TIMEOUT_MS = 300_000;

const directory = () => join(stateDir(), `python-tests-${STARLETTE}`);

/** The program that runs the tests. */
export const pythonOfTests = () => join(directory(), 'bin', 'python');

/**
 * Makes the environment where it is not there; an interrupted one starts anew.
 * @param {{ step<T>(title: string, work: () => Promise<T>): Promise<T> }} log
 */
export async function ensurePythonOfTests(log) {
  const complete = join(directory(), 'complete');
  if (existsSync(complete)) return;
  await log.step(`installing Starlette ${STARLETTE} for the Python tests (pip)`, async () => {
    rmSync(directory(), { recursive: true, force: true });
    await run(await pythonWithPytest(), ['-m', 'venv', '--system-site-packages', directory()], {
      timeoutMs: TIMEOUT_MS,
    });
    const install = ['-m', 'pip', 'install', '--quiet', '--disable-pip-version-check', `starlette==${STARLETTE}`];
    await run(pythonOfTests(), install, { name: 'pip-starlette', timeoutMs: TIMEOUT_MS }).catch((error) => {
      throw new SetupError(
        `The Python tests need Starlette from the package index that pip is set up for:\n${error.message}`,
      );
    });
    writeFileSync(complete, '');
  });
}
