import { expect, test } from 'vitest';
import { Inbox, MOST_IN_LINE } from '#scheduler/fleet/inbox.ts';

function anInbox() {
  const handled: number[] = [];
  const gates: (() => void)[] = [];
  let reading = true;
  const stream = { pause: () => (reading = false), resume: () => (reading = true) };
  const inbox = new Inbox<number>(stream, async (message) => {
    await new Promise<void>((resolve) => gates.push(resolve));
    handled.push(message);
  });
  const next = async (): Promise<void> => {
    gates.shift()?.();
    await new Promise(setImmediate);
  };
  return { inbox, handled, next, isReading: () => reading };
}

test('messages are handled in order; a line that grows is not read on until it is short again', async () => {
  const { inbox, handled, next, isReading } = anInbox();
  await new Promise(setImmediate);
  let read = 0;
  while (isReading() && read < 10 * MOST_IN_LINE) inbox.add((read += 1));
  expect(read).toBe(MOST_IN_LINE);
  expect(inbox.holds).toBe(true);
  await new Promise(setImmediate);
  await next();
  expect(isReading()).toBe(false);
  while (!isReading()) await next();
  expect(inbox.holds).toBe(false);
  expect(handled.length).toBeLessThan(MOST_IN_LINE);
  inbox.add((read += 1));
  while (handled.length < read) await next();
  expect(handled).toEqual(Array.from({ length: read }, (_, at) => at + 1));
});
