// Uploads that were cut off, in the directory of incoming files: `KEY.TOTAL.part` rests, `KEY.TOTAL.RANDOM.writing` has
// a writer. A writer takes a resting file over by renaming it, so that two never append to the same bytes, also where
// several schedulers share the directory.
// Invariant: a file that is being written is younger than STALE_MS; an older one lost its writer by a crash, and rests.
import { createHash, randomBytes } from 'node:crypto';
import type { Hash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { readdir, rename, rm, stat, utimes } from 'node:fs/promises';
import { join } from 'node:path';
import type { KeptObject } from './backend.ts';

/** Twice as long as an upload may stand still (api/http/pace.ts). */
export const STALE_MS = 120_000;
const NAME = /^([A-Za-z0-9_-]{2,128})\.(\d{1,15})\.(?:part|[0-9a-f]{16}\.writing)$/;
/** Digests kept in memory; without its digest an upload's first bytes are read again when it goes on. */
const MOST_DIGESTS = 1_000;

export interface Unfinished {
  readonly path: string;
  /** Bytes that arrived. */
  readonly received: number;
  /** Size of the whole, as the upload announced it. */
  readonly total: number;
  readonly isBusy: boolean;
}

/** A file that this writer alone appends to. */
export interface Taken {
  readonly path: string;
  readonly received: number;
  /** Digest of the bytes that arrived. */
  readonly digest: Hash;
}

export class UnfinishedUploads {
  readonly #incoming: string;
  readonly #digests = new Map<string, { readonly received: number; readonly digest: Hash }>();

  constructor(incoming: string) {
    this.#incoming = incoming;
  }

  /** A new file's path, for an upload of that size. */
  newPath(key: string, total: number): string {
    return join(this.#incoming, `${key}.${total}.${randomBytes(8).toString('hex')}.writing`);
  }

  /** The upload with the most bytes; one with a writer comes first. */
  async find(key: string, nowMs: number = Date.now()): Promise<Unfinished | undefined> {
    const found: Unfinished[] = [];
    for (const name of await this.#names()) {
      const [match, of, total] = NAME.exec(name) ?? [];
      if (match === undefined || of !== key) continue;
      const path = join(this.#incoming, name);
      const facts = await stat(path).catch(() => undefined);
      if (facts === undefined) continue;
      const isBusy = name.endsWith('.writing') && nowMs - facts.mtimeMs < STALE_MS;
      found.push({ path, received: facts.size, total: Number(total), isBusy });
    }
    return found.toSorted((a, b) => Number(b.isBusy) - Number(a.isBusy) || b.received - a.received)[0];
  }

  /**
   * Takes a resting upload over.
   * @returns undefined: another writer was faster
   */
  async take(key: string, { path, total }: Unfinished): Promise<Taken | undefined> {
    const taken = this.newPath(key, total);
    const now = new Date();
    try {
      // The file is young before it has its writer's name.
      await utimes(path, now, now);
      await rename(path, taken);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
      throw error;
    }
    const { size } = await stat(taken);
    const known = this.#digests.get(key);
    this.#digests.delete(key);
    const digest = known?.received === size ? known.digest : await digestOf(taken);
    return { path: taken, received: size, digest };
  }

  /** Keeps the bytes that arrived, in place of an earlier unfinished upload of that key. */
  async rest(key: string, total: number, { path, received, digest }: Taken): Promise<void> {
    const place = join(this.#incoming, `${key}.${total}.part`);
    await rename(path, place);
    await this.#dropResting(key, place);
    const [oldest] = this.#digests.keys();
    if (this.#digests.size >= MOST_DIGESTS && oldest !== undefined) this.#digests.delete(oldest);
    this.#digests.set(key, { received, digest });
  }

  /** Drops the unfinished uploads of a key that have no writer. */
  async drop(key: string): Promise<void> {
    this.#digests.delete(key);
    await this.#dropResting(key);
  }

  async *list(nowMs: number = Date.now()): AsyncGenerator<KeptObject> {
    for (const name of await this.#names()) {
      const key = NAME.exec(name)?.[1];
      if (key === undefined) continue;
      const facts = await stat(join(this.#incoming, name)).catch(() => undefined);
      if (facts === undefined || (name.endsWith('.writing') && nowMs - facts.mtimeMs < STALE_MS)) continue;
      yield { key, writtenAtMs: facts.mtimeMs };
    }
  }

  async #dropResting(key: string, except?: string): Promise<void> {
    for (const name of await this.#names()) {
      const path = join(this.#incoming, name);
      if (NAME.exec(name)?.[1] !== key || path === except) continue;
      const facts = await stat(path).catch(() => undefined);
      if (facts === undefined || (name.endsWith('.writing') && Date.now() - facts.mtimeMs < STALE_MS)) continue;
      await rm(path, { force: true });
    }
  }

  #names(): Promise<string[]> {
    return readdir(this.#incoming);
  }
}

async function digestOf(path: string): Promise<Hash> {
  const digest = createHash('sha256');
  for await (const chunk of createReadStream(path, { highWaterMark: 1024 * 1024 })) digest.update(chunk as Uint8Array);
  return digest;
}
