// Frames beside the rows of a stream: dropped and counted while the caller reads nothing, unless their source waits.
import { expect, test } from 'vitest';
import { newId } from '#shared/domain/ids.ts';
import { createLog } from '#shared/log.ts';
import { openRowStream } from '#scheduler/api/http/rest/row-stream.ts';
import type { FramesBeside } from '#scheduler/api/http/rest/row-stream.ts';
import type { SseStream } from '#scheduler/api/http/sse.ts';

async function opened(limit?: number) {
  const calls: string[] = [];
  const written: string[] = [];
  let [takesMore, isOpen] = [true, true];
  let into: FramesBeside | undefined;
  const subscription = { start: () => undefined, resume: () => undefined, end: () => undefined };
  const source = await openRowStream({
    hub: { subscribe: () => Promise.resolve(subscription) },
    workspaceId: newId(),
    filter: undefined,
    fromSeq: undefined,
    end: limit === undefined ? {} : { limit },
    nowMs: () => 0,
    log: createLog({ name: 'test', level: 'silent' }),
    beside: (given) => {
      into = given;
      const note = (name: string) => () => void calls.push(name);
      return Promise.resolve({ start: note('start'), resume: note('resume'), end: note('end') });
    },
  });
  source.begin({
    get isOpen() {
      return isOpen;
    },
    write: (frame: Buffer) => {
      written.push(frame.toString());
      return takesMore;
    },
    end: () => (isOpen = false),
  } as unknown as SseStream);
  if (into === undefined) throw new Error('it was opened');
  return { source, into, calls, written, takes: (more: boolean) => (takesMore = more), isOpen: () => isOpen };
}

test('frames that come while the caller reads nothing are counted, and he hears how many', async () => {
  const { source, into, calls, written, takes } = await opened();
  into.pass(Buffer.from('1'));
  takes(false);
  into.pass(Buffer.from('2'));
  into.pass(Buffer.from('3'));
  into.dropped(4);
  // A source that keeps its place loses nothing.
  expect(into.keep(Buffer.from('line'))).toBe('full');
  expect(written).toEqual(['1', '2', 'line']);
  takes(true);
  source.drained();
  into.pass(Buffer.from('5'));
  expect(written.slice(3)).toEqual(['event: dropped\ndata: {"dropped":5}\n\n', '5']);
  into.dropped(1);
  expect(written.at(-1)).toBe('event: dropped\ndata: {"dropped":1}\n\n');
  source.closed();
  expect(calls).toEqual(['start', 'resume', 'end']);
});

test('they count for the limit of a stream', async () => {
  const { into, written, isOpen } = await opened(2);
  into.pass(Buffer.from('1'));
  expect(into.keep(Buffer.from('2'))).toBe('over');
  into.pass(Buffer.from('3'));
  expect([written, isOpen()]).toEqual([['1', '2'], false]);
});
