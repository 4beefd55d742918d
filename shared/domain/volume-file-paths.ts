/**
 * Paths of files in a volume, as callers write them: names with slashes between, from the volume's root. The file
 * server checks them again (python/longshore/volume_files/paths.py). Pure.
 */

export const MAX_FILE_PATH_BYTES = 4096;
const MAX_NAME_BYTES = 255;
/** Folders of uploads that are not complete. */
const UPLOADS_PREFIX = '.longshore-upload-';

/** @returns why the path names no folder of a volume; undefined: it may name one. The root is the empty path. */
export const folderPathProblem = (path: string): string | undefined =>
  path === '' ? undefined : filePathProblem(path);

/** @returns why the path names no file of a volume; undefined: it may name one */
export function filePathProblem(path: string): string | undefined {
  if (path === '') return 'must name a file of the volume, such as models/weights.bin';
  if (!path.isWellFormed()) return 'must be Unicode text';
  if (Buffer.byteLength(path) > MAX_FILE_PATH_BYTES) return `must have at most ${MAX_FILE_PATH_BYTES} bytes`;
  for (const part of path.split('/')) {
    if (part === '') return 'must not begin or end with a slash, or have two in a row';
    if (part === '.' || part === '..') return 'must not have . or .. as a name';
    if (part.includes('\0')) return 'must not have a NUL';
    if (Buffer.byteLength(part) > MAX_NAME_BYTES) return `must have names of at most ${MAX_NAME_BYTES} bytes`;
    if (part.startsWith(UPLOADS_PREFIX)) return `must not have a name that begins with ${UPLOADS_PREFIX}`;
  }
  return undefined;
}
