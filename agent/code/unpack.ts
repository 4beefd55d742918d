/**
 * Unpacks a zip archive of a tenant. Refused: a file outside the target, more entries or bytes than the bounds. In code
 * a link that leads out is refused, too. All its files become readable and writable for every user (`a+rwX`), because
 * any user of the image works with them. Files for a build keep times and links as they were: nobody follows those on
 * the machine. Their permissions stand in a file beside the folder where they would close it to the agent itself.
 */
import { createWriteStream } from 'node:fs';
import { chmod, lstat, lutimes, mkdir, readFile, stat, symlink, utimes } from 'node:fs/promises';
import { dirname, join, posix } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { pipeline } from 'node:stream/promises';
import { fromBufferPromise, getFileNameLowLevel, openPromise } from 'yauzl';
import type { Entry, ZipFile } from 'yauzl';
import { hasCode } from '../durable.ts';
import { writeModes } from '../containers/tar.ts';
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
const UNIX = 3;
/** Info-ZIP's field for times. */
const TIMES = 0x5455;

/** Whose files an archive has: an app's code, or what a Dockerfile copies. */
export type Purpose = 'code' | 'build';

interface Link {
  readonly path: string;
  readonly to: string;
  /** Path in the archive. */
  readonly name: string;
  readonly mtime: number | undefined;
}

/** A folder that gets what it had when everything in it is written. */
interface Folder {
  readonly path: string;
  readonly mode: number;
  readonly mtime: number | undefined;
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
export async function unpack(archive: string, target: string, purpose: Purpose = 'code'): Promise<number> {
  const isExact = purpose === 'build';
  const inMemory = (await stat(archive)).size <= MOST_IN_MEMORY_BYTES ? await readFile(archive) : undefined;
  const zip = await open(inMemory, archive);
  let entries = 0;
  let bytes = 0;
  let linkBytes = 0;
  const made = new Set<string>([target]);
  const links: Link[] = [];
  const folders: Folder[] = [];
  /** Permissions that differ on the disk. */
  const closed: Record<string, number> = {};
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
      const written = nameOf(entry);
      const name = written.replace(/\/$/, '');
      if (name === '.') continue;
      const path = join(target, name);
      const mode = (entry.externalFileAttributes >>> 16) & 0xffff;
      const mtime = isExact ? changedAt(entry) : undefined;
      if (written.endsWith('/')) {
        await makeFolder(path, made);
        if (isExact) {
          const wanted = mode === 0 ? 0o755 : mode & 0o777;
          if ((wanted & 0o700) !== 0o700) closed[name] = wanted;
          folders.push({ path, mode: wanted | 0o700, mtime });
        }
        continue;
      }
      if (names.has(name)) throw new BadArchive(`the archive has ${name} twice`);
      names.add(name);
      await makeFolder(dirname(path), made);
      if ((mode & 0o170000) === 0o120000) {
        linkBytes += entry.uncompressedSize;
        if (linkBytes > MAX_LINKS_BYTES)
          throw new BadArchive(`the archive's links have more than ${MAX_LINKS_BYTES} bytes`);
        links.push({ path, to: await readLink(zip, entry, name), name, mtime });
        continue;
      }
      const wanted = modeOf(mode, isExact);
      if ((wanted & 0o400) === 0) closed[name] = wanted;
      const writes: Promise<void> = writeFile({ zip, inMemory }, entry, path, wanted | 0o400)
        .then(() => (mtime === undefined ? undefined : utimes(path, mtime, mtime)))
        .catch((error: unknown) => void (failure ??= error))
        .finally(() => writing.delete(writes));
      writing.add(writes);
      if (writing.size >= SIDE_BY_SIDE) await Promise.race(writing);
      if (failure !== undefined) throw failure as Error;
    }
    await Promise.all(writing);
    if (failure !== undefined) throw failure as Error;
    // Links come last, so that nothing is ever written through one.
    const linkNames = new Set(links.map((link) => link.name));
    if (!isExact) for (const link of links) checkLink(link, linkNames);
    for (const { to, path, mtime } of links) {
      await symlink(to, path);
      if (mtime !== undefined) await lutimes(path, mtime, mtime);
    }
    // The innermost first: what is written below a folder changes its time.
    for (const { path, mode, mtime } of folders.toReversed()) {
      if (mtime !== undefined) await utimes(path, mtime, mtime);
      await chmod(path, mode);
    }
    if (isExact) await writeModes(target, closed);
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
  const options = { lazyEntries: true, autoClose: false, validateEntrySizes: true, decodeStrings: false };
  try {
    return inMemory === undefined ? await openPromise(archive, options) : await fromBufferPromise(inMemory, options);
  } catch (error) {
    throw new BadArchive('the code archive is not a zip file', { cause: error });
  }
}

/** Programs of Unix write `/` between folders: a backslash and a colon are parts of a name there. */
const isOfUnix = ({ versionMadeBy }: Entry): boolean => versionMadeBy >>> 8 === UNIX;

/** Seconds since 1970, if the archive says. */
function changedAt({ extraFields }: Entry): number | undefined {
  const field = extraFields.find(({ id, data }) => id === TIMES && data.length >= 5 && ((data[0] ?? 0) & 1) !== 0);
  return field?.data.readInt32LE(1);
}

function modeOf(packed: number, isExact: boolean): number {
  if (isExact) return packed === 0 ? 0o644 : packed & 0o777;
  return (packed & 0o111) === 0 ? 0o666 : 0o777;
}

/** A relative path that stays inside, with a slash at the end of a folder; or a refusal. */
function nameOf(entry: Entry): string {
  const { generalPurposeBitFlag, fileNameRaw, extraFields } = entry;
  const name = getFileNameLowLevel(generalPurposeBitFlag, fileNameRaw, extraFields, isOfUnix(entry));
  const climbs = (path: string): boolean => path.startsWith('/') || /^\.\.(?:\/|$)/.test(posix.normalize(path));
  if (
    name.includes('\0') ||
    climbs(name) ||
    climbs(name.replaceAll('\\', '/')) ||
    (!isOfUnix(entry) && /^[A-Za-z]:/.test(name))
  )
    throw new BadArchive(`the archive names a path outside itself: ${JSON.stringify(name.slice(0, 200))}`);
  return posix.normalize(name);
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
  mode: number,
): Promise<void> {
  if (inMemory !== undefined && (await writeSmallFile(inMemory, entry, path, mode))) return;
  // The entry is opened before the file: a file that cannot be created then fails inside the pipeline, which reports
  // it.
  const content = await zip.openReadStreamPromise(entry);
  // Exclusive: an entry never replaces another one.
  await pipeline(content, createWriteStream(path, { flags: 'wx', mode: 0o600 }));
  await chmod(path, mode);
}

async function readLink(zip: ZipFile, entry: Entry, name: string): Promise<string> {
  if (entry.uncompressedSize > MAX_LINK_BYTES) throw new BadArchive(`the link ${name} is too long`);
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
