import type { Readable } from 'node:stream';
import { isDigest } from '#shared/domain/image-reference.ts';
import { readProgressLines } from './progress-lines.ts';

/** The engine's last line of a push; with containerd's image store nothing else names the digest. */
const FINAL = /: digest: (sha256:[0-9a-f]{64}) size: \d+$/;
const MAX_LAYERS = 1000;

/**
 * Reads a push's progress to its end. Success requires the engine's word on the digest and no error line.
 * @param silenceMs - a stream without a message for this long is given up
 * @throws Error with the engine's message
 */
export async function readPushStream(
  stream: Readable,
  silenceMs: number,
  signal: AbortSignal,
  onProgress: (doneBytes: number, totalBytes: number) => void,
): Promise<string> {
  let digest = '';
  const layers = new Map<string, { readonly done: number; readonly total: number }>();
  await readProgressLines(stream, { silenceMs, signal, whenAborted: 'the push was ended' }, (line) => {
    const { id, status, progressDetail, aux } = line;
    if (typeof status === 'string') digest = FINAL.exec(status)?.[1] ?? digest;
    if (typeof aux?.Digest === 'string' && isDigest(aux.Digest)) digest = aux.Digest;
    const { current, total } = progressDetail ?? {};
    if (typeof id !== 'string' || typeof current !== 'number') return;
    if (!layers.has(id) && layers.size >= MAX_LAYERS) return;
    layers.set(id, { done: current, total: Math.max(current, typeof total === 'number' ? total : 0) });
    const all = [...layers.values()];
    onProgress(
      all.reduce((sum, one) => sum + one.done, 0),
      all.reduce((sum, one) => sum + one.total, 0),
    );
  });
  if (digest === '') throw new Error('the push ended before it was complete');
  return digest;
}
