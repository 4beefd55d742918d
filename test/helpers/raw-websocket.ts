// WebSockets by hand: frames as bytes, right and wrong ones, and the frames that come back. Source: RFC 6455 §5, RFC
// 7692.
import { createHash } from 'node:crypto';
import { deflateRawSync, inflateRawSync } from 'node:zlib';
import { RawConnection } from './raw-http.ts';
import type { RawAnswer } from './raw-http.ts';

export const CONTINUATION = 0;
export const TEXT = 1;
export const BINARY = 2;
export const CLOSE = 8;
export const PING = 9;
export const PONG = 10;

export interface FrameOptions {
  /** False: further fragments follow. */
  readonly fin?: boolean;
  /** The three reserved bits as a number; 4 is RSV1, which marks a compressed message. */
  readonly rsv?: number;
  /** False: without a mask, which no client may send. */
  readonly masked?: boolean;
  /** Form of the length, otherwise the shortest. */
  readonly lengthBits?: 7 | 16 | 64;
  /** Length to announce, otherwise the payload's own. */
  readonly announced?: bigint;
}

/** Mask of every frame: fixed, so that two runs of a case send the same bytes. */
const MASK = Buffer.from([0x37, 0xfa, 0x21, 0x3d]);

/** The bytes of a frame of a client. */
export function frame(opcode: number, payload: string | Buffer = '', options: FrameOptions = {}): Buffer {
  const { fin = true, rsv = 0, masked = true } = options;
  const body = typeof payload === 'string' ? Buffer.from(payload, 'utf8') : payload;
  const announced = options.announced ?? BigInt(body.length);
  const bits = options.lengthBits ?? (announced < 126n ? 7 : announced < 65_536n ? 16 : 64);
  const head = Buffer.alloc(bits === 7 ? 2 : bits === 16 ? 4 : 10);
  head[0] = (fin ? 0x80 : 0) | (rsv << 4) | opcode;
  if (bits === 7) head[1] = Number(announced);
  if (bits === 16) head.writeUInt16BE(Number(announced), 2);
  if (bits === 64) head.writeBigUInt64BE(announced, 2);
  if (bits !== 7) head[1] = bits === 16 ? 126 : 127;
  if (!masked) return Buffer.concat([head, body]);
  head[1] = (head[1] ?? 0) | 0x80;
  return Buffer.concat([head, MASK, body.map((byte, at) => byte ^ (MASK[at & 3] ?? 0))]);
}

/** A compressed payload: without the four bytes that end every flush. */
export function squeezed(payload: Buffer): Buffer {
  const whole = deflateRawSync(payload, { finishFlush: 2 });
  return whole.subarray(0, whole.length - 4);
}

/** The bytes of a close frame; without a code its payload is empty. */
export function closeFrame(code?: number, reason: string | Buffer = ''): Buffer {
  if (code === undefined) return frame(CLOSE);
  const head = Buffer.alloc(2);
  head.writeUInt16BE(code);
  return frame(CLOSE, Buffer.concat([head, Buffer.from(reason)]));
}

/** A frame of a server. */
export interface ReadFrame {
  readonly fin: boolean;
  readonly rsv: number;
  readonly opcode: number;
  readonly isMasked: boolean;
  readonly payload: Buffer;
}

/** Reads all complete frames of some bytes. */
export function readFrames(bytes: Buffer): readonly ReadFrame[] {
  const frames: ReadFrame[] = [];
  let at = 0;
  while (bytes.length - at >= 2) {
    const [first, second] = [bytes[at] ?? 0, bytes[at + 1] ?? 0];
    const short = second & 0x7f;
    const headBytes = short < 126 ? 2 : short === 126 ? 4 : 10;
    if (bytes.length - at < headBytes) break;
    const length =
      short < 126 ? short : short === 126 ? bytes.readUInt16BE(at + 2) : Number(bytes.readBigUInt64BE(at + 2));
    const start = at + headBytes;
    if (bytes.length - start < length) break;
    frames.push({
      fin: (first & 0x80) !== 0,
      rsv: (first >> 4) & 7,
      opcode: first & 0x0f,
      isMasked: (second & 0x80) !== 0,
      payload: bytes.subarray(start, start + length),
    });
    at = start + length;
  }
  return frames;
}

/** A message, a ping, a pong or a close in a few words: long payloads as a digest. */
export type Told = string;

const told = (payload: Buffer, isText: boolean): string =>
  payload.length > 200
    ? `${payload.length} bytes ${createHash('sha256').update(payload).digest('hex').slice(0, 16)}`
    : isText
      ? payload.toString('utf8')
      : payload.toString('hex');

/** The frames as messages: fragments put together, compressed ones inflated. */
export function messagesOf(frames: readonly ReadFrame[]): readonly Told[] {
  const messages: Told[] = [];
  let parts: ReadFrame[] = [];
  for (const one of frames) {
    if (one.opcode === PING) messages.push(`ping ${told(one.payload, true)}`.trimEnd());
    else if (one.opcode === PONG) messages.push(`pong ${told(one.payload, true)}`.trimEnd());
    else if (one.opcode === CLOSE) {
      const code = one.payload.length < 2 ? 'none' : one.payload.readUInt16BE(0);
      messages.push(`close ${code} ${told(one.payload.subarray(2), true)}`.trimEnd());
    } else {
      parts.push(one);
      if (!one.fin) continue;
      const [first] = parts;
      const joined = Buffer.concat(parts.map(({ payload }) => payload));
      const isText = first?.opcode === TEXT;
      const isCompressed = ((first?.rsv ?? 0) & 4) !== 0;
      messages.push(`${isText ? 'text' : 'bytes'} ${told(isCompressed ? inflated(joined) : joined, isText)}`);
      parts = [];
    }
  }
  return messages;
}

const TAIL = Buffer.from([0, 0, 0xff, 0xff]);
/** An empty last block, so that the stream has an end. */
const LAST_BLOCK = Buffer.from([1, 0, 0, 0xff, 0xff]);

const inflated = (payload: Buffer): Buffer => inflateRawSync(Buffer.concat([payload, TAIL, LAST_BLOCK]));

export interface Handshake {
  readonly address: string;
  readonly path: string;
  readonly method?: string;
  /** Lines of the head beside the request line; a line replaces the usual one of its name, `-Name` leaves it out. */
  readonly lines?: readonly string[];
}

export const KEY = 'dGhlIHNhbXBsZSBub25jZQ==';
/** The answer to that key. Source: RFC 6455 §1.3. */
export const ACCEPT = 's3pPLMBiTxaQ9kYGzzhZRbK+xOo=';

const nameOf = (line: string): string => (line.split(':', 1)[0] ?? '').toLowerCase();

/** The head of a handshake. */
export function handshake({ address, path, method = 'GET', lines = [] }: Handshake): string {
  const usual = [
    `Host: ${address}`,
    'Connection: Upgrade',
    'Upgrade: websocket',
    'Sec-WebSocket-Version: 13',
    `Sec-WebSocket-Key: ${KEY}`,
  ];
  const named = new Set(lines.map((line) => nameOf(line.replace(/^-/, ''))));
  const kept = usual.filter((line) => !named.has(nameOf(line)));
  const given = lines.filter((line) => !line.startsWith('-'));
  return [`${method} ${path} HTTP/1.1`, ...kept, ...given, '', ''].join('\r\n');
}

/** A connection whose handshake was answered; `answer.status` is 101 where it was accepted. */
export interface RawWebSocket {
  readonly answer: RawAnswer;
  readonly connection: RawConnection;
  readonly frames: () => readonly ReadFrame[];
  /** Waits for so many frames, or the end of the connection. */
  readonly until: (count: number) => Promise<void>;
  /** Waits until so many whole messages, pings, pongs and closes have come. */
  readonly untilMessages: (count: number) => Promise<void>;
  /** Waits for the end of the connection. */
  readonly ended: () => Promise<void>;
}

export async function openRaw(request: Handshake): Promise<RawWebSocket> {
  const connection = new RawConnection(request.address);
  await connection.opened;
  connection.send(handshake(request));
  const answer = await connection.answer();
  const frames = (): readonly ReadFrame[] => readFrames(connection.received);
  const isWhole = ({ fin }: ReadFrame): boolean => fin;
  return {
    answer,
    connection,
    frames,
    until: (count) => connection.until((bytes) => readFrames(bytes).length >= count),
    untilMessages: (count) => connection.until((bytes) => readFrames(bytes).filter(isWhole).length >= count),
    ended: () => connection.until(() => false),
  };
}
