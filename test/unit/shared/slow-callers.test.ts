// Connections of runner processes whose responses are whole, and wait at the agent for slow callers.
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import type { Socket, SocketConstructorOpts } from 'node:net';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { HELD_BYTES } from '#shared/protocol/byte-connections.ts';
import { encodeFrame } from '#shared/protocol/frames.ts';
import { keyOf } from '../../../agent/slots/attempts.ts';
import { ContainerStreams } from '../../../agent/slots/streams.ts';
import { tempDirectory } from '../../helpers/services.ts';

const HELD: SocketConstructorOpts & { readonly highWaterMark: number } = { highWaterMark: HELD_BYTES };
const SLOTS = 1;

async function listening() {
  const directory = tempDirectory('slow-callers');
  const sockets: Socket[] = [];
  const keep = (socket: Socket): Socket => {
    sockets.push(socket.on('error', () => undefined));
    return socket;
  };
  const scheduler = createServer((socket) => void keep(socket).pause());
  await once(scheduler.listen(join(directory.path, 'scheduler.sock')), 'listening');
  let faults = 0;
  const path = join(directory.path, 'streams.sock');
  const streams = new ContainerStreams({
    path,
    slots: SLOTS,
    open: async () => {
      const link = keep(connect({ path: join(directory.path, 'scheduler.sock'), ...HELD }));
      await once(link, 'connect');
      return link.pause();
    },
    onFault: () => void (faults += 1),
    onCount: () => undefined,
  });
  await streams.listen();
  onTestFinished(() => {
    streams.close();
    scheduler.close();
    for (const socket of sockets) socket.destroy();
    directory.remove();
  });
  return {
    streams,
    dial: async () => {
      const runner = keep(connect(path));
      await once(runner, 'connect');
      return runner;
    },
    faults: () => faults,
  };
}

test('whole responses of slow callers keep no other call out', async () => {
  const { streams, dial, faults } = await listening();
  for (let call = 0; call < 40; call += 1) {
    const taskId = `task-${call}`;
    streams.expect(taskId, 'token');
    const runner = await dial();
    runner.write(encodeFrame('stream', { version: 1, taskId, token: 'token' }));
    await new Promise((resolve) => setTimeout(resolve, 5));
    // More than the way to the scheduler holds, less than the runner's socket holds beside it.
    await new Promise<void>((resolve, reject) => {
      runner.once('close', () => reject(new Error(`call ${call} was refused`)));
      runner.end(Buffer.alloc(650_000), resolve);
    });
    streams.over(keyOf(taskId, 'token'));
  }
  expect(faults()).toBe(0);
});

test('strangers have few connections', async () => {
  const { dial, faults } = await listening();
  let closed = 0;
  for (let call = 0; call < 40; call += 1) (await dial()).once('close', () => (closed += 1)).resume();
  await expect.poll(() => closed).toBe(40 - SLOTS - 16);
  expect(faults()).toBe(40 - SLOTS - 16);
});
