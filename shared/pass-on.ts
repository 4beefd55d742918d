/**
 * Bytes that pass from one connection to another. The memory of each chunk is given back when it has been written, not
 * at the next garbage collection: chunks lie outside the heap, and the collector runs in full for every few dozen MiB
 * of them.
 */
import { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { reusedReads } from './reused-reads.ts';

/** Frees the memory of a chunk that nobody reads any more. A chunk that shares its memory with others is left alone. */
export function giveBack(chunk: Uint8Array): void {
  const { buffer } = chunk;
  if (buffer instanceof ArrayBuffer && chunk.byteLength === buffer.byteLength) buffer.transfer(0);
}

/** Passes everything on, with back-pressure, and the end behind it. Nothing else may read `from`. */
export function passOn(from: Duplex, to: Duplex): void {
  const reads = to instanceof Socket ? reusedReads(from) : undefined;
  if (to instanceof Socket) reads?.passTo(to);
  // Beside reused reads: what was read before.
  from.on('data', (chunk: Buffer) => {
    if (to.destroyed || to.writableEnded) return;
    if (!to.write(chunk, () => giveBack(chunk))) from.pause();
  });
  to.on('drain', () => from.resume());
  from.once('end', () => {
    reads?.flush();
    if (!to.writableEnded) to.end();
  });
  from.resume();
}
