import { Readable } from 'node:stream';
import { describe, expect, test } from 'vitest';
import { readPushStream } from '#agent/containers/push-stream.ts';
import { isRegistryPortReference } from '#shared/domain/built-images.ts';

const DIGEST = `sha256:${'a'.repeat(64)}`;
const of = (...lines: readonly object[]): Readable => Readable.from(lines.map((line) => `${JSON.stringify(line)}\n`));
const read = (stream: Readable, told: [number, number][] = []): Promise<string> =>
  readPushStream(stream, 1000, new AbortController().signal, (done, total) => told.push([done, total]));

describe('a push', () => {
  test('ends with the digest, and tells the bytes of all layers together', async () => {
    const told: [number, number][] = [];
    const layer = (id: string, current: number) => ({ id, status: 'Pushing', progressDetail: { current, total: 10 } });
    const end = { progressDetail: {}, aux: { Tag: 't', Digest: DIGEST, Size: 1 } };
    expect(await read(of(layer('a', 5), layer('b', 3), layer('a', 10), end), told)).toBe(DIGEST);
    expect(told.at(-1)).toEqual([13, 20]);
  });

  test("with containerd's image store has its digest in the last line alone", async () => {
    expect(await read(of({ status: 'Pushed' }, { status: `tag: digest: ${DIGEST} size: 1234` }))).toBe(DIGEST);
  });

  test('with an error line has failed, whatever else it says', async () => {
    const failed = { errorDetail: { message: 'denied: no' }, error: 'denied: no' };
    await expect(read(of(failed, { aux: { Digest: DIGEST } }))).rejects.toThrow('denied: no');
  });

  test('that just ends has failed', async () => {
    await expect(read(of({ status: 'Pushing' }))).rejects.toThrow('before it was complete');
  });

  test('in silence is given up', async () => {
    const silent = new Readable({ read: () => undefined });
    await expect(readPushStream(silent, 20, new AbortController().signal, () => undefined)).rejects.toThrow(
      'nothing heard',
    );
  });
});

test.each([
  ['127.0.0.1:5000/longshore-built/w@sha256:x', true],
  ['127.9.0.1:1/longshore-built/w:tag', true],
  ['localhost:5000/longshore-built/w:tag', true],
  ['127.0.0.1:5000/team/app:1', false],
  ['registry.example.com:5000/longshore-built/w:tag', false],
  ['longshore.internal/abc', false],
])('only the agent names %s: %s', (reference, expected) => {
  expect(isRegistryPortReference(reference)).toBe(expected);
});
