// Writes a zip file whose bytes depend on names, modes, contents and given times alone. Small files are compressed
// whole: a stream for each would take ten times as long. Sizes stay below the bounds of the plain format (files.ts).
import { createHash } from 'node:crypto';
import type { FileHandle } from 'node:fs/promises';
import { promisify } from 'node:util';
import { createDeflateRaw, deflateRaw, deflateRawSync } from 'node:zlib';
import { crc32 } from './crc32.ts';

const deflateAside = promisify(deflateRaw);

/** Contents up to here are compressed at once, larger ones beside this thread. */
const AT_ONCE_BYTES = 64 * 1024;
const FLUSH_BYTES = 1024 * 1024;
const MOST_ENTRIES = 0xffff;
const MOST_BYTES = 0xffff_ffff;

const LOCAL_HEADER = 0x04034b50;
const DESCRIPTOR = 0x08074b50;
const CENTRAL_HEADER = 0x02014b50;
const END_OF_DIRECTORY = 0x06054b50;
/** Made on Unix, so that modes count. */
const MADE_BY = (3 << 8) | 63;
const NEEDS = 20;
const UTF8_NAMES = 0x800;
const SIZES_FOLLOW = 0x8;
const STORED = 0;
const DEFLATED = 8;
const TIMES = 0x5455;
const LAST_SECOND = 0x7fff_ffff;
/** The format's first day. */
const FIRST_DAY = 0x21;

export interface ZipName {
  /** With `/`, and one at the end of a folder. */
  readonly path: string;
  /** As in stat(2): kind and permissions. */
  readonly mode: number;
  /** Whole seconds of it travel. */
  readonly mtimeMs?: number;
}

/** A content as it stands in the archive. */
export interface Compressed {
  readonly method: number;
  readonly bytes: Buffer;
  readonly size: number;
  readonly crc: number;
}

interface Entry extends Omit<Compressed, 'bytes'> {
  readonly name: Buffer;
  readonly mode: number;
  /** Further fields. */
  readonly extra: Buffer;
  readonly flags: number;
  readonly compressedSize: number;
  readonly offset: number;
}

export async function compress(content: Buffer): Promise<Compressed> {
  const deflated = content.length <= AT_ONCE_BYTES ? deflateRawSync(content) : await deflateAside(content, {});
  const size = content.length;
  const crc = crc32(content);
  if (deflated.length < size) return { method: DEFLATED, bytes: deflated, size, crc };
  return { method: STORED, bytes: content, size, crc };
}

/** Entries come one after the other; `end` closes the directory, and the caller the file. */
export class ZipWriter {
  readonly #file: FileHandle;
  readonly #hash = createHash('sha256');
  readonly #entries: Entry[] = [];
  #waiting: Buffer[] = [];
  #waitingBytes = 0;
  #offset = 0;

  constructor(file: FileHandle) {
    this.#file = file;
  }

  async add(name: ZipName, { method, bytes, size, crc }: Compressed): Promise<void> {
    const entry = { ...named(name), method, size, crc, flags: UTF8_NAMES, compressedSize: bytes.length };
    await this.#write(this.#begin(entry));
    await this.#write(bytes);
  }

  /** For a content that is larger than memory should hold. */
  async addStream(name: ZipName, content: NodeJS.ReadableStream): Promise<void> {
    const flags = UTF8_NAMES | SIZES_FOLLOW;
    const open = { ...named(name), method: DEFLATED, size: 0, crc: 0, flags, compressedSize: 0 };
    await this.#write(this.#begin(open));
    const deflate = createDeflateRaw();
    const sums = { size: 0, crc: 0, compressedSize: 0 };
    content.on('data', (chunk: Buffer) => {
      sums.size += chunk.length;
      sums.crc = crc32(chunk, sums.crc);
    });
    content.once('error', (error) => deflate.destroy(error));
    for await (const chunk of content.pipe(deflate) as AsyncIterable<Buffer>) {
      sums.compressedSize += chunk.length;
      await this.#write(chunk);
    }
    checkSize(sums.size);
    this.#entries[this.#entries.length - 1] = { ...open, ...sums, offset: this.#entries.at(-1)?.offset ?? 0 };
    await this.#write(words([DESCRIPTOR, 4], [sums.crc, 4], [sums.compressedSize, 4], [sums.size, 4]));
  }

  /** @returns size and sha256 of the whole file */
  async end(): Promise<{ readonly size: number; readonly sha256: string }> {
    const from = this.#offset;
    for (const entry of this.#entries) await this.#write(centralHeader(entry));
    const count = this.#entries.length;
    const size = this.#offset - from;
    await this.#write(
      words([END_OF_DIRECTORY, 4], [0, 2], [0, 2], [count, 2], [count, 2], [size, 4], [from, 4], [0, 2]),
    );
    await this.#flush();
    return { size: this.#offset, sha256: this.#hash.digest('hex') };
  }

  #begin(entry: Omit<Entry, 'offset'>): Buffer {
    if (this.#entries.length >= MOST_ENTRIES) throw new Error(`more than ${MOST_ENTRIES} files`);
    checkSize(entry.size);
    this.#entries.push({ ...entry, offset: this.#offset });
    const fixed = words([LOCAL_HEADER, 4], [NEEDS, 2], ...common(entry));
    return Buffer.concat([fixed, entry.name, entry.extra]);
  }

  async #write(bytes: Buffer): Promise<void> {
    this.#hash.update(bytes);
    this.#offset += bytes.length;
    checkSize(this.#offset);
    this.#waiting.push(bytes);
    this.#waitingBytes += bytes.length;
    if (this.#waitingBytes >= FLUSH_BYTES) await this.#flush();
  }

  async #flush(): Promise<void> {
    const all = Buffer.concat(this.#waiting);
    this.#waiting = [];
    this.#waitingBytes = 0;
    await this.#file.writeFile(all);
  }
}

type CommonFields = Omit<Entry, 'offset'>;
type Word = readonly [value: number, bytes: 2 | 4];

/** The fields that both headers of an entry have. */
const common = ({ flags, method, crc, compressedSize, size, name, extra }: CommonFields): readonly Word[] => [
  [flags, 2],
  [method, 2],
  [0, 2],
  [FIRST_DAY, 2],
  [crc, 4],
  [compressedSize, 4],
  [size, 4],
  [name.length, 2],
  [extra.length, 2],
];

const named = ({ path, mode, mtimeMs }: ZipName): Pick<Entry, 'name' | 'mode' | 'extra'> => ({
  name: Buffer.from(path),
  mode,
  extra: mtimeMs === undefined ? Buffer.alloc(0) : timeField(Math.floor(mtimeMs / 1000)),
});

/** Info-ZIP's field for times, with the time of the last change alone. */
function timeField(seconds: number): Buffer {
  const field = Buffer.concat([words([TIMES, 2], [5, 2]), Buffer.from([1]), Buffer.alloc(4)]);
  field.writeInt32LE(Math.min(Math.max(seconds, -LAST_SECOND), LAST_SECOND), 5);
  return field;
}

function centralHeader(entry: Entry): Buffer {
  const fixed = words(
    [CENTRAL_HEADER, 4],
    [MADE_BY, 2],
    [NEEDS, 2],
    ...common(entry),
    [0, 2],
    [0, 2],
    [0, 2],
    [entry.mode * 0x10000, 4],
    [entry.offset, 4],
  );
  return Buffer.concat([fixed, entry.name, entry.extra]);
}

function words(...fields: readonly Word[]): Buffer {
  const all = Buffer.alloc(fields.reduce((sum, [, bytes]) => sum + bytes, 0));
  let at = 0;
  for (const [value, bytes] of fields) at = all.writeUIntLE(value, at, bytes);
  return all;
}

function checkSize(bytes: number): void {
  if (bytes > MOST_BYTES) throw new Error('it has more than 4 GiB');
}
