/**
 * Unpacks a zip archive of somebody's code. What may not happen: a file outside the target, a link that leads out of it, more entries or bytes than the bounds.
 * Everything is made readable and writable for all (`a+rwX`), because any user of the image works in it.
 */
import { createWriteStream } from 'node:fs';
import { chmod, lstat, mkdir, symlink } from 'node:fs/promises';
import { dirname, join, posix } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { pipeline } from 'node:stream/promises';
import { openPromise } from 'yauzl';
import type { Entry, ZipFile } from 'yauzl';
import { hasCode } from '../durable.ts';

const MAX_ENTRIES = 200_000;
const MAX_BYTES = 8 * 1024 ** 3;
const MAX_LINK_BYTES = 4096;

/** An archive that will not be unpacked; the text is for its author. */
export class BadArchive extends Error {
  override readonly name = 'BadArchive';
}

/**
 * @param target - an empty folder
 * @returns how many bytes the files have
 * @throws BadArchive
 */
export async function unpack(archive: string, target: string): Promise<number> {
  const zip = await open(archive);
  let entries = 0;
  let bytes = 0;
  const made = new Set<string>([target]);
  const links: { readonly path: string; readonly to: string; readonly name: string }[] = [];
  const names = new Set<string>();
  try {
    await chmod(target, 0o777);
    for await (const entry of zip.eachEntry()) {
      entries += 1;
      bytes += entry.uncompressedSize;
      if (entries > MAX_ENTRIES) throw new BadArchive(`the archive has more than ${MAX_ENTRIES} entries`);
      if (bytes > MAX_BYTES) throw new BadArchive(`the archive unpacks to more than ${MAX_BYTES} bytes`);
      const name = safeName(entry.fileName);
      if (name === '.') continue;
      const path = join(target, name);
      const mode = (entry.externalFileAttributes >>> 16) & 0xffff;
      if (entry.fileName.endsWith('/')) {
        await makeFolder(path, made);
        continue;
      }
      if (names.has(name)) throw new BadArchive(`the archive has ${name} twice`);
      names.add(name);
      await makeFolder(dirname(path), made);
      if ((mode & 0o170000) === 0o120000) links.push({ path, to: await readLink(zip, entry), name });
      else await writeFile(zip, entry, path, mode);
    }
    // Links come last, so that nothing is ever written through one.
    for (const link of links) await makeLink(link, target);
  } catch (error) {
    if (error instanceof BadArchive) throw error;
    // A full or broken disk is ours, everything else the archive's.
    if (hasCode(error, 'ENOSPC', 'EIO', 'EROFS', 'EACCES', 'EPERM', 'EMFILE', 'EDQUOT')) throw error;
    throw new BadArchive(`the archive cannot be unpacked: ${error instanceof Error ? error.message : String(error)}`, {
      cause: error,
    });
  } finally {
    zip.close();
  }
  return bytes;
}

async function open(archive: string): Promise<ZipFile> {
  try {
    return await openPromise(archive, { lazyEntries: true, autoClose: false, validateEntrySizes: true });
  } catch (error) {
    throw new BadArchive('the code archive is not a zip file', { cause: error });
  }
}

/** A relative path that stays inside, or a refusal. */
function safeName(name: string): string {
  const slashed = name.replaceAll('\\', '/');
  if (slashed.includes('\0') || slashed.startsWith('/') || /^[A-Za-z]:/.test(slashed))
    throw new BadArchive(`the archive names a path outside itself: ${JSON.stringify(name.slice(0, 200))}`);
  const normal = posix.normalize(slashed).replace(/\/$/, '');
  if (normal === '..' || normal.startsWith('../'))
    throw new BadArchive(`the archive names a path outside itself: ${JSON.stringify(name.slice(0, 200))}`);
  return normal === '' ? '.' : normal;
}

async function makeFolder(path: string, made: Set<string>): Promise<void> {
  if (made.has(path)) return;
  await makeFolder(dirname(path), made);
  try {
    await mkdir(path);
  } catch (error) {
    if (!hasCode(error, 'EEXIST') || !(await lstat(path)).isDirectory()) throw error;
  }
  await chmod(path, 0o777);
  made.add(path);
}

async function writeFile(zip: ZipFile, entry: Entry, path: string, mode: number): Promise<void> {
  // Exclusive: an entry never replaces another one.
  const file = createWriteStream(path, { flags: 'wx', mode: 0o600 });
  await pipeline(await zip.openReadStreamPromise(entry), file);
  await chmod(path, (mode & 0o111) === 0 ? 0o666 : 0o777);
}

async function readLink(zip: ZipFile, entry: Entry): Promise<string> {
  if (entry.uncompressedSize > MAX_LINK_BYTES) throw new BadArchive(`the link ${entry.fileName} is too long`);
  return (await buffer(await zip.openReadStreamPromise(entry))).toString('utf8');
}

async function makeLink(link: { path: string; to: string; name: string }, target: string): Promise<void> {
  const lands = posix.normalize(posix.join(posix.dirname(link.name), link.to));
  if (link.to === '' || link.to.startsWith('/') || lands === '..' || lands.startsWith('../'))
    throw new BadArchive(`the link ${link.name} leads out of the archive`);
  // A chain of links could still lead out: a link may not pass through another one.
  let step = '';
  for (const part of lands.split('/').slice(0, -1)) {
    step = posix.join(step, part);
    const there = await lstat(join(target, step)).catch(() => undefined);
    if (there?.isSymbolicLink() === true) throw new BadArchive(`the link ${link.name} passes through the link ${step}`);
  }
  await symlink(link.to, link.path);
}
