/**
 * Trees of files in what is built: copies from the repository without what editors and Python leave behind, and
 * archives whose bytes depend on the files alone: names sorted, owners and times fixed.
 */
import { chmod, copyFile, cp, link, mkdir, rename } from 'node:fs/promises';
import { dirname, join, relative, sep } from 'node:path';
import { repositoryRoot } from '../setup/paths.mjs';
import { run } from '../setup/run.mjs';

/** Archives of some kinds cannot hold earlier times. */
export const EPOCH_SECONDS = 315_532_800;

/** Left out of copies, and documents about the Python module's code. */
const LEFT_OUT = /(?:^|\/)(?:__pycache__|\.(?!longshoreignore$)[^/]+|[^/]+\.pyc)$|^python\/.*\.md$/;

/** Whether copies leave out a path of the repository. */
export const isLeftOut = (path) => LEFT_OUT.test(path.split(sep).join('/'));

/**
 * Copies a file or folder of the repository to the same path below a directory.
 * @param {string} path - from the repository's root
 * @param {string} directory
 * @param {string} [as] - the path there, where that is another one
 */
export async function copyTree(path, directory, as = path) {
  const to = join(directory, as);
  await mkdir(dirname(to), { recursive: true });
  await cp(join(repositoryRoot, path), to, {
    recursive: true,
    filter: (from) => !isLeftOut(relative(repositoryRoot, from)),
  });
}

/** Links a program, or copies it where the folders are on two disks. */
export async function linkOrCopy(from, to) {
  await link(from, to).catch(() => copyFile(from, to));
  await chmod(to, 0o755);
}

/**
 * Packs a folder by GNU tar and gzip. The archive appears in one step.
 * @param {string} directory
 * @param {string} file - the archive
 * @param {{ name: string, level?: number, step?: string }} options `name`: the folder's name in the archive;
 *   `level`: of gzip; `step`: the name in the log
 */
export async function packTree(directory, file, { name, level = 6, step = 'release' }) {
  const tar = [
    '--sort=name',
    '--format=gnu',
    `--mtime=@${process.env.SOURCE_DATE_EPOCH ?? EPOCH_SECONDS}`,
    '--owner=0',
    '--group=0',
    '--numeric-owner',
    '--hard-dereference',
    '--mode=u+rwX,go+rX,go-w',
    `--transform=s,^\\.,${name},`,
    `--use-compress-program=gzip -n -${level}`,
    '-cf',
    `${file}.new`,
    '-C',
    directory,
    '.',
  ];
  await run('tar', tar, { name: step, timeoutMs: 300_000 });
  await rename(`${file}.new`, file);
}
