/** Directories that one test file of a run makes, and the others copy. */
import { mkdir, mkdtemp, rename, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { waitFor } from './programs.ts';

/** Time limit of the one file that makes it, on a busy machine. */
const MAKING_MS = 60_000;

/**
 * The path of the directory, whole; `make` fills an empty one where there is none. It lies in the temporary directory
 * of the run, which goes away at the run's end.
 * @returns undefined without `LS_TEST_RUN`: then nothing removes it
 */
export async function madeOnce(name: string, make: (directory: string) => Promise<void>): Promise<string | undefined> {
  if (process.env['LS_TEST_RUN'] === undefined) return undefined;
  const path = join(tmpdir(), name);
  if (!(await exists(path))) await makeOrWait(path, make);
  return path;
}

async function makeOrWait(path: string, make: (directory: string) => Promise<void>): Promise<void> {
  const lock = `${path}.lock`;
  const isFirst = await mkdir(lock).then(
    () => true,
    () => false,
  );
  if (!isFirst) return void (await waitFor(() => exists(path), `${path} is there`, MAKING_MS));
  const made = await mkdtemp(`${path}-`);
  try {
    await make(made);
    await rename(made, path);
  } catch (error) {
    await rm(made, { recursive: true, force: true });
    await rm(lock, { recursive: true });
    throw error;
  }
}

const exists = (path: string): Promise<boolean> =>
  stat(path).then(
    () => true,
    () => false,
  );
