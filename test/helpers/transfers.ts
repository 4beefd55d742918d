// Bodies of any size that nobody holds: made, sent, received and hashed piece by piece.
import { createHash } from 'node:crypto';
import { request } from 'node:http';
import type { ClientRequest, IncomingMessage } from 'node:http';
import type { Writable } from 'node:stream';
import { text } from 'node:stream/consumers';

const PIECE_BYTES = 256 * 1024;

export interface Target {
  readonly url: string;
  readonly token: string;
}

/** Bytes as the FastAPI example makes them: piece n consists of the number n, so that no two are the same. */
function* numbered(size: number): Generator<Buffer> {
  for (let at = 0; at < size; at += PIECE_BYTES) {
    const number = Buffer.alloc(8);
    number.writeBigUInt64BE(BigInt(at / PIECE_BYTES));
    yield Buffer.alloc(Math.min(PIECE_BYTES, size - at), number);
  }
}

/** Sends so many bytes. @returns their hash, and the answer as JSON */
export async function upload<T>({ url, token }: Target, size: number): Promise<{ sha256: string; answer: T }> {
  const hash = createHash('sha256');
  const headers = { authorization: `Bearer ${token}`, 'content-length': size };
  const sent = request(url, { method: 'PUT', headers, agent: false });
  const answered = answerOf(sent);
  answered.catch(() => undefined);
  for (const piece of numbered(size)) {
    hash.update(piece);
    if (!sent.write(piece)) await writable(sent);
    if (sent.destroyed) break;
  }
  sent.end();
  const answer = JSON.parse(await text(await answered)) as T;
  return { sha256: hash.digest('hex'), answer };
}

export interface Pause {
  readonly atBytes: number;
  /** Nothing is read until it has ended. */
  readonly until: () => Promise<void>;
}

/** Reads an answer to its end, as fast as it comes but for a pause. */
export async function download({ url, token }: Target, pause?: Pause): Promise<{ sha256: string; size: number }> {
  const hash = createHash('sha256');
  let size = 0;
  let isBefore = true;
  const sent = request(url, { headers: { authorization: `Bearer ${token}` }, agent: false });
  sent.end();
  for await (const piece of (await answerOf(sent)) as AsyncIterable<Buffer>) {
    hash.update(piece);
    size += piece.length;
    if (pause === undefined || !isBefore || size < pause.atBytes) continue;
    isBefore = false;
    await pause.until();
  }
  return { sha256: hash.digest('hex'), size };
}

/** The answer's head. @throws for another status than 200 */
async function answerOf(sent: ClientRequest): Promise<IncomingMessage> {
  const answer = await new Promise<IncomingMessage>((resolve, reject) => {
    sent.once('response', resolve);
    sent.once('error', reject);
  });
  if (answer.statusCode === 200) return answer;
  throw new Error(`${sent.method} ${sent.path} was answered ${answer.statusCode}: ${await text(answer)}`);
}

/** Resolves when a request takes more of its body, or is over. */
export function writable(sent: Writable): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      sent.off('drain', done);
      sent.off('close', done);
      resolve();
    };
    sent.on('drain', done);
    sent.on('close', done);
  });
}
