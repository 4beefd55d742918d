import type { Readable } from 'node:stream';
import { isDigest } from '#shared/domain/image-reference.ts';
import { type ProgressLine, readProgressLines } from './progress-lines.ts';

/** The engine's last line of a successful pull. */
const FINAL = /^Status: (Downloaded newer image|Image is up to date) for /;
const DIGEST = /^Digest: (sha256:[0-9a-f]{64})$/;
const MAX_LAYERS = 1000;

export interface PullProgress {
  /** Bytes of the layers whose size the engine has reported; both grow. */
  readonly doneBytes: number;
  readonly totalBytes: number;
  readonly layersDone: number;
  readonly layers: number;
}

/**
 * Reads a pull's progress to its end. Success requires the final status line and no error line; a stream that just ends
 * early is a failure.
 * @param silenceMs - a stream without a message for this long is given up
 * @returns the digest that the engine reports; empty when it reports none
 * @throws Error with the engine's message
 */
export async function readPullStream(
  stream: Readable,
  silenceMs: number,
  signal: AbortSignal,
  onProgress: (progress: PullProgress) => void = () => undefined,
): Promise<string> {
  let final = false;
  let digest = '';
  const layers = new Layers();
  await readProgressLines(stream, { silenceMs, signal, whenAborted: 'it took too long' }, (line) => {
    if (typeof line.status !== 'string') return;
    if (FINAL.test(line.status)) final = true;
    const said = DIGEST.exec(line.status)?.[1];
    if (said !== undefined && isDigest(said)) digest = said;
    if (layers.take(line, line.status)) onProgress(layers.progress);
  });
  if (!final) throw new Error('the pull ended before it was complete');
  return digest;
}

class Layers {
  readonly #known = new Map<string, { doneBytes: number; totalBytes: number; done: boolean }>();

  /** @returns whether the line is about a layer */
  take(line: ProgressLine, status: string): boolean {
    const { id } = line;
    if (typeof id !== 'string' || !/^[0-9a-f]{12}$/.test(id)) return false;
    const layer = this.#known.get(id) ?? { doneBytes: 0, totalBytes: 0, done: false };
    if (!this.#known.has(id) && this.#known.size < MAX_LAYERS) this.#known.set(id, layer);
    const { current, total } = line.progressDetail ?? {};
    if (status === 'Downloading' && typeof current === 'number') {
      layer.doneBytes = current;
      if (typeof total === 'number') layer.totalBytes = Math.max(total, current);
    } else if (status === 'Download complete' || status === 'Pull complete') {
      layer.doneBytes = layer.totalBytes;
      layer.done ||= status === 'Pull complete';
    } else if (status === 'Already exists') {
      layer.done = true;
    }
    return true;
  }

  get progress(): PullProgress {
    const all = [...this.#known.values()];
    return {
      doneBytes: all.reduce((sum, one) => sum + one.doneBytes, 0),
      totalBytes: all.reduce((sum, one) => sum + one.totalBytes, 0),
      layersDone: all.filter((one) => one.done).length,
      layers: all.length,
    };
  }
}
