// WebSockets of callers, with a real socket and a runner process that this test plays.
import { once } from 'node:events';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { WebSocket } from 'ws';
import { encodeFrame } from '#shared/protocol/frames.ts';
import { bridged } from '../../helpers/bridged.ts';
import { waitFor } from '../../helpers/programs.ts';

/** More than the interval of pings. */
const INTERVAL_MS = 30_001;

beforeEach(() => void vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] }));
afterEach(() => void vi.useRealTimers());

test('a caller whose messages wait for the container is not taken for gone', async () => {
  const { client, runner, ends, pings, close } = await bridged();
  for (let sent = 0; sent < 20; sent += 1) client.send(Buffer.alloc(100_000));
  await waitFor(() => runner.taken > 0, 'the first message is on its way');
  for (let round = 0; round < 4; round += 1) {
    vi.advanceTimersByTime(INTERVAL_MS);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  expect(ends).toEqual([]);
  runner.go();
  await waitFor(() => runner.taken > 2_000_000, 'all messages are there');
  vi.advanceTimersByTime(INTERVAL_MS);
  await waitFor(() => pings() === 5, 'every ping came');
  close();
});

test('a caller who answers no ping is gone', async () => {
  const { client, ends, close } = await bridged();
  client.pause();
  vi.advanceTimersByTime(INTERVAL_MS);
  vi.advanceTimersByTime(INTERVAL_MS);
  await waitFor(() => ends.length === 1, 'the WebSocket is over');
  expect(ends).toEqual([1006]);
  close();
});

test('a caller who reads nothing of many small messages makes the container wait', async () => {
  const { client, runner, unsentBytes, close } = await bridged();
  client.pause();
  const message = encodeFrame('message', { text: true }, Buffer.from('x'));
  const many = Buffer.concat(Array.from({ length: 1000 }, () => message));
  await waitFor(() => {
    for (let sent = 0; sent < 50 && !runner.isPaused(); sent += 1) runner.push(many);
    return runner.isPaused();
  }, 'the runner process has to wait');
  // A message of three bytes costs some hundred.
  expect(unsentBytes()).toBeLessThan(50_000);
  close();
});

test('many messages at once to a container that waits add no listener and no buffer each', async () => {
  const { raw, runner, close } = await bridged();
  // In a single write: the messages must arrive together, before the pause holds up what is behind them.
  const message = Buffer.from([0x81, 0x81, 0, 0, 0, 0, 0x78]);
  raw.write(Buffer.concat(Array.from({ length: 5_000 }, () => message)));
  await waitFor(() => runner.writableLength > 10_000, 'they wait');
  expect(runner.listenerCount('drain')).toBeLessThan(3);
  // A buffer for each message would take many times its bytes.
  runner.go();
  await waitFor(() => runner.taken === 5_000 * encodeFrame('message', { text: true }, Buffer.from('x')).length, 'all');
  expect(runner.writes).toBeLessThan(500);
  close();
});

test('a WebSocket that is accepted while the service stops is told to come again', async () => {
  const { client, ends, close } = await bridged({ isStopping: true });
  const [code] = client.readyState === WebSocket.CLOSED ? [1012] : ((await once(client, 'close')) as [number]);
  expect(code).toBe(1012);
  await waitFor(() => ends.length === 1, 'the WebSocket is over');
  expect(ends).toEqual([1012]);
  close();
});
