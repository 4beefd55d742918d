// Connections of runner processes, joined with those of the scheduler by the agent, over real sockets.
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import type { Socket, SocketConstructorOpts } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, expect, test, vi } from 'vitest';
import { HELD_BYTES } from '#shared/protocol/byte-connections.ts';
import { joinSockets } from '../../../agent/slots/streams.ts';

const folder = mkdtempSync(join(tmpdir(), 'ls-joined-'));
const sockets: Socket[] = [];
afterEach(() => {
  vi.useRealTimers();
  for (const socket of sockets.splice(0)) socket.destroy();
});
afterAll(() => rmSync(folder, { recursive: true }));

/** As the agent dials. */
const HELD: SocketConstructorOpts & { readonly highWaterMark: number } = { highWaterMark: HELD_BYTES };

/** Two ends of a connection. */
async function pair(name: string): Promise<readonly [Socket, Socket]> {
  const path = join(folder, `${name}.sock`);
  const server = createServer();
  await once(server.listen(path), 'listening');
  const dialled = connect({ path, ...HELD });
  const [taken] = (await once(server, 'connection')) as [Socket];
  server.close();
  for (const socket of [dialled, taken]) socket.on('error', () => undefined);
  sockets.push(dialled, taken);
  return [dialled, taken];
}

const turns = async (count: number): Promise<void> => {
  for (let turn = 0; turn < count; turn += 1) await new Promise((resolve) => setImmediate(resolve));
};

async function turned(isSo: () => boolean): Promise<void> {
  const untilMs = performance.now() + 5_000;
  while (!isSo()) {
    if (performance.now() > untilMs) throw new Error('it did not become so');
    await turns(1);
  }
}

/** A runner process whose connection is joined with one of a scheduler that reads nothing yet. */
async function joined(name: string) {
  const [runner, ofRunner] = await pair(`${name}-runner`);
  const [ofScheduler, scheduler] = await pair(`${name}-scheduler`);
  scheduler.pause();
  joinSockets(ofRunner, ofScheduler);
  return { runner, ofRunner, scheduler, ofScheduler };
}

test('the end of a response waits for a slow caller after its runner process is gone', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  const { runner, ofRunner, scheduler } = await joined('slow');
  // More than the kernel takes, less than the agent holds beside it.
  const body = Buffer.alloc(450_000, 'x');
  runner.end(body);
  await turned(() => ofRunner.closed);
  await turns(5);
  vi.advanceTimersByTime(299_000);
  await turns(5);
  let bytes = 0;
  let hasEnded = false;
  scheduler.on('data', (chunk: Buffer) => (bytes += chunk.length));
  scheduler.on('end', () => (hasEnded = true));
  scheduler.resume();
  await turned(() => hasEnded);
  expect(bytes).toBe(body.length);
});

test('a scheduler that never ends its side is left at last', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  const { runner, ofRunner, ofScheduler } = await joined('silent');
  runner.end(Buffer.alloc(450_000));
  await turned(() => ofRunner.closed);
  await turns(5);
  vi.advanceTimersByTime(331_000);
  await turned(() => ofScheduler.destroyed);
});
