import type { Readable } from 'node:stream';

/**
 * Reads a stream to its end; an abort is an end too. Uses events: for a silent log an iterator would hold more memory
 * than the connection does.
 */
export function drain(stream: Readable, signal: AbortSignal, onData: (data: Buffer) => void): Promise<void> {
  return new Promise((resolve, reject) => {
    const over = (error?: unknown): void => {
      if (signal.aborted || stream.readableEnded) resolve();
      else reject(error ?? new Error('the engine cut its answer off'));
    };
    stream.on('data', (data: Buffer) => {
      try {
        onData(data);
      } catch (error) {
        reject(error);
        stream.destroy();
      }
    });
    stream.on('end', resolve);
    stream.on('error', over);
    stream.on('close', () => over());
    if (stream.destroyed) over();
  });
}
