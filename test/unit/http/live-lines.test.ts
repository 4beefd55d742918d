// Lines of a topic of logs, in groups.
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { CollectedLines } from '#scheduler/api/http/rest/live-lines.ts';

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

test.each(['a\u2028b', 'a\u2029b', 'a\u0085b', 'a\nb', 'data: x'])('a line with %j comes as it is', async (message) => {
  const passed: string[] = [];
  const ignore = (): void => undefined;
  const lines = new CollectedLines({
    topic: 'logs:',
    source: { begin: ignore, drained: ignore, tick: ignore, closed: ignore },
    pass: (frame) => passed.push(frame.toString()) > 0,
    nowMs: () => Date.now(),
  });
  lines.begin();
  const record = { seq_num: 7, message };
  lines.write(Buffer.from(`id: 7\nevent: log\ndata: ${JSON.stringify(record)}\n\n`));
  await vi.advanceTimersByTimeAsync(1_000);
  const told = passed.map(
    (frame) => JSON.parse(frame.slice(frame.indexOf('data: ') + 6)) as { readonly lines: unknown },
  );
  expect(told.map(({ lines: group }) => group)).toEqual([[], [record]]);
});
