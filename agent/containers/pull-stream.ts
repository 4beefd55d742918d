import type { Readable } from 'node:stream';

/** The engine's last line of a pull that worked. */
const FINAL = /^Status: (Downloaded newer image|Image is up to date) for /;
const MAX_LINE = 1024 * 1024;

/**
 * Reads a pull's progress to its end. Success is: no error line, and the final status line. (A stream that just ends early is no success.)
 * @throws Error with the engine's words
 */
export async function readPullStream(stream: Readable, silenceMs: number, signal: AbortSignal): Promise<void> {
  let rest = '';
  let final = false;
  let failure: string | undefined;
  const silence = setTimeout(() => stream.destroy(new Error(`nothing heard for ${silenceMs / 1000} s`)), silenceMs);
  const onAbort = (): void => void stream.destroy(new Error('given up'));
  signal.addEventListener('abort', onAbort, { once: true });
  const onLine = (line: string): void => {
    if (line.trim() === '') return;
    let message: { error?: unknown; errorDetail?: { message?: unknown }; status?: unknown };
    try {
      message = JSON.parse(line) as typeof message;
    } catch {
      return;
    }
    const error = message.errorDetail?.message ?? message.error;
    if (typeof error === 'string') failure ??= error;
    if (typeof message.status === 'string' && FINAL.test(message.status)) final = true;
  };
  try {
    for await (const data of stream) {
      silence.refresh();
      const lines = (rest + String(data)).split('\n');
      rest = (lines.pop() ?? '').slice(0, MAX_LINE);
      lines.forEach(onLine);
    }
    onLine(rest);
  } finally {
    clearTimeout(silence);
    signal.removeEventListener('abort', onAbort);
  }
  if (failure !== undefined) throw new Error(failure);
  if (!final) throw new Error('the pull ended before it was complete');
}
