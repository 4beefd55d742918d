// Packs an app's files into a zip whose bytes depend on names, modes and contents
// alone. So the hash of an unchanged app matches, and nothing is uploaded again.
// The zip is a temporary file: an app may be larger than memory should hold.
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { mkdtemp, open, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { messageOf } from '#shared/errors.ts';
import { CliError, errorCode } from '../errors.ts';
import type { AppFile } from './files.ts';
import { ZipWriter, compress } from './zip-writer.ts';

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
export async function packFiles(files: readonly AppFile[], options: PackOptions = {}): Promise<Archive> {
  const directory = await mkdtemp(join(tmpdir(), 'longshore-deploy-'));
  const remove = (): Promise<void> => rm(directory, { recursive: true, force: true });
  try {
    const path = join(directory, 'app.zip');
    const target = await open(path, 'wx', 0o600);
    try {
      const zip = new ZipWriter(target);
      for (const batch of batchesOf(files)) {
        options.signal?.throwIfAborted();
        await packBatch(zip, batch, options);
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

async function packBatch(zip: ZipWriter, batch: readonly AppFile[], { onContent }: PackOptions): Promise<void> {
  const [first] = batch;
  if (first !== undefined && first.size > MOST_READ_WHOLE_BYTES) {
    await zip.addStream(first, createReadStream(first.fullPath));
    return;
  }
  const contents = await Promise.all(
    batch.map(async (file) => {
      const content = await readFile(file.fullPath);
      onContent?.(file, createHash('sha256').update(content).digest('hex'));
      return compress(content);
    }),
  );
  for (const [index, file] of batch.entries()) {
    const content = contents[index];
    if (content !== undefined) await zip.add(file, content);
  }
}

/** Neighbours that are read at once; a large file is by itself. */
function* batchesOf(files: readonly AppFile[]): Generator<readonly AppFile[]> {
  let batch: AppFile[] = [];
  let bytes = 0;
  for (const file of files) {
    const isFull = batch.length === BATCH_FILES || bytes + file.size > MOST_READ_WHOLE_BYTES;
    if (isFull && batch.length > 0) {
      yield batch;
      batch = [];
      bytes = 0;
    }
    batch.push(file);
    bytes += file.size;
  }
  if (batch.length > 0) yield batch;
}
