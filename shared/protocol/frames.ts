/**
 * The frame codec of the sockets between agent and runner, and of streamed calls between scheduler and runner
 * (docs/runner-protocol.md lists the kinds). A frame is 4 bytes length (big-endian, of the rest, at most 1
 * MiB), 1 byte kind, 2 bytes header length, header (JSON), body (bytes, never re-encoded). The numbers are the same in
 * `python/longshore/runner/protocol.py`.
 */
import { MAX_MESSAGE_BYTES } from './link.ts';

/** The protocol version this agent speaks. */
export const RUNNER_PROTOCOL = 1;

export const FRAME_KINDS = {
  hello: 1,
  welcome: 2,
  starting: 3,
  ready: 4,
  failed: 5,
  run: 6,
  started: 7,
  chunk: 8,
  result: 9,
  acked: 10,
  cancel: 11,
  log: 12,
  kill: 13,
  drain: 14,
  exited: 15,
  stream: 16,
  request: 17,
  response: 18,
  data: 19,
  end: 20,
  reading: 21,
  message: 22,
  close: 23,
  control: 24,
  exit: 25,
  retire: 26,
  returned: 27,
  interrupt: 29,
} as const;
export type FrameKind = keyof typeof FRAME_KINDS;

const KIND_OF_NUMBER: ReadonlyMap<number, FrameKind> = new Map(
  (Object.entries(FRAME_KINDS) as [FrameKind, number][]).map(([kind, number]) => [number, kind]),
);

export interface Frame {
  /** Undefined for a kind that this agent does not know; such frames are ignored. */
  readonly kind: FrameKind | undefined;
  readonly header: Readonly<Record<string, unknown>>;
  readonly body: Buffer;
}

/** A frame that cannot be read: ends the connection. */
export class FrameError extends Error {
  override readonly name = 'FrameError';
}

const PREFIX_BYTES = 7;
/** The header of a frame without fields. */
export const NO_FIELDS = Object.freeze({});
const EMPTY = Buffer.alloc(0);

/** Header and prefix in one buffer; the body follows unchanged. A header without fields has no bytes. */
export function encodeHead(kind: FrameKind, header: object, bodyBytes: number): Buffer {
  const json = header === NO_FIELDS ? EMPTY : headerBytes(header);
  const length = 3 + json.length + bodyBytes;
  if (json.length > 0xffff) throw new FrameError(`header of ${json.length} bytes is too long`);
  if (length > MAX_MESSAGE_BYTES) throw new FrameError(`frame of ${length} bytes is too long`);
  const head = Buffer.allocUnsafe(PREFIX_BYTES + json.length);
  head.writeUInt32BE(length, 0);
  head.writeUInt8(FRAME_KINDS[kind], 4);
  head.writeUInt16BE(json.length, 5);
  json.copy(head, PREFIX_BYTES);
  return head;
}

function headerBytes(header: object): Buffer {
  const text = JSON.stringify(header);
  return text === '{}' ? EMPTY : Buffer.from(text, 'utf8');
}

export function encodeFrame(kind: FrameKind, header: object, body: Uint8Array = EMPTY): Buffer {
  return Buffer.concat([encodeHead(kind, header, body.length), body]);
}

/** Cuts a byte stream into frames, for any boundaries of the reads. Never holds more than one frame and one read. */
export class FrameReader {
  readonly #splitsData: boolean;
  /** Header of the last line. */
  #logHeader: { readonly bytes: Buffer; readonly header: Frame['header'] } | undefined;
  #pending: Buffer[] = [];
  #bytes = 0;
  /** Bytes of a data frame that are still to come, where such frames are handed on in parts. */
  #rest = 0;

  /** @param options.splitsData - hands on each `data` frame in parts, as its bytes come, and joins none */
  constructor({ splitsData = false }: { readonly splitsData?: boolean } = {}) {
    this.#splitsData = splitsData;
  }

  /**
   * @param chunk - bytes of a read; bodies of the returned frames may share its memory
   * @throws FrameError when the stream cannot be read any further
   */
  push(chunk: Buffer): Frame[] {
    if (this.#rest === 0) return this.#read(chunk);
    const part = dataFrame(chunk.subarray(0, this.#rest));
    const behind = chunk.subarray(this.#rest);
    this.#rest -= part.body.length;
    return behind.length === 0 ? [part] : [part, ...this.#read(behind)];
  }

  /** Bytes of a frame that has not come whole are held here, and may share the memory of the last chunk. */
  get isWithinFrame(): boolean {
    return this.#pending.length > 0;
  }

  #read(chunk: Buffer): Frame[] {
    this.#bytes += chunk.length;
    let data: Buffer;
    if (this.#pending.length === 0) data = chunk;
    else {
      this.#pending.push(chunk);
      if (this.#bytes < this.#needed) return [];
      data = Buffer.concat(this.#pending, this.#bytes);
      this.#pending = [];
    }
    const frames: Frame[] = [];
    let at = 0;
    this.#needed = 4;
    while (data.length - at >= 4) {
      const length = data.readUInt32BE(at);
      if (length < 3 || length > MAX_MESSAGE_BYTES) throw new FrameError(`frame length ${length} is out of bounds`);
      if (data.length - at < 4 + length) {
        if (this.#splitsData && isBareData(data, at)) {
          const part = data.subarray(at + PREFIX_BYTES);
          if (part.length > 0) frames.push(dataFrame(part));
          this.#rest = length - 3 - part.length;
          at = data.length;
          break;
        }
        this.#needed = this.#splitsData && data.length - at < PREFIX_BYTES ? PREFIX_BYTES : 4 + length;
        break;
      }
      frames.push(this.#frame(data.subarray(at + 4, at + 4 + length)));
      at += 4 + length;
    }
    this.#bytes = data.length - at;
    if (this.#bytes > 0) this.#pending = [at === 0 ? data : data.subarray(at)];
    return frames;
  }

  #frame(data: Buffer): Frame {
    const behind = 3 + data.readUInt16BE(1);
    if (behind > data.length) throw new FrameError('header is longer than its frame');
    const kind = KIND_OF_NUMBER.get(data.readUInt8(0));
    const body = data.subarray(behind);
    if (behind === 3) return { kind, header: {}, body };
    const bytes = data.subarray(3, behind);
    if (kind !== 'log') return { kind, header: readHeader(bytes), body };
    // Lines of a task follow each other with the same header: comparing bytes costs less than reading JSON.
    if (this.#logHeader?.bytes.equals(bytes) !== true)
      this.#logHeader = { bytes: Buffer.from(bytes), header: readHeader(bytes) };
    return { kind, header: this.#logHeader.header, body };
  }

  /** Bytes needed before the next attempt, so that a large frame in many reads is joined once. */
  #needed = 4;
}

/** Whether the prefix at this place has come whole, and is that of a data frame without a header. */
const isBareData = (data: Buffer, at: number): boolean =>
  data.length - at >= PREFIX_BYTES && data.readUInt8(at + 4) === FRAME_KINDS.data && data.readUInt16BE(at + 5) === 0;

const dataFrame = (body: Buffer): Frame => ({ kind: 'data', header: {}, body });

function readHeader(bytes: Buffer): Frame['header'] {
  let header: unknown;
  try {
    header = JSON.parse(bytes.toString('utf8'));
  } catch (error) {
    throw new FrameError('header is not JSON', { cause: error });
  }
  if (typeof header !== 'object' || header === null || Array.isArray(header))
    throw new FrameError('header is not a JSON object');
  return header as Record<string, unknown>;
}

/** Reads header fields leniently: a wrong type counts as absent. */
export const textOf = (header: Frame['header'], name: string): string => {
  const value = header[name];
  return typeof value === 'string' ? value : '';
};
export const numberOf = (header: Frame['header'], name: string): number => {
  const value = header[name];
  return typeof value === 'number' && Number.isFinite(value) ? value : 0;
};
