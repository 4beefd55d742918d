// Bodies at a fixed rate, beside which something else is measured. They are read into memory that is used again:
// a caller that collects its garbage holds up the calls of its own process, which say nothing of the platform then.
import { connect } from 'node:net';
import type { Socket } from 'node:net';
import { sleep } from '#shared/backoff.ts';
import { writable } from '../test/helpers/transfers.ts';
import type { WebTarget } from './streams-client.ts';

export interface Pace {
  /** Size of the body: more than passes while it is needed. */
  readonly bytes: number;
  readonly perSecond: number;
}

const PIECE = Buffer.alloc(256 * 1024, 'x');
/** Milliseconds by which a body may be ahead. */
const AHEAD_MS = 20;

/** Reads a download until the signal. @returns its bytes so far. @throws Error when the body ends before */
export async function pacedDownload(
  target: WebTarget,
  { bytes, perSecond }: Pace,
  signal: AbortSignal,
): Promise<number> {
  const startedMs = performance.now();
  let got = 0;
  let status = '';
  const { over } = opened(target, `GET ${pathOf(target, `/download?${bytes}`)} HTTP/1.1`, signal, (piece, resume) => {
    if (got === 0) status = piece.toString('latin1', 0, 12);
    got += piece.length;
    const ms = aheadMs(got, perSecond, startedMs);
    if (ms > AHEAD_MS) setTimeout(resume, ms);
    return ms <= AHEAD_MS;
  });
  await over(() => `a download brought ${got} of ${bytes} bytes, status line ${status}`);
  return got;
}

/** Sends an upload until the signal. @returns its bytes so far. @throws Error when the body ends before */
export async function pacedUpload(target: WebTarget, { bytes, perSecond }: Pace, signal: AbortSignal): Promise<number> {
  const startedMs = performance.now();
  let answer = '';
  const { socket, over } = opened(
    target,
    `POST ${pathOf(target, '/upload')} HTTP/1.1\r\ncontent-length: ${bytes}`,
    signal,
    (piece) => {
      answer += piece.toString('latin1', 0, 300);
      return true;
    },
  );
  let sent = 0;
  const ended = over(() => `an upload ended after ${sent} of ${bytes} bytes: ${answer}`);
  ended.catch(() => undefined);
  for (; sent < bytes && !socket.destroyed; sent += PIECE.length) {
    if (!socket.write(PIECE)) await Promise.race([writable(socket), ended]);
    const ms = aheadMs(sent, perSecond, startedMs);
    if (ms > AHEAD_MS) await Promise.race([sleep(ms), ended]);
  }
  await ended;
  return sent;
}

const pathOf = ({ url }: WebTarget, path: string): string => `${new URL(url).pathname}${path}`;

const aheadMs = (bytes: number, perSecond: number, startedMs: number): number =>
  (bytes / perSecond) * 1000 - (performance.now() - startedMs);

/** @param onBytes - returns false to read nothing until it calls `resume` */
function opened(
  { url, headers }: WebTarget,
  head: string,
  signal: AbortSignal,
  onBytes: (piece: Buffer, resume: () => void) => boolean,
): { socket: Socket; over: (textOf: () => string) => Promise<void> } {
  const { hostname, port, host } = new URL(url);
  const buffer = Buffer.alloc(PIECE.length);
  const socket = connect({
    host: hostname,
    port: Number(port),
    onread: { buffer, callback: (count) => onBytes(buffer.subarray(0, count), () => socket.resume()) },
  });
  const lines = [head, `host: ${host}`, ...Object.entries(headers).map(([name, value]) => `${name}: ${value}`)];
  socket.write(`${lines.join('\r\n')}\r\n\r\n`);
  const closed = new Promise<void>((resolve) => {
    socket.on('error', () => undefined);
    socket.once('close', () => resolve());
  });
  signal.addEventListener('abort', () => socket.destroy());
  const over = async (textOf: () => string): Promise<void> => {
    await closed;
    if (!signal.aborted) throw new Error(textOf());
  };
  return { socket, over };
}
