/**
 * Packs: many files, or parts of large ones, in one request. A record is a line of JSON, the bytes that the line
 * announces, and a line with their sha256. The other end is python/longshore/volume_files/packs.py.
 */
import { isRecord } from '#shared/json.ts';
import type { JsonObject } from '../json.ts';

/** Bytes of a record; a larger file is several. An upload that was cut goes on at a record's begin. */
export const RECORD_BYTES = 16 * 1024 * 1024;
/** Files up to this size are read and verified in memory. */
export const SMALL_BYTES = 1024 * 1024;
export const PACK_TYPE = 'application/x-longshore-pack';
const MOST_LINE_BYTES = 64 * 1024;
const LINE_END = 0x0a;

export const packLine = (value: JsonObject): Buffer => Buffer.from(`${JSON.stringify(value)}\n`, 'utf8');

/** The bytes ended in the middle of a record, or are no pack. The request can be sent again. */
export class BrokenPack extends Error {
  override readonly name = 'BrokenPack';
}

/** Reads a pack as it comes. */
export class PackReader {
  readonly #source: AsyncIterator<Uint8Array>;
  #rest: Buffer = Buffer.alloc(0);

  constructor(source: AsyncIterable<Uint8Array>) {
    this.#source = source[Symbol.asyncIterator]();
  }

  /** The next line; undefined: the pack is at its end. @throws BrokenPack */
  async line(): Promise<JsonObject | undefined> {
    let end = this.#rest.indexOf(LINE_END);
    while (end < 0) {
      if (this.#rest.length > MOST_LINE_BYTES) throw new BrokenPack('a line of the pack is too long');
      const more = await this.#more();
      if (more === undefined) {
        if (this.#rest.length === 0) return undefined;
        throw new BrokenPack('the pack ended in the middle of a line');
      }
      this.#rest = this.#rest.length === 0 ? more : Buffer.concat([this.#rest, more]);
      end = this.#rest.indexOf(LINE_END);
    }
    const text = this.#rest.toString('utf8', 0, end);
    this.#rest = this.#rest.subarray(end + 1);
    return objectOf(text);
  }

  /** Hands on the next bytes in the runs in which they come. @throws BrokenPack */
  async take(count: number, use: (run: Buffer) => void): Promise<void> {
    let left = count;
    while (left > 0) {
      if (this.#rest.length === 0) {
        const more = await this.#more();
        if (more === undefined) throw new BrokenPack('the pack ended in the middle of a file');
        this.#rest = more;
      }
      const run = this.#rest.subarray(0, left);
      this.#rest = this.#rest.subarray(run.length);
      left -= run.length;
      use(run);
    }
  }

  /** Ends the source: its connection is of no more use. */
  close(): void {
    this.#source.return?.().catch(() => undefined);
  }

  async #more(): Promise<Buffer | undefined> {
    const { done, value } = await this.#source.next();
    if (done === true) return undefined;
    return Buffer.from(value.buffer, value.byteOffset, value.byteLength);
  }
}

function objectOf(text: string): JsonObject {
  try {
    const value: unknown = JSON.parse(text);
    if (isRecord(value)) return value;
  } catch (error) {
    throw new BrokenPack('a line of the pack is no JSON', { cause: error });
  }
  throw new BrokenPack('a line of the pack is no JSON object');
}
