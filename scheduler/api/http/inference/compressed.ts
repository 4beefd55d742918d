// Answers that a model's server, or a proxy before it, compressed although nobody asked for that.
import { pipeline } from 'node:stream';
import type { Duplex } from 'node:stream';
import { createBrotliDecompress, createGunzip, createInflate } from 'node:zlib';
import type { BackendAnswer } from '../streams/backend-call.ts';

const READERS: ReadonlyMap<string, () => Duplex> = new Map([
  ['gzip', createGunzip],
  ['x-gzip', createGunzip],
  ['br', createBrotliDecompress],
  ['deflate', createInflate],
]);

/** The answer with its body as it was before. Readers bound what they take, so that a small body may become large. */
export function uncompressed(answer: BackendAnswer): BackendAnswer {
  const reader = READERS.get((answer.headers['content-encoding'] ?? '').trim().toLowerCase())?.();
  if (reader === undefined) return answer;
  // An error reaches whoever reads; a reader that is destroyed ends the request.
  pipeline(answer.body, reader, () => undefined);
  return { ...answer, body: reader };
}
