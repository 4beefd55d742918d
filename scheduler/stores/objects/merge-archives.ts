// Joins two zip archives in one pass: files of the second take the place of files of that name in the first. Contents
// are copied as they stand, whatever their compression is. Only the directory in the end is held in memory.
// Invariant: an archive that is not understood whole ends with an error, and never with a smaller archive.
import { AppError } from '#shared/errors.ts';

const LOCAL_HEADER = 0x04034b50;
const CENTRAL_HEADER = 0x02014b50;
const END_OF_DIRECTORY = 0x06054b50;
const LOCAL_BYTES = 30;
const CENTRAL_BYTES = 46;
const SIZES_FOLLOW = 0x8;
/** Marks a field whose value stands elsewhere, as in the format for large archives. */
const IN_EXTRA = 0xffff_ffff;
const MOST_ENTRIES = 0xffff;
const MOST_DIRECTORY_BYTES = 32 * 1024 * 1024;

/**
 * Joins archives.
 * @param base - the first archive
 * @param changed - the second one, whose files count
 * @param removed - names of files of the first that are left out
 * @throws AppError `bad_request`: one of them cannot be joined
 */
export async function* mergedArchive(
  base: AsyncIterable<Uint8Array>,
  changed: AsyncIterable<Uint8Array>,
  removed: ReadonlySet<string>,
): AsyncGenerator<Buffer> {
  const joined = new Joined();
  const taken = new Set<string>();
  yield* joined.copy(new Reader(changed), (name) => {
    taken.add(name);
    return true;
  });
  yield* joined.copy(new Reader(base), (name) => !taken.has(name) && !removed.has(name));
  yield* joined.end();
}

/** The archive that comes out. */
class Joined {
  #offset = 0;
  #directoryBytes = 0;
  readonly #directory: Buffer[] = [];

  /** Copies the entries whose names are wanted. */
  async *copy(source: Reader, isWanted: (name: string) => boolean): AsyncGenerator<Buffer> {
    /** New places of entries, by their old ones. */
    const moved = new Map<number, number>();
    let listed = 0;
    for (;;) {
      const at = source.at;
      const signature = (await source.peek(4)).readUInt32LE(0);
      if (signature === LOCAL_HEADER) {
        const header = await source.take(LOCAL_BYTES);
        const flags = header.readUInt16LE(6);
        const size = header.readUInt32LE(18);
        if ((flags & SIZES_FOLLOW) !== 0 || size === IN_EXTRA) throw problem('sizes that stand behind their files');
        const names = await source.take(header.readUInt16LE(26) + header.readUInt16LE(28));
        const isKept = isWanted(names.toString('utf8', 0, header.readUInt16LE(26)));
        if (isKept) {
          moved.set(at, this.#offset);
          yield this.#passed(header);
          yield this.#passed(names);
        }
        for await (const piece of source.pieces(size)) if (isKept) yield this.#passed(piece);
      } else if (signature === CENTRAL_HEADER) {
        const header = Buffer.from(await source.take(CENTRAL_BYTES));
        const rest = header.readUInt16LE(28) + header.readUInt16LE(30) + header.readUInt16LE(32);
        const names = await source.take(rest);
        const place = moved.get(header.readUInt32LE(42));
        if (place === undefined) continue;
        listed += 1;
        header.writeUInt32LE(place, 42);
        this.#list(Buffer.concat([header, names]));
      } else if (signature === END_OF_DIRECTORY) {
        if (listed !== moved.size) throw problem('files that its directory does not name');
        return await source.drain();
      } else throw problem('records of an unknown kind');
    }
  }

  /** The directory. */
  *end(): Generator<Buffer> {
    const count = this.#directory.length;
    if (count >= MOST_ENTRIES || this.#offset + this.#directoryBytes >= IN_EXTRA) throw problem('too many files');
    yield* this.#directory;
    const end = Buffer.alloc(22);
    end.writeUInt32LE(END_OF_DIRECTORY, 0);
    end.writeUInt16LE(count, 8);
    end.writeUInt16LE(count, 10);
    end.writeUInt32LE(this.#directoryBytes, 12);
    end.writeUInt32LE(this.#offset, 16);
    yield end;
  }

  #passed(piece: Buffer): Buffer {
    this.#offset += piece.length;
    if (this.#offset >= IN_EXTRA) throw problem('more than 4 GiB');
    return piece;
  }

  #list(entry: Buffer): void {
    this.#directoryBytes += entry.length;
    if (this.#directoryBytes > MOST_DIRECTORY_BYTES) throw problem('too many files');
    this.#directory.push(entry);
  }
}

/** Bytes of a stream, as many at a time as are asked for. */
class Reader {
  readonly #source: AsyncIterator<Uint8Array>;
  #buffer: Buffer = Buffer.alloc(0);
  /** Bytes that were taken. */
  at = 0;

  constructor(source: AsyncIterable<Uint8Array>) {
    this.#source = source[Symbol.asyncIterator]();
  }

  async peek(count: number): Promise<Buffer> {
    while (this.#buffer.length < count) {
      const next = await this.#next();
      if (next === undefined) throw problem('an end before its directory');
      this.#buffer = Buffer.concat([this.#buffer, next]);
    }
    return this.#buffer;
  }

  async take(count: number): Promise<Buffer> {
    const bytes = (await this.peek(count)).subarray(0, count);
    this.#skip(count);
    return bytes;
  }

  /** The next bytes, in the pieces in which they come. */
  async *pieces(count: number): AsyncGenerator<Buffer> {
    let left = count;
    while (left > 0) {
      if (this.#buffer.length === 0) await this.peek(1);
      const piece = this.#buffer.subarray(0, left);
      this.#skip(piece.length);
      left -= piece.length;
      yield piece;
    }
  }

  async drain(): Promise<void> {
    this.#buffer = Buffer.alloc(0);
    while ((await this.#next()) !== undefined);
  }

  #skip(count: number): void {
    this.#buffer = this.#buffer.subarray(count);
    this.at += count;
  }

  async #next(): Promise<Buffer | undefined> {
    const next = await this.#source.next();
    if (next.done === true) return undefined;
    const bytes = next.value;
    return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }
}

const problem = (what: string): AppError =>
  new AppError('bad_request', `the archives cannot be joined: one has ${what}. Upload the whole object`);
