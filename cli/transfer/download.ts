// A copy out of a volume. Each file gets its name when all of its bytes have come and were verified; a large one that
// was cut goes on at the next time.
import { createHash, hash } from 'node:crypto';
import {
  closeSync,
  ftruncateSync,
  futimesSync,
  lstatSync,
  mkdirSync,
  openSync,
  renameSync,
  rmSync,
  statSync,
  writeSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import type { Client } from '../client.ts';
import { cannotWrite, errorCode } from '../errors.ts';
import { numberField, objectField, textField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { batchesOf } from './batches.ts';
import { inLanes, persistently } from './lanes.ts';
import { PART_PREFIX, isSameTime } from './local-tree.ts';
import { BrokenPack, PackReader, RECORD_BYTES, SMALL_BYTES, packLine } from './pack.ts';
import type { Report } from './report.ts';
import { PackAddress } from './volume-files.ts';

export interface RemoteFile {
  /** From the folder that the address of packs is for. */
  readonly path: string;
  readonly target: string;
  readonly size: number;
  readonly mtimeNs: bigint;
  readonly isExecutable: boolean;
}

export interface Download {
  readonly volume: string;
  readonly folder: string;
  readonly files: readonly RemoteFile[];
  /** Folders to make, also empty ones. */
  readonly folders: readonly string[];
  /** Also fetches files that are here already, with the same size and time of change. */
  readonly all: boolean;
}

/** Copies files out of a volume. Failures of single files are in the report. */
export async function downloadFiles(
  client: Client,
  { volume, folder, files, folders, all }: Download,
  report: Report,
  signal: AbortSignal,
): Promise<void> {
  for (const path of folders) makeFolder(path);
  const wanted = files.filter((file) => {
    const isSame = !all && isHere(file);
    report.same += isSame ? 1 : 0;
    return !isSame;
  });
  report.totalFiles += wanted.length;
  report.totalBytes += wanted.reduce((sum, { size }) => sum + size, 0);
  const address = new PackAddress(client, volume, folder, 'POST');
  await inLanes(batchesOf(wanted), signal, async (batch, either) => {
    const left = new Map(batch.map((file) => [file.path, file]));
    await persistently(either, () => fetchBatch(address, left, report, either));
  });
}

function makeFolder(path: string): void {
  try {
    mkdirSync(path, { recursive: true });
  } catch (error) {
    throw cannotWrite(path, error);
  }
}

function isHere({ target, size, mtimeNs }: RemoteFile): boolean {
  const found = lstatSync(target, { bigint: true, throwIfNoEntry: false });
  return found?.isFile() === true && Number(found.size) === size && isSameTime(found.mtimeNs, mtimeNs);
}

/** Fetches files, and takes those that are done out of `left`. */
async function fetchBatch(
  address: PackAddress,
  left: Map<string, RemoteFile>,
  report: Report,
  signal: AbortSignal,
): Promise<void> {
  if (left.size === 0) return;
  const asked = [...left.values()].map((file) => packLine({ path: file.path, from: beginOf(file) }));
  const request = { method: 'POST', contentType: 'application/x-ndjson', body: Buffer.concat(asked) } as const;
  const answer = await address.send(request, signal);
  const reader = new PackReader(answer.body);
  let writing: Writing | undefined;
  try {
    for (let head = await reader.line(); head !== undefined; head = await reader.line()) {
      const file = left.get(textField(head, 'path'));
      if (file === undefined) throw new BrokenPack('a file came that was not asked for');
      const refused = textField(objectField(head, 'error'), 'message');
      if (refused !== '') {
        report.fail(file.path, refused);
        left.delete(file.path);
        continue;
      }
      if (writing?.file !== file) {
        writing?.close();
        writing = undefined;
        writing = new Writing(file, report);
      }
      const state = await writing.record(reader, head);
      if (state === 'more') continue;
      if (state === 'changed') report.fail(file.path, 'it was changed while it was copied');
      left.delete(file.path);
    }
  } catch (error) {
    signal.throwIfAborted();
    throw error;
  } finally {
    writing?.close();
    reader.close();
  }
  if (left.size > 0) throw new BrokenPack('the pack ended before all files had come');
}

/** Name of a file on its way: the same for the same state of the same file, so that its download goes on. */
function partOf({ target, size, mtimeNs }: RemoteFile): string {
  const key = hash('sha256', `${target}\n${size}\n${mtimeNs}`, 'hex').slice(0, 16);
  return join(dirname(target), `${PART_PREFIX}${key}`);
}

const isLarge = ({ size }: RemoteFile): boolean => size > RECORD_BYTES;

/** The byte at which a download begins: bytes of whole records were verified when they came. */
function beginOf(file: RemoteFile): number {
  if (!isLarge(file)) return 0;
  const size = statSync(partOf(file), { throwIfNoEntry: false })?.size ?? 0;
  return Math.floor(Math.min(size, file.size - 1) / RECORD_BYTES) * RECORD_BYTES;
}

/** A file that is being written. */
class Writing {
  readonly file: RemoteFile;
  readonly #report: Report;
  readonly #part: string;
  #fd: number | undefined;
  #movedBytes = 0;

  constructor(file: RemoteFile, report: Report) {
    this.file = file;
    this.#report = report;
    this.#part = partOf(file);
  }

  /** Takes a record. @throws BrokenPack when its bytes are not those that were sent */
  async record(reader: PackReader, head: JsonObject): Promise<'more' | 'done' | 'changed'> {
    const { file } = this;
    const [from, length] = [numberField(head, 'from'), numberField(head, 'length')];
    const isExpected = numberField(head, 'size') === file.size && textField(head, 'mtimeNs') === String(file.mtimeNs);
    if (!isExpected) {
      await reader.take(length, () => undefined);
      const behind = await reader.line();
      this.#remove();
      const isOver = from + length >= numberField(head, 'size') || behind?.['error'] !== undefined;
      return isOver ? 'changed' : 'more';
    }
    if (from === 0 && length === file.size && length <= SMALL_BYTES) return this.#small(reader, length);
    this.#open(from);
    const digest = createHash('sha256');
    let at = from;
    await reader.take(length, (run) => {
      digest.update(run);
      this.#write(run, at);
      at += run.length;
    });
    const trailer = await reader.line();
    if (trailer === undefined) throw new BrokenPack('the pack ended before the sha256 of a file');
    if (trailer['error'] !== undefined) {
      this.#remove();
      return 'changed';
    }
    if (textField(trailer, 'sha256') !== digest.digest('hex')) {
      if (this.#fd !== undefined) ftruncateSync(this.#fd, from);
      throw new BrokenPack(`${file.path}: the bytes that came have another sha256 than was sent with them`);
    }
    this.#moved(length);
    if (at < file.size) return 'more';
    this.#finish();
    return 'done';
  }

  async #small(reader: PackReader, length: number): Promise<'done' | 'changed'> {
    const data = Buffer.allocUnsafe(length);
    let taken = 0;
    await reader.take(length, (run) => (taken += run.copy(data, taken)));
    const trailer = await reader.line();
    if (trailer === undefined) throw new BrokenPack('the pack ended before the sha256 of a file');
    if (trailer['error'] !== undefined) return 'changed';
    if (textField(trailer, 'sha256') !== hash('sha256', data, 'hex')) {
      throw new BrokenPack(`${this.file.path}: the bytes that came have another sha256 than was sent with them`);
    }
    this.#open(0);
    this.#write(data, 0);
    this.#moved(length);
    this.#finish();
    return 'done';
  }

  #open(from: number): void {
    if (this.#fd !== undefined) return;
    const mode = this.file.isExecutable ? 0o777 : 0o666;
    this.#local(() => {
      const open = (): number => openSync(this.#part, from === 0 ? 'w' : 'r+', mode);
      try {
        this.#fd = open();
      } catch (error) {
        if (errorCode(error) !== 'ENOENT' || from !== 0) throw error;
        mkdirSync(dirname(this.#part), { recursive: true });
        this.#fd = open();
      }
      ftruncateSync(this.#fd, from);
    });
    this.#moved(from);
  }

  #moved(bytes: number): void {
    this.#movedBytes += bytes;
    this.#report.moved(bytes);
  }

  #write(data: Buffer, at: number): void {
    const fd = this.#fd;
    if (fd === undefined) return;
    this.#local(() => {
      for (let done = 0; done < data.length;) done += writeSync(fd, data, done, data.length - done, at + done);
    });
  }

  #finish(): void {
    const { target, mtimeNs } = this.file;
    const fd = this.#fd;
    if (fd === undefined) return;
    this.#local(() => {
      const seconds = Number(mtimeNs) / 1e9;
      futimesSync(fd, seconds, seconds);
      closeSync(fd);
      this.#fd = undefined;
      renameSync(this.#part, target);
    });
    this.#report.files += 1;
  }

  /** Runs calls on this machine's disk. @throws CliError, which no further try helps */
  #local(work: () => void): void {
    try {
      work();
    } catch (error) {
      throw cannotWrite(this.file.target, error);
    }
  }

  #remove(): void {
    if (this.#fd !== undefined) closeSync(this.#fd);
    this.#fd = undefined;
    rmSync(this.#part, { force: true });
  }

  /** Ends it where it is: bytes of a large file stay for the next time. */
  close(): void {
    if (this.#fd === undefined) return;
    // The next attempt counts them again.
    this.#report.moved(-this.#movedBytes);
    if (!isLarge(this.file)) return this.#remove();
    closeSync(this.#fd);
    this.#fd = undefined;
  }
}
