// Objects as files below the data directory. A file is written beside its place and
// moved there when complete, so that a reader or a crash never meets an incomplete file.
import { createHash, randomBytes } from 'node:crypto';
import type { Hash } from 'node:crypto';
import { access, mkdir, open, readdir, rename, rm, stat } from 'node:fs/promises';
import type { FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { AppError } from '#shared/errors.ts';
import type {
  Downloads,
  KeptObject,
  ObjectBackend,
  OpenedBytes,
  PutOptions,
  ResumableUploads,
  Settle,
  StoredBytes,
  UploadedPart,
} from './backend.ts';
import { UnfinishedUploads } from './unfinished.ts';
import type { Taken } from './unfinished.ts';

const KEY = /^[A-Za-z0-9_-]{2,128}$/;
const READ_BYTES = 256 * 1024;
const RETRY_AFTER_SECONDS = 5;
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
  readonly resumable: ResumableUploads;
  readonly downloads: Downloads;
  readonly #directory: string;
  readonly #incoming: string;
  readonly #unfinished: UnfinishedUploads;
  /** Keys whose parts arrive here at this moment. */
  readonly #appending = new Set<string>();

  constructor(directory: string, incoming: string) {
    this.#directory = directory;
    this.#incoming = incoming;
    const unfinished = new UnfinishedUploads(incoming);
    this.#unfinished = unfinished;
    this.resumable = {
      find: async (key) => {
        const found = await unfinished.find(key).catch(rethrow);
        return found === undefined ? undefined : { ...found, isBusy: found.isBusy || this.#appending.has(key) };
      },
      append: (key, part, source, settle) => this.#append(key, part, source, settle),
      list: () => unfinished.list(),
      drop: (key) => unfinished.drop(key).catch(rethrow),
    };
    this.downloads = { kind: 'here', open: (key) => this.#openRanges(key) };
  }

  async put(
    key: string,
    source: AsyncIterable<Uint8Array>,
    maxBytes: number,
    { keep, settle }: PutOptions = {},
  ): Promise<StoredBytes> {
    this.#pathOf(key);
    const temporary =
      keep === undefined
        ? join(this.#incoming, `${key}.${randomBytes(8).toString('hex')}`)
        : this.#unfinished.newPath(key, keep.total);
    const written = { path: temporary, received: 0, digest: createHash('sha256') };
    try {
      await write(written, 'wx', source, maxBytes);
      const stored = await this.#place(key, written, settle);
      // A whole upload ends an earlier one that was cut off.
      if (keep !== undefined) await this.#unfinished.drop(key);
      return stored;
    } catch (error) {
      const failure = translate(error);
      const isKept = keep !== undefined && mayGoOn(failure, written, keep.total) && (await keep.mayKeep());
      if (isKept) await this.#unfinished.rest(key, keep.total, written).catch(rethrow);
      else await rm(temporary, { force: true });
      throw failure;
    }
  }

  async #append(
    key: string,
    part: UploadedPart,
    source: AsyncIterable<Uint8Array>,
    settle: Settle,
  ): Promise<StoredBytes | { readonly received: number }> {
    this.#pathOf(key);
    if (this.#appending.has(key)) throw inProgress();
    this.#appending.add(key);
    try {
      const { total } = part;
      const written = await this.#begin(key, part);
      try {
        await write(written, 'a', source, part.end);
        if (written.received === total) {
          const stored = await this.#place(key, written, settle);
          await this.#unfinished.drop(key);
          return stored;
        }
      } catch (error) {
        const failure = translate(error);
        if (mayGoOn(failure, written, total)) await this.#unfinished.rest(key, total, written);
        else await rm(written.path, { force: true });
        throw failure;
      }
      await this.#unfinished.rest(key, total, written);
      return { received: written.received };
    } catch (error) {
      throw translate(error);
    } finally {
      this.#appending.delete(key);
    }
  }

  /** The file that a part continues; a new one for the first part. */
  async #begin(key: string, { first, total }: UploadedPart): Promise<Writing> {
    const found = await this.#unfinished.find(key);
    if (found?.isBusy === true) throw inProgress();
    if (first === 0) {
      const path = this.#unfinished.newPath(key, total);
      return { path, received: 0, digest: createHash('sha256') };
    }
    if (found === undefined || found.received !== first || found.total !== total) {
      const received = found?.received ?? 0;
      const text =
        found !== undefined && found.total !== total
          ? `Content-Range says ${total} bytes in all, the upload began with ${found.total}`
          : `Content-Range begins at byte ${first}, and ${received} bytes have arrived`;
      throw new AppError('upload_offset_mismatch', text, { details: { received, field: 'Content-Range' } });
    }
    const taken = await this.#unfinished.take(key, found);
    if (taken === undefined) throw inProgress();
    return { ...taken };
  }

  /** Moves a complete file to its place. */
  async #place(key: string, { path, received, digest }: Writing, settle: Settle = atOnce): Promise<StoredBytes> {
    const stored = { size: received, sha256: digest.digest('hex') };
    await mkdir(join(this.#directory, folderOf(key)), { recursive: true, mode: 0o700 });
    await settle(stored, () => rename(path, this.#pathOf(key)));
    return stored;
  }

  async #openRanges(key: string): Promise<OpenedBytes | undefined> {
    const opened = await this.#openFile(key);
    if (opened === undefined) return undefined;
    const { file, size } = opened;
    return {
      size,
      read: (first, last) => {
        const length = last - first + 1;
        if (length <= 0) {
          void file.close();
          return Readable.from([]);
        }
        const bytes = file.createReadStream({ start: first, end: last, highWaterMark: READ_BYTES });
        const passed = Readable.from(exactly(bytes, length), { objectMode: false, highWaterMark: READ_BYTES });
        return passed.once('close', () => bytes.destroy());
      },
      close: () => file.close(),
    };
  }

  async open(key: string): ReturnType<ObjectBackend['open']> {
    const opened = await this.#openFile(key);
    if (opened === undefined) return undefined;
    return { size: opened.size, stream: opened.file.createReadStream({ highWaterMark: READ_BYTES }) };
  }

  async #openFile(key: string): Promise<{ readonly file: FileHandle; readonly size: number } | undefined> {
    let file: FileHandle;
    try {
      file = await open(this.#pathOf(key), 'r');
    } catch (error) {
      if (codeOf(error) === 'ENOENT') return undefined;
      throw translate(error);
    }
    try {
      const { size } = await file.stat();
      return { file, size };
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

/** A file under way: `received` and `digest` follow its bytes. */
interface Writing extends Omit<Taken, 'received'> {
  received: number;
  digest: Hash;
}

/** Writes the source behind the bytes that are there. Bytes that arrived are synced also when the source fails. */
async function write(
  to: Writing,
  flag: 'wx' | 'a',
  source: AsyncIterable<Uint8Array>,
  maxBytes: number,
): Promise<void> {
  const file = await open(to.path, flag, 0o600);
  try {
    for await (const chunk of source) {
      if (to.received + chunk.length > maxBytes) throw tooLarge(maxBytes);
      await writeAll(file, chunk);
      to.received += chunk.length;
      to.digest.update(chunk);
    }
  } finally {
    // Bytes are synced first: the row that says "uploaded" must not outlive them.
    try {
      await file.datasync();
    } finally {
      await file.close();
    }
  }
}

const CUT_OFF: ReadonlySet<string> = new Set(['upload_incomplete', 'body_too_slow']);

/** Whether a later request can send the rest. */
const mayGoOn = ({ code }: AppError, { received }: Writing, total: number): boolean =>
  CUT_OFF.has(code) && received > 0 && received < total;

/** Passes the bytes on. An object that is shorter than it was when opened is an error, and never a clean end. */
async function* exactly(bytes: Readable, length: number): AsyncGenerator<Uint8Array> {
  let size = 0;
  for await (const chunk of bytes) {
    size += (chunk as Uint8Array).length;
    yield chunk as Uint8Array;
  }
  if (size !== length) throw new AppError('object_store_failed', 'an object became shorter while it was read');
}

const atOnce: Settle = (_stored, place) => place();

export const inProgress = (): AppError =>
  new AppError('upload_in_progress', 'another request is sending this upload: wait until it has ended', {
    details: { retryAfterSeconds: RETRY_AFTER_SECONDS },
  });

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

function rethrow(error: unknown): never {
  throw translate(error);
}
