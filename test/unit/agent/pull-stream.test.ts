import { PassThrough, Readable } from 'node:stream';
import { describe, expect, test } from 'vitest';
import { readPullStream } from '#agent/containers/pull-stream.ts';
import type { PullProgress } from '#agent/containers/pull-stream.ts';

const DIGEST = `sha256:${'a'.repeat(64)}`;
const FINAL = { status: 'Status: Downloaded newer image for r/i:1' };
const never = new AbortController().signal;
const streamOf = (...lines: readonly unknown[]): Readable =>
  Readable.from(lines.map((line) => (typeof line === 'string' ? line : `${JSON.stringify(line)}\r\n`)));

describe('a pull', () => {
  test('that says its digest and its final status is complete, however its lines are cut', async () => {
    const text = [{ status: 'Pulling from r/i', id: '1' }, { status: `Digest: ${DIGEST}` }, FINAL]
      .map((line) => JSON.stringify(line))
      .join('\n');
    const pieces = text.split('');
    expect(await readPullStream(Readable.from(pieces), 1000, never)).toBe(DIGEST);
  });

  test('with an error line has failed, also when more lines and the final status follow', async () => {
    const stream = streamOf({ errorDetail: { message: 'unexpected EOF' }, error: 'unexpected EOF' }, FINAL);
    await expect(readPullStream(stream, 1000, never)).rejects.toThrow('unexpected EOF');
  });

  test('that ends early, without any error, has failed', async () => {
    const stream = streamOf({ status: 'Downloading', id: '0123456789ab' }, { status: `Digest: ${DIGEST}` });
    await expect(readPullStream(stream, 1000, never)).rejects.toThrow('ended before it was complete');
    await expect(readPullStream(streamOf(), 1000, never)).rejects.toThrow('ended before it was complete');
  });

  test('that is silent for too long is given up, and so is one whose time is over', async () => {
    await expect(readPullStream(new PassThrough(), 20, never)).rejects.toThrow('nothing heard for 0.02 s');
    const over = new AbortController();
    const reading = readPullStream(new PassThrough(), 60_000, over.signal);
    over.abort();
    await expect(reading).rejects.toThrow('it took too long');
  });

  test('tells how far it is, over all layers', async () => {
    const seen: PullProgress[] = [];
    const [one, two] = ['0123456789ab', 'ba9876543210'];
    const stream = streamOf(
      { status: 'Pulling fs layer', id: one },
      { status: 'Already exists', id: two },
      { status: 'Downloading', id: one, progressDetail: { current: 40, total: 100 } },
      { status: 'Download complete', id: one },
      { status: 'Extracting', id: one, progressDetail: { current: 1, total: 100 } },
      { status: 'Pull complete', id: one },
      { status: `Digest: ${DIGEST}` },
      FINAL,
    );
    await readPullStream(stream, 1000, never, (progress) => seen.push(progress));
    expect(seen).toContainEqual({ doneBytes: 40, totalBytes: 100, layersDone: 1, layers: 2 });
    expect(seen.at(-1)).toEqual({ doneBytes: 100, totalBytes: 100, layersDone: 2, layers: 2 });
  });
});
