/**
 * The runner and the Python modules that every container mounts. Each version is copied once into the state directory,
 * so that an upgrade of the program never changes files under running containers.
 */
import { createHash } from 'node:crypto';
import { chmod, cp, mkdir, readFile, readdir, rename, rm } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { StartupError } from '#shared/errors.ts';

/** The Python part of this program. */
export const pythonSource = (): string => fileURLToPath(new URL('../../python', import.meta.url));

const isLeftOut = (name: string): boolean =>
  name === '__pycache__' || name === 'tests' || name.startsWith('.') || /\.(?:pyc|md)$/.test(name);

/**
 * @returns the folder to mount at /opt/longshore/python
 * @throws StartupError `runner_missing`
 */
export async function installRunner(source: string, dir: string): Promise<string> {
  const files = (await listFiles(source)).toSorted();
  if (!files.includes('longshore/runner/__main__.py')) {
    throw new StartupError(
      'runner_missing',
      `the Python runner is missing from ${source}; this copy of the program is not complete, install it again`,
    );
  }
  const hash = createHash('sha256');
  for (const file of files)
    hash
      .update(file)
      .update('\0')
      .update(await readFile(join(source, file)))
      .update('\0');
  const target = join(dir, hash.digest('hex').slice(0, 16));
  const there = await readdir(target).catch(() => undefined);
  if (there !== undefined) return target;
  const temporary = `${target}.new`;
  await rm(temporary, { recursive: true, force: true });
  await mkdir(temporary, { recursive: true });
  for (const file of files) await cp(join(source, file), join(temporary, file), { preserveTimestamps: true });
  await openUp(temporary);
  await rename(temporary, target);
  return target;
}

async function listFiles(root: string, under = ''): Promise<string[]> {
  const entries = await readdir(join(root, under), { withFileTypes: true }).catch(() => []);
  const lists = await Promise.all(
    entries
      .filter((entry) => !isLeftOut(entry.name))
      .map(async (entry) => {
        const path = join(under, entry.name);
        if (entry.isDirectory()) return listFiles(root, path);
        return entry.isFile() ? [relative('.', path)] : [];
      }),
  );
  return lists.flat();
}

/** Makes a file readable for any user of an image, independent of this process's umask. */
async function openUp(path: string): Promise<void> {
  await chmod(path, 0o755);
  for (const entry of await readdir(path, { withFileTypes: true })) {
    if (entry.isDirectory()) await openUp(join(path, entry.name));
    else await chmod(join(path, entry.name), 0o644);
  }
}
