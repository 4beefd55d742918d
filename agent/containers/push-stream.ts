import type { Readable } from 'node:stream';
import { isDigest } from '#shared/domain/image-reference.ts';

/** The engine's last line of a push; with containerd's image store nothing else names the digest. */
const FINAL = /: digest: (sha256:[0-9a-f]{64}) size: \d+$/;
const MAX_LINE = 1024 * 1024;
const MAX_LAYERS = 1000;

interface Line {
  readonly id?: unknown;
  readonly status?: unknown;
  readonly error?: unknown;
  readonly errorDetail?: { readonly message?: unknown };
  readonly progressDetail?: { readonly current?: unknown; readonly total?: unknown };
  readonly aux?: { readonly Digest?: unknown } | null;
}

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
  let rest = '';
  let digest = '';
  let failure: string | undefined;
  const layers = new Map<string, { readonly done: number; readonly total: number }>();
  const giveUp = (why: string): void => void stream.destroy(new Error(why));
  const silence = setTimeout(() => giveUp(`nothing heard for ${silenceMs / 1000} s`), silenceMs);
  const onAbort = (): void => giveUp('the push was ended');
  signal.addEventListener('abort', onAbort, { once: true });
  if (signal.aborted) onAbort();
  const onLine = (text: string): void => {
    const { id, status, error, errorDetail, progressDetail, aux } = parse(text);
    const said = errorDetail?.message ?? error;
    if (typeof said === 'string') failure ??= said;
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
  if (digest === '') throw new Error('the push ended before it was complete');
  return digest;
}

function parse(text: string): Line {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? value : {};
  } catch {
    return {};
  }
}
