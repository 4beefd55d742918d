/**
 * Unpacks a zip archive of a tenant's code. Refused: a file outside the target, a link that leads out of it, more
 * entries or bytes than the bounds. All files become readable and writable for every user (`a+rwX`), because any user
 * of the image works with them.
 */
import { createWriteStream } from 'node:fs';
import { chmod, lstat, mkdir, readFile, stat, symlink } from 'node:fs/promises';
import { dirname, join, posix } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { pipeline } from 'node:stream/promises';
import { fromBufferPromise, openPromise } from 'yauzl';
import type { Entry, ZipFile } from 'yauzl';
import { hasCode } from '../durable.ts';
import { writeSmallFile } from './small-files.ts';

const MAX_ENTRIES = 200_000;
const MAX_BYTES = 8 * 1024 ** 3;
const MAX_LINK_BYTES = 4096;
/** Files that are written at once: each waits several times for the disk. */
const SIDE_BY_SIDE = 8;
/** Archives up to here are read whole. */
const MOST_IN_MEMORY_BYTES = 32 * 1024 * 1024;
/** Bound on the summed texts of an archive's links, which stay in memory until the files are written. */
const MAX_LINKS_BYTES = 16 * 1024 * 1024;

interface Link {
  readonly path: string;
  readonly to: string;
  /** Path in the archive. */
  readonly name: string;
}

/** An archive that is refused; the text is for its author. */
export class BadArchive extends Error {
  override readonly name = 'BadArchive';
}

/**
 * @param target - an empty folder
 * @returns how many bytes the files have
 * @throws BadArchive
 */
export async function unpack(archive: string, target: string): Promise<number> {
  const inMemory = (await stat(archive)).size <= MOST_IN_MEMORY_BYTES ? await readFile(archive) : undefined;
  const zip = await open(inMemory, archive);
  let entries = 0;
  let bytes = 0;
  let linkBytes = 0;
  const made = new Set<string>([target]);
  const links: Link[] = [];
  const names = new Set<string>();
  const writing = new Set<Promise<void>>();
  let failure: unknown;
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
      if ((mode & 0o170000) === 0o120000) {
        linkBytes += entry.uncompressedSize;
        if (linkBytes > MAX_LINKS_BYTES)
          throw new BadArchive(`the archive's links have more than ${MAX_LINKS_BYTES} bytes`);
        links.push({ path, to: await readLink(zip, entry), name });
        continue;
      }
      const written: Promise<void> = writeFile({ zip, inMemory }, entry, path, mode)
        .catch((error: unknown) => void (failure ??= error))
        .finally(() => writing.delete(written));
      writing.add(written);
      if (writing.size >= SIDE_BY_SIDE) await Promise.race(writing);
      if (failure !== undefined) throw failure as Error;
    }
    await Promise.all(writing);
    if (failure !== undefined) throw failure as Error;
    // Links come last, so that nothing is ever written through one.
    const linkNames = new Set(links.map((link) => link.name));
    for (const link of links) checkLink(link, linkNames);
    for (const link of links) await symlink(link.to, link.path);
  } catch (error) {
    if (error instanceof BadArchive) throw error;
    // A full or broken disk is the machine's fault; every other error is the archive's.
    if (hasCode(error, 'ENOSPC', 'EIO', 'EROFS', 'EACCES', 'EPERM', 'EMFILE', 'EDQUOT')) throw error;
    throw new BadArchive(`the archive cannot be unpacked: ${error instanceof Error ? error.message : String(error)}`, {
      cause: error,
    });
  } finally {
    // After a failure the folder is removed, and nothing may still be written into it.
    await Promise.all(writing);
    zip.close();
  }
  return bytes;
}

async function open(inMemory: Buffer | undefined, archive: string): Promise<ZipFile> {
  const options = { lazyEntries: true, autoClose: false, validateEntrySizes: true };
  try {
    return inMemory === undefined ? await openPromise(archive, options) : await fromBufferPromise(inMemory, options);
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

async function writeFile(
  { zip, inMemory }: { readonly zip: ZipFile; readonly inMemory: Buffer | undefined },
  entry: Entry,
  path: string,
  packedMode: number,
): Promise<void> {
  const mode = (packedMode & 0o111) === 0 ? 0o666 : 0o777;
  if (inMemory !== undefined && (await writeSmallFile(inMemory, entry, path, mode))) return;
  // The entry is opened before the file: a file that cannot be created then fails inside the pipeline, which reports
  // it.
  const content = await zip.openReadStreamPromise(entry);
  // Exclusive: an entry never replaces another one.
  await pipeline(content, createWriteStream(path, { flags: 'wx', mode: 0o600 }));
  await chmod(path, mode);
}

async function readLink(zip: ZipFile, entry: Entry): Promise<string> {
  if (entry.uncompressedSize > MAX_LINK_BYTES) throw new BadArchive(`the link ${entry.fileName} is too long`);
  return (await buffer(await zip.openReadStreamPromise(entry))).toString('utf8');
}

/**
 * A link may pass through no other link of its archive, in any order: its text does not tell where the other leads.
 * @throws BadArchive
 */
function checkLink({ to, name }: Link, links: ReadonlySet<string>): void {
  const leadsOut = new BadArchive(`the link ${name} leads out of the archive`);
  if (to === '' || to.startsWith('/')) throw leadsOut;
  const at = name.split('/').slice(0, -1);
  const steps = to.split('/').filter((part) => part !== '' && part !== '.');
  for (const [index, step] of steps.entries()) {
    if (step !== '..') at.push(step);
    else if (at.pop() === undefined) throw leadsOut;
    const here = at.join('/');
    if (index < steps.length - 1 && links.has(here))
      throw new BadArchive(`the link ${name} passes through the link ${here}`);
  }
}
