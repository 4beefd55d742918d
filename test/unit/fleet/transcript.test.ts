// Output of a build for its readers: all of it for each, and its end where it is long.
import { expect, test } from 'vitest';
import { Transcript } from '../../../scheduler/fleet/builds/transcript.ts';

async function readAll(transcript: Transcript, signal = new AbortController().signal) {
  const texts: string[] = [];
  const lines = transcript.read(signal);
  for (;;) {
    const next = await lines.next();
    if (next.done === true) return { texts, outcome: next.value };
    texts.push(next.value.text);
  }
}

test('readers that come early and late get the same lines and the outcome', async () => {
  const transcript = new Transcript();
  const early = readAll(transcript);
  transcript.add('one');
  await Promise.resolve();
  transcript.add('two', true);
  transcript.end({ errMsg: '' });
  transcript.end({ errMsg: 'too late' });
  transcript.add('too late');
  const late = await readAll(transcript);
  expect(late).toEqual({ texts: ['one', 'two'], outcome: { errMsg: '' } });
  expect(await early).toEqual(late);
  expect(transcript.text).toBe('one\ntwo');
});

test('a long output loses its beginning, and says so', async () => {
  const transcript = new Transcript();
  for (let line = 0; line < 3000; line += 1) transcript.add(`${line} ${'x'.repeat(200)}`);
  transcript.end({ errMsg: '' });
  const { texts } = await readAll(transcript);
  expect(texts[0]).toContain('left out');
  expect(texts.at(-1)).toMatch(/^2999 /);
  expect(transcript.text.length).toBeLessThan(260 * 1024);
});

test('a reader who leaves ends, and a slow one goes on behind the gap', async () => {
  const transcript = new Transcript();
  const abort = new AbortController();
  const left = readAll(transcript, abort.signal);
  abort.abort();
  expect((await left).outcome).toBeUndefined();
  transcript.add('first');
  const slow = transcript.read(new AbortController().signal);
  expect((await slow.next()).value).toMatchObject({ text: 'first' });
  for (let line = 0; line < 3000; line += 1) transcript.add(`${line} ${'x'.repeat(200)}`);
  expect((await slow.next()).value).toMatchObject({ isNote: true });
  expect((await slow.next()).value).toMatchObject({ isNote: false });
});
