// Objects as files below the data directory. A file is written beside its place and
// moved there when complete, so that a reader or a crash never meets an incomplete file.
import { createHash, randomBytes } from 'node:crypto';
import { access, mkdir, open, readdir, rename, rm, stat } from 'node:fs/promises';
import type { FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import { AppError } from '#shared/errors.ts';
import type { KeptObject, ObjectBackend, StoredBytes } from './backend.ts';

const KEY = /^[A-Za-z0-9_-]{2,128}$/;
/** Age from which a file counts as abandoned: another replica may be writing in a shared directory. */
const ABANDONED_MS = 24 * 3_600_000;

/** Opens the store. @param directory - `<dataDir>/objects`; made when missing */
export async function openFileObjects(directory: string, nowMs: number = Date.now()): Promise<ObjectBackend> {
  const incoming = join(directory, 'incoming');
  try {
    await mkdir(incoming, { recursive: true, mode: 0o700 });
    await removeAbandoned(incoming, nowMs);
  } catch (error) {
    throw translate(error);
  }
  return new FileObjects(directory, incoming);
}

async function removeAbandoned(incoming: string, nowMs: number): Promise<void> {
  for (const name of await readdir(incoming)) {
    const path = join(incoming, name);
    const facts = await stat(path).catch(() => undefined);
    if (facts !== undefined && nowMs - facts.mtimeMs > ABANDONED_MS) await rm(path, { force: true });
  }
}

class FileObjects implements ObjectBackend {
  readonly #directory: string;
  readonly #incoming: string;

  constructor(directory: string, incoming: string) {
    this.#directory = directory;
    this.#incoming = incoming;
  }

  async put(key: string, source: AsyncIterable<Uint8Array>, maxBytes: number): Promise<StoredBytes> {
    const temporary = join(this.#incoming, `${key}.${randomBytes(8).toString('hex')}`);
    const place = this.#pathOf(key);
    try {
      const stored = await writeNew(temporary, source, maxBytes);
      await mkdir(join(this.#directory, folderOf(key)), { recursive: true, mode: 0o700 });
      await rename(temporary, place);
      return stored;
    } catch (error) {
      await rm(temporary, { force: true });
      throw translate(error);
    }
  }

  async open(key: string): ReturnType<ObjectBackend['open']> {
    let file: FileHandle;
    try {
      file = await open(this.#pathOf(key), 'r');
    } catch (error) {
      if (codeOf(error) === 'ENOENT') return undefined;
      throw translate(error);
    }
    try {
      const { size } = await file.stat();
      return { size, stream: file.createReadStream({ highWaterMark: 256 * 1024 }) };
    } catch (error) {
      await file.close();
      throw translate(error);
    }
  }

  async exists(key: string): Promise<boolean> {
    try {
      await access(this.#pathOf(key));
      return true;
    } catch (error) {
      if (codeOf(error) === 'ENOENT') return false;
      throw translate(error);
    }
  }

  async remove(key: string): Promise<void> {
    try {
      await rm(this.#pathOf(key), { force: true });
    } catch (error) {
      throw translate(error);
    }
  }

  async *list(): AsyncIterable<KeptObject> {
    for (const folder of await namesIn(this.#directory)) {
      if (!FOLDER.test(folder)) continue;
      for (const key of await namesIn(join(this.#directory, folder))) {
        const facts = await stat(join(this.#directory, folder, key)).catch(() => undefined);
        if (facts?.isFile() === true) yield { key, writtenAtMs: facts.mtimeMs };
      }
    }
  }

  #pathOf(key: string): string {
    if (!KEY.test(key)) throw new AppError('object_store_failed', 'an object key has characters it must not have');
    return join(this.#directory, folderOf(key), key);
  }
}

const FOLDER = /^[a-z0-9_-]{2}$/;

async function namesIn(directory: string): Promise<string[]> {
  try {
    return await readdir(directory);
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return [];
    throw translate(error);
  }
}

/**
 * Folder of a key, one of 256, so that none grows without end;
 * named by the last characters, since ids may share their first.
 */
const folderOf = (key: string): string => key.slice(-2).toLowerCase();

async function writeNew(path: string, source: AsyncIterable<Uint8Array>, maxBytes: number): Promise<StoredBytes> {
  const file = await open(path, 'wx', 0o600);
  try {
    const digest = createHash('sha256');
    let size = 0;
    for await (const chunk of source) {
      size += chunk.length;
      if (size > maxBytes) throw tooLarge(maxBytes);
      digest.update(chunk);
      await writeAll(file, chunk);
    }
    // Bytes are synced first: the row that says "uploaded" must not outlive them.
    await file.datasync();
    return { size, sha256: digest.digest('hex') };
  } finally {
    await file.close();
  }
}

async function writeAll(file: FileHandle, chunk: Uint8Array): Promise<void> {
  for (let at = 0; at < chunk.length;) {
    const { bytesWritten } = await file.write(chunk, at, chunk.length - at);
    at += bytesWritten;
  }
}

export const tooLarge = (maxBytes: number): AppError =>
  new AppError('body_too_large', `an object may have at most ${maxBytes} bytes`, { details: { maxBytes } });

const codeOf = (error: unknown): string | undefined => (error as NodeJS.ErrnoException).code;

function translate(error: unknown): AppError {
  if (error instanceof AppError) return error;
  const code = codeOf(error);
  if (code === 'ENOSPC' || code === 'EDQUOT') {
    return new AppError('disk_full', 'the disk that keeps objects is full', { cause: error });
  }
  if (code === 'EROFS') {
    return new AppError('disk_read_only', 'the disk that keeps objects is read-only', { cause: error });
  }
  if (code === 'ECONNRESET' || code === 'ERR_STREAM_PREMATURE_CLOSE' || code === 'ABORT_ERR') {
    return new AppError('upload_incomplete', 'the upload ended before all bytes arrived', { cause: error });
  }
  return new AppError('object_store_failed', 'the object store refused', { cause: error });
}
