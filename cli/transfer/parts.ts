// The bytes of a stream as they come.
import type { Readable } from 'node:stream';

/** Bytes that may wait for their reader. */
const MOST_WAITING = 1024 * 1024;

/**
 * Hands on the parts of a stream one by one. The stream's own iterator joins all that wait, which copies every byte
 * once more: a seventh of the command's processor time in a large download.
 */
export async function* partsOf(stream: Readable): AsyncGenerator<Buffer, void> {
  const parts: Buffer[] = [];
  let waiting = 0;
  let failure: unknown;
  let isOver = false;
  let wake = Promise.withResolvers<void>();
  const over = (error?: unknown): void => {
    failure ??= error;
    isOver = true;
    wake.resolve();
  };
  stream.on('data', (part: Buffer) => {
    parts.push(part);
    waiting += part.length;
    if (waiting >= MOST_WAITING) stream.pause();
    wake.resolve();
  });
  stream.once('end', () => over());
  stream.once('error', over);
  stream.once('close', () =>
    over(stream.readableEnded ? undefined : Object.assign(new Error('the answer broke off'), { code: 'ECONNRESET' })),
  );
  try {
    for (;;) {
      for (let part = parts.shift(); part !== undefined; part = parts.shift()) {
        yield part;
        waiting -= part.length;
      }
      if (isOver) break;
      wake = Promise.withResolvers<void>();
      if (stream.isPaused()) stream.resume();
      await wake.promise;
    }
    if (failure !== undefined) throw failure;
  } finally {
    stream.destroy();
  }
}
