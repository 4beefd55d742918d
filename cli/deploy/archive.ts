// Packs an app's files into a zip whose bytes depend on names, contents and what is executable alone. So the hash of an
// unchanged app matches, and nothing is uploaded again. The files of a Dockerfile keep permissions and times, too.
// The zip is a temporary file: an app may be larger than memory should hold.
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { mkdtemp, open, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { messageOf } from '#shared/errors.ts';
import { CliError, errorCode } from '../errors.ts';
import { byPath } from './files.ts';
import type { AppEntry, AppFile, AppFiles } from './files.ts';
import { ZipWriter, compress } from './zip-writer.ts';
import type { ZipName } from './zip-writer.ts';

/** A packed app on disk, until `remove`. */
export interface Archive {
  readonly path: string;
  readonly size: number;
  /** Lower-case hex sha256 of the bytes. */
  readonly sha256: string;
  remove(): Promise<void>;
}

/** Files up to here are read whole. */
export const MOST_READ_WHOLE_BYTES = 8 * 1024 * 1024;
/** Bounds of the files that are read and compressed side by side. */
const BATCH_FILES = 32;

export interface PackOptions {
  /** Called with the sha256 of each content that is read whole, as it was packed. */
  readonly onContent?: (file: AppFile, sha256: string) => void;
  readonly signal?: AbortSignal;
}

/** @throws CliError when a file cannot be read or the temporary directory has no room; nothing is left behind then */
export async function packFiles(found: AppFiles, options: PackOptions = {}): Promise<Archive> {
  const directory = await mkdtemp(join(tmpdir(), 'longshore-deploy-'));
  const remove = (): Promise<void> => rm(directory, { recursive: true, force: true });
  try {
    const path = join(directory, 'app.zip');
    const target = await open(path, 'wx', 0o600);
    try {
      const zip = new ZipWriter(target);
      for (const batch of batchesOf([...found.files, ...found.others].toSorted(byPath))) {
        options.signal?.throwIfAborted();
        await packBatch(zip, batch, (one) => zipName(one, found.isExact), options);
      }
      return { path, ...(await zip.end()), remove };
    } finally {
      await target.close();
    }
  } catch (error) {
    await remove();
    throw new CliError(
      `cannot pack the app (${messageOf(error)})${errorCode(error) === 'ENOSPC' ? ': TMPDIR names a folder with more room' : ''}`,
      { cause: error },
    );
  }
}

type Packed = AppFile | AppEntry;

const isFile = (one: Packed): one is AppFile => 'fullPath' in one;

function zipName(one: Packed, isExact: boolean): ZipName {
  const times = isExact ? { mtimeMs: one.mtimeMs } : {};
  if (isFile(one)) {
    const mode = isExact ? one.mode : one.executable ? 0o755 : 0o644;
    return { path: one.path, mode: 0o100000 | mode, ...times };
  }
  if (one.to !== undefined) return { path: one.path, mode: 0o120777, ...times };
  return { path: `${one.path}/`, mode: 0o040000 | (isExact ? one.mode : 0o755), ...times };
}

async function packBatch(
  zip: ZipWriter,
  batch: readonly Packed[],
  nameOf: (one: Packed) => ZipName,
  { onContent }: PackOptions,
): Promise<void> {
  const [first] = batch;
  if (first !== undefined && isFile(first) && first.size > MOST_READ_WHOLE_BYTES) {
    await zip.addStream(nameOf(first), createReadStream(first.fullPath));
    return;
  }
  const contents = await Promise.all(
    batch.map(async (one) => {
      if (!isFile(one)) return compress(Buffer.from(one.to ?? ''));
      const content = await readFile(one.fullPath);
      onContent?.(one, createHash('sha256').update(content).digest('hex'));
      return compress(content);
    }),
  );
  for (const [index, one] of batch.entries()) {
    const content = contents[index];
    if (content !== undefined) await zip.add(nameOf(one), content);
  }
}

/** Neighbours that are read at once; a large file is by itself. */
function* batchesOf(entries: readonly Packed[]): Generator<readonly Packed[]> {
  let batch: Packed[] = [];
  let bytes = 0;
  for (const one of entries) {
    const size = isFile(one) ? one.size : 0;
    const isFull = batch.length === BATCH_FILES || bytes + size > MOST_READ_WHOLE_BYTES;
    if (isFull && batch.length > 0) {
      yield batch;
      batch = [];
      bytes = 0;
    }
    batch.push(one);
    bytes += size;
  }
  if (batch.length > 0) yield batch;
}
