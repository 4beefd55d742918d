/**
 * Packs: many files, or parts of large ones, in one request. A record is a line of JSON, the bytes that the line
 * announces, and a line with their sha256. The other end is python/longshore/volume_files/packs.py.
 */
import { isRecord } from '#shared/json.ts';
import type { ByteSource } from '../byte-request.ts';
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
  readonly #source: ByteSource;
  /** Bytes that have come and were not taken: the source's own, which hold until more is asked for. */
  #rest: Buffer = Buffer.alloc(0);

  constructor(source: ByteSource) {
    this.#source = source;
  }

  /** The next line; undefined: the pack is at its end. @throws BrokenPack */
  async line(): Promise<JsonObject | undefined> {
    let end = this.#rest.indexOf(LINE_END);
    while (end < 0) {
      if (this.#rest.length > MOST_LINE_BYTES) throw new BrokenPack('a line of the pack is too long');
      const begin = Buffer.from(this.#rest);
      if (!this.#take() && !(await this.#more())) {
        if (begin.length === 0) return undefined;
        throw new BrokenPack('the pack ended in the middle of a line');
      }
      if (begin.length > 0) this.#rest = Buffer.concat([begin, this.#rest]);
      end = this.#rest.indexOf(LINE_END);
    }
    const text = this.#rest.toString('utf8', 0, end);
    this.#rest = this.#rest.subarray(end + 1);
    return objectOf(text);
  }

  /** Hands on the next bytes in the runs in which they come, for the time of the call. @throws BrokenPack */
  async take(count: number, use: (run: Buffer) => void): Promise<void> {
    let left = count;
    while (left > 0) {
      if (this.#rest.length === 0 && !this.#take() && !(await this.#more()))
        throw new BrokenPack('the pack ended in the middle of a file');
      const run = this.#rest.subarray(0, left);
      this.#rest = this.#rest.subarray(run.length);
      left -= run.length;
      use(run);
    }
  }

  /** Ends the source: nothing more of it is wanted. */
  close(): void {
    this.#source.close();
  }

  /** Takes what the source has. @returns false: nothing yet */
  #take(): boolean {
    const piece = this.#source.next();
    if (piece !== undefined) this.#rest = piece;
    return piece !== undefined;
  }

  /** Waits for bytes, and takes them. @returns false: the pack is at its end */
  async #more(): Promise<boolean> {
    while (await this.#source.more()) if (this.#take()) return true;
    return false;
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
