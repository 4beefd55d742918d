// A copy into a volume: small files together, large ones in records that go on after a break.
import { hash, createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { messageOf } from '#shared/errors.ts';
import { filePathProblem } from '#shared/domain/volume-file-paths.ts';
import { isRecord } from '#shared/json.ts';
import type { Client } from '../client.ts';
import { CliError } from '../errors.ts';
import { listField, numberField, textField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { batchesOf } from './batches.ts';
import { inLanes, persistently } from './lanes.ts';
import { isSameTime } from './local-tree.ts';
import type { LocalFile } from './local-tree.ts';
import { BrokenPack, PACK_TYPE, RECORD_BYTES, SMALL_BYTES, packLine } from './pack.ts';
import { joinPath } from './places.ts';
import type { Report } from './report.ts';
import { PackAddress, jsonOf, listFiles, volumePath } from './volume-files.ts';

const READ_BYTES = 512 * 1024;
/** Tries at an upload that another request has, before that counts as its failure. */
const TRIES_OF_HELD = 5;
/** Small files are sent together in writes of about this size. */
const JOIN_BYTES = 256 * 1024;

export interface Upload {
  readonly volume: string;
  /** The folder of the volume that paths of files begin at. */
  readonly folder: string;
  readonly files: readonly LocalFile[];
  readonly emptyFolders: readonly string[];
  /** Also sends files that are there already, with the same size and time of change. */
  readonly all: boolean;
}

/** Copies files into a volume. Failures of single files are in the report. */
export async function uploadFiles(client: Client, upload: Upload, report: Report, signal: AbortSignal): Promise<void> {
  const { volume, folder } = upload;
  const wanted = upload.files.filter((file) => hasGoodPath(file.path, report));
  const files = upload.all ? wanted : await missing(client, upload, wanted, report);
  report.totalFiles = files.length;
  report.totalBytes = files.reduce((sum, { size }) => sum + size, 0);
  const sender = new Sender(client, volume, folder, report);
  const emptyFolders = upload.emptyFolders.filter((path) => hasGoodPath(path, report));
  if (emptyFolders.length > 0) await sender.makeFolders(emptyFolders, signal);
  await inLanes(batchesOf(files), signal, (batch, either) => sender.send(batch, either));
}

function hasGoodPath(path: string, report: Report): boolean {
  const problem = filePathProblem(path);
  if (problem !== undefined) report.fail(path, `its path ${problem}`);
  return problem === undefined;
}

/** The files that the volume does not have yet. */
async function missing(
  client: Client,
  { volume, folder }: Upload,
  files: readonly LocalFile[],
  report: Report,
): Promise<readonly LocalFile[]> {
  const [only] = files;
  const one = files.length === 1 && only !== undefined && !only.path.includes('/') ? joinPath(folder, only.path) : '';
  const listing = await listFiles(client, volume, one === '' ? folder : one, one === '');
  const there = new Map(
    (listing?.entries ?? []).filter((entry) => entry.kind === 'file').map((file) => [file.path, file]),
  );
  return files.filter((file) => {
    const found = there.get(file.path);
    const isSame = found !== undefined && found.size === file.size && isSameTime(found.mtimeNs, file.mtimeNs);
    report.same += isSame ? 1 : 0;
    return !isSame;
  });
}

class Sender {
  readonly #client: Client;
  readonly #volume: string;
  readonly #folder: string;
  readonly #report: Report;
  readonly #address: PackAddress;

  constructor(client: Client, volume: string, folder: string, report: Report) {
    this.#client = client;
    this.#volume = volume;
    this.#folder = folder;
    this.#report = report;
    this.#address = new PackAddress(client, volume, folder, 'PUT');
  }

  async makeFolders(paths: readonly string[], signal: AbortSignal): Promise<void> {
    const body = Buffer.concat(paths.map((path) => packLine({ path, kind: 'folder' })));
    await persistently(signal, async () => {
      this.#tell(await this.#answer(body, signal));
    });
  }

  async send(batch: readonly LocalFile[], signal: AbortSignal): Promise<void> {
    const [only] = batch;
    const isLarge = batch.length === 1 && only !== undefined && only.size > RECORD_BYTES;
    await persistently(signal, async (tries) => {
      const attempt = new Attempt(this.#report);
      try {
        const from = isLarge ? await this.#received(only) : 0;
        attempt.moved(from);
        const answer = await this.#answer(attempt.body(batch, from), signal);
        // A request that was cut may hold its upload until the volume's disk has answered it.
        if (isLarge && tries < TRIES_OF_HELD && isHeld(answer)) throw new BrokenPack(`${only.path}: ${HELD}`);
        this.#tell(answer);
        for (const { path, message } of attempt.unread) this.#report.fail(path, message);
      } catch (error) {
        attempt.undo();
        throw error;
      }
    });
  }

  async #answer(body: AsyncIterable<Buffer> | Buffer, signal: AbortSignal): Promise<JsonObject> {
    const answer = await this.#address.send({ method: 'PUT', contentType: PACK_TYPE, body }, signal);
    const value = await jsonOf(answer.body).catch((error: unknown) => {
      throw new BrokenPack(`the answer to a pack broke off (${messageOf(error)})`, { cause: error });
    });
    if (!isRecord(value)) throw new BrokenPack('the answer to a pack is no JSON object');
    return value;
  }

  #tell(answer: JsonObject): void {
    this.#report.files += numberField(answer, 'files');
    const failed = listField(answer, 'failed');
    for (const one of failed) this.#report.fail(textField(one, 'path'), textField(one, 'message'));
    const more = numberField(answer, 'failures') - failed.length;
    for (let at = 0; at < more; at += 1) this.#report.fail('(another file)', 'it could not be written, either');
  }

  /** The byte at which an upload of a large file goes on: the begin of a record. */
  async #received(file: LocalFile): Promise<number> {
    const path = joinPath(this.#folder, file.path);
    const query = new URLSearchParams({ path, size: String(file.size), key: file.key });
    const answer = await this.#client.rest(
      `${await volumePath(this.#client, this.#volume)}/upload?${query.toString()}`,
    );
    return Math.floor(Math.min(numberField(answer, 'received'), file.size - 1) / RECORD_BYTES) * RECORD_BYTES;
  }
}

/** A sending of a batch: its bytes, and what could not be read of it. */
class Attempt {
  readonly unread: { readonly path: string; readonly message: string }[] = [];
  readonly #report: Report;
  #bytes = 0;

  constructor(report: Report) {
    this.#report = report;
  }

  moved(bytes: number): void {
    this.#bytes += bytes;
    this.#report.moved(bytes);
  }

  undo(): void {
    this.#report.moved(-this.#bytes);
    this.#bytes = 0;
  }

  async *body(batch: readonly LocalFile[], from: number): AsyncGenerator<Buffer> {
    let joined: Buffer[] = [];
    let size = 0;
    for (const file of batch) {
      if (file.size > SMALL_BYTES) {
        yield* this.#large(file, from);
        continue;
      }
      const parts = this.#small(file);
      joined.push(...parts);
      for (const part of parts) size += part.length;
      if (size < JOIN_BYTES) continue;
      yield Buffer.concat(joined, size);
      joined = [];
      size = 0;
    }
    if (size > 0) yield Buffer.concat(joined, size);
  }

  #small(file: LocalFile): readonly Buffer[] {
    let data: Buffer;
    try {
      data = readFileSync(file.fullPath);
    } catch (error) {
      this.unread.push({ path: file.path, message: `it cannot be read (${messageOf(error)})` });
      return [];
    }
    if (data.length !== file.size) {
      this.unread.push({ path: file.path, message: CHANGED });
      return [];
    }
    this.moved(data.length);
    return [packLine({ ...factsOf(file), from: 0, length: data.length }), data, trailer(hash('sha256', data, 'hex'))];
  }

  async *#large(file: LocalFile, from: number): AsyncGenerator<Buffer> {
    const opened = await open(file.fullPath, 'r').catch((error: unknown) => {
      this.unread.push({ path: file.path, message: `it cannot be read (${messageOf(error)})` });
      return undefined;
    });
    if (opened === undefined) return;
    // The request sends from one while the next one is filled.
    const rooms = [Buffer.allocUnsafeSlow(READ_BYTES), Buffer.allocUnsafeSlow(READ_BYTES)] as const;
    let turn = 0;
    try {
      for (let at = from; at < file.size; at += RECORD_BYTES) {
        const length = Math.min(RECORD_BYTES, file.size - at);
        yield packLine({ ...factsOf(file), from: at, length, key: file.key });
        const digest = createHash('sha256');
        let read = 0;
        while (read < length) {
          turn = 1 - turn;
          const room = (turn === 0 ? rooms[0] : rooms[1]).subarray(0, length - read);
          const { bytesRead } = await opened.read({ buffer: room, position: at + read });
          // A pack cannot leave a file out in the middle of a record.
          if (bytesRead === 0) throw new CliError(`${file.path}: ${CHANGED}`);
          const data = room.subarray(0, bytesRead);
          digest.update(data);
          read += bytesRead;
          this.moved(bytesRead);
          yield data;
        }
        yield trailer(digest.digest('hex'));
      }
      const { mtimeNs, size } = await opened.stat({ bigint: true });
      if (mtimeNs !== file.mtimeNs || Number(size) !== file.size) {
        this.unread.push({ path: file.path, message: CHANGED });
      }
    } finally {
      await opened.close();
    }
  }
}

/** Whether another request still has the upload of the only file. */
const isHeld = (answer: JsonObject): boolean =>
  listField(answer, 'failed').some((one) => textField(one, 'code') === 'upload_in_progress');

const HELD = 'another request is sending this upload';
const CHANGED = 'it was changed while it was copied';

const factsOf = ({ path, size, mtimeNs, isExecutable }: LocalFile): JsonObject => ({
  path,
  size,
  mtimeNs: String(mtimeNs),
  executable: isExecutable,
});

const trailer = (sha256: string): Buffer => packLine({ sha256 });
