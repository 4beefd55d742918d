/**
 * The packages that people install: the command line for npm and the Python module's wheels. A scheduler gives them out
 * below `/install/`, from the folder `install` beside its releases. Two builds of the same sources give the same bytes.
 */
import { mkdir, mkdtemp, readFile, readdir, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { repositoryRoot } from '../setup/paths.mjs';

/** The folder's name, which `scheduler/api/ops/packages.ts` reads. */
const FOLDER = 'install';
/** Sources of the packages. */
const SOURCES = ['cli', 'shared', 'python/longshore', 'python/beam', 'python/beta9', 'examples', 'scripts/build'];

/**
 * Writes the packages into `into/install`, in place of those of an earlier build.
 * @param {string} into
 * @returns {Promise<string[]>} the files' names
 */
export async function writePackages(into) {
  const { version } = JSON.parse(await readFile(join(repositoryRoot, 'package.json'), 'utf8'));
  // The libraries are there after the first set-up alone.
  const [{ TARBALL, writeCommandLine }, { writeWheels }] = await Promise.all([
    import('./command-line.mjs'),
    import('./wheel.mjs'),
  ]);
  const folder = join(into, FOLDER);
  await mkdir(folder, { recursive: true });
  // On the same disk, so that files appear there in one step.
  const work = await mkdtemp(join(into, '.install-'));
  try {
    const [wheels] = await Promise.all([writeWheels(work, version), writeCommandLine(join(work, 'package'), work)]);
    const made = [TARBALL, ...wheels];
    for (const file of made) await rename(join(work, file), join(folder, file));
    const old = (await readdir(folder)).filter((file) => !made.includes(file));
    await Promise.all(old.map((file) => rm(join(folder, file), { recursive: true, force: true })));
    return made;
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

/** Whether the packages in `into/install` are newer than all of their sources. */
export async function packagesAreCurrent(into) {
  const files = await readdir(join(into, FOLDER)).catch(() => []);
  if (files.length < 3) return false;
  const builtMs = Math.min(...(await changedMs(files.map((file) => join(into, FOLDER, file)))));
  const sources = await Promise.all(SOURCES.map((source) => filesBelow(join(repositoryRoot, source))));
  const lock = join(repositoryRoot, 'package-lock.json');
  return (await changedMs([lock, ...sources.flat()])).every((ms) => ms < builtMs);
}

const changedMs = (paths) => Promise.all(paths.map(async (path) => (await stat(path)).mtimeMs));

/** All files but the caches of Python. */
async function filesBelow(folder) {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  return entries
    .filter((entry) => entry.isFile() && !entry.parentPath.includes('__pycache__'))
    .map((entry) => join(entry.parentPath, entry.name));
}
