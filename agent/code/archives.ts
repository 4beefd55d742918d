/**
 * Code archives of this machine: each is fetched once over the link, checked against the server's sha256 and unpacked
 * once. The cache is bounded in bytes; the least recently used archive goes first. Called when an assignment arrives.
 * Must stay true: a folder named by a sha256 is complete, and one that a container uses is never evicted.
 */
import { createHash } from 'node:crypto';
import { createWriteStream } from 'node:fs';
import { chmod, mkdir, readFile, readdir, rename, rm, utimes, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { Transform } from 'node:stream';
import { AppError, messageOf } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import { modesFile } from '../containers/tar.ts';
import { BadArchive, unpack } from './unpack.ts';
import type { Purpose } from './unpack.ts';

/** Opens the stream of an archive's bytes. */
export type FetchCode = (objectId: string, signal: AbortSignal) => AsyncIterable<Uint8Array>;

export interface CodeRef {
  readonly objectId: string;
  readonly sha256: string;
  readonly size: number;
}

const FETCH_DEADLINE_MS = 10 * 60_000;
const SHA256 = /^[0-9a-f]{64}$/;
/** An archive that is unpacked for builds has a folder of its own. */
const UNPACKED = /^[0-9a-f]{64}(?:\.build)?$/;
/** Files beside a folder: its size, and permissions that it does not have on the disk. */
const BESIDE = /\.(?:bytes|modes)$/;
/** The name by which an archive is held. */
export const unpackedName = (sha256: string, purpose: Purpose): string =>
  purpose === 'build' ? `${sha256}.build` : sha256;

export class Archives {
  readonly #dir: string;
  readonly #fetch: FetchCode;
  readonly #maxBytes: number;
  readonly #log: Log;
  readonly #running = new Map<string, Promise<string>>();
  readonly #users = new Map<string, Set<string>>();
  readonly #known = new Map<string, { bytes: number; usedAtMs: number }>();

  constructor(dir: string, fetch: FetchCode, maxBytes: number, log: Log) {
    this.#dir = dir;
    this.#fetch = fetch;
    this.#maxBytes = maxBytes;
    this.#log = log;
  }

  /** Removes leftovers of interrupted unpacking, and lists the archives that are here. */
  async open(): Promise<void> {
    await mkdir(join(this.#dir, 'empty'), { recursive: true, mode: 0o700 });
    await chmod(join(this.#dir, 'empty'), 0o777);
    const names = new Set(await readdir(this.#dir));
    for (const name of names) {
      const path = join(this.#dir, name);
      if (UNPACKED.test(name)) {
        const bytes = Number(await readFile(`${path}.bytes`, 'utf8').catch(() => 'NaN'));
        if (Number.isFinite(bytes)) this.#known.set(name, { bytes, usedAtMs: (await stat(path)).mtimeMs });
        else await rm(path, { recursive: true, force: true });
      } else if (name !== 'empty' && !(BESIDE.test(name) && names.has(name.replace(BESIDE, ''))))
        await rm(path, { recursive: true, force: true });
    }
  }

  /**
   * The folder of the unpacked archive, fetched if absent. The folder stays until `release` by the same user.
   * @throws AppError `code_error` with a sentence for its author when the archive is bad; other errors are ours and
   * pass through
   */
  async acquire(code: CodeRef | undefined, user: string, purpose: Purpose = 'code'): Promise<string> {
    if (code === undefined || code.objectId === '') return join(this.#dir, 'empty');
    const { sha256 } = code;
    if (!SHA256.test(sha256)) throw new AppError('code_error', 'the code archive has no valid sha256');
    const name = unpackedName(sha256, purpose);
    this.hold(name, user);
    try {
      let running = this.#running.get(name);
      if (running === undefined) {
        running = this.#get(code, purpose).finally(() => this.#running.delete(name));
        this.#running.set(name, running);
      }
      return await running;
    } catch (error) {
      this.release(name, user);
      throw error;
    }
  }

  /** Bytes of all unpacked archives, those in use included. */
  get bytes(): number {
    return [...this.#known.values()].reduce((sum, one) => sum + one.bytes, 0);
  }

  /** Marks an archive as used by a container, also after a restart of the agent. */
  hold(name: string, user: string): void {
    const users = this.#users.get(name) ?? new Set();
    users.add(user);
    this.#users.set(name, users);
  }

  release(name: string, user: string): void {
    const users = this.#users.get(name);
    users?.delete(user);
    if (users?.size === 0) this.#users.delete(name);
  }

  async #get(code: CodeRef, purpose: Purpose): Promise<string> {
    const name = unpackedName(code.sha256, purpose);
    const path = join(this.#dir, name);
    const known = this.#known.get(name);
    if (known !== undefined) {
      known.usedAtMs = Date.now();
      const now = new Date();
      await utimes(path, now, now).catch(() => undefined);
      return path;
    }
    const from = performance.now();
    const archive = join(this.#dir, `${name}.zip.new`);
    const folder = join(this.#dir, `${name}.new`);
    try {
      await this.#download(code, archive);
      await rm(folder, { recursive: true, force: true });
      await mkdir(folder, { mode: 0o700 });
      const bytes = await unpack(archive, folder, purpose);
      await writeFile(`${path}.bytes`, String(bytes));
      if (purpose === 'build') await rename(modesFile(folder), modesFile(path));
      await rename(folder, path);
      this.#known.set(name, { bytes, usedAtMs: Date.now() });
      this.#log.info({ bytes, durationMs: Math.round(performance.now() - from) }, 'code archive fetched');
    } catch (error) {
      await rm(folder, { recursive: true, force: true });
      await rm(modesFile(folder), { force: true });
      if (error instanceof BadArchive) throw new AppError('code_error', error.message, { cause: error });
      throw error;
    } finally {
      await rm(archive, { force: true });
    }
    await this.#evict(name);
    return path;
  }

  async #download(code: CodeRef, to: string): Promise<void> {
    const hash = createHash('sha256');
    let bytes = 0;
    const check = new Transform({
      transform(data: Buffer, _encoding, done) {
        hash.update(data);
        bytes += data.length;
        if (bytes > code.size) done(new Error(`the code archive is larger than the ${code.size} bytes announced`));
        else done(null, data);
      },
    });
    try {
      await pipeline(
        this.#fetch(code.objectId, AbortSignal.timeout(FETCH_DEADLINE_MS)),
        check,
        createWriteStream(to, { mode: 0o600 }),
      );
    } catch (error) {
      throw new Error(`cannot fetch the code archive: ${messageOf(error)}`, { cause: error });
    }
    const found = hash.digest('hex');
    if (found !== code.sha256)
      throw new Error(`the code archive arrived damaged: its sha256 is ${found}, not ${code.sha256}`);
  }

  async #evict(keep: string): Promise<void> {
    let total = this.bytes;
    const oldest = [...this.#known].toSorted(([, a], [, b]) => a.usedAtMs - b.usedAtMs);
    for (const [name, { bytes }] of oldest) {
      if (total <= this.#maxBytes) return;
      if (name === keep || this.#users.has(name)) continue;
      this.#known.delete(name);
      total -= bytes;
      const gone = join(this.#dir, `${name}.gone`);
      await rename(join(this.#dir, name), gone);
      await rm(join(this.#dir, `${name}.bytes`), { force: true });
      await rm(modesFile(join(this.#dir, name)), { force: true });
      await rm(gone, { recursive: true, force: true });
      this.#log.info({ bytes }, 'code archive evicted');
    }
  }
}
