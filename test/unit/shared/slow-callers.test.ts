// Connections of runner processes whose responses are whole, and wait at the agent for slow callers.
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import type { Socket, SocketConstructorOpts } from 'node:net';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { HELD_BYTES } from '#shared/protocol/byte-connections.ts';
import { encodeFrame } from '#shared/protocol/frames.ts';
import { keyOf } from '../../../agent/slots/attempts.ts';
import { ContainerStreams, MOST_ENDING } from '../../../agent/slots/streams.ts';
import { tempDirectory } from '../../helpers/services.ts';

const HELD: SocketConstructorOpts & { readonly highWaterMark: number } = { highWaterMark: HELD_BYTES };
const SLOTS = 1;
/** More than the way to the scheduler holds, less than the runner's socket holds beside it. */
const BODY = Buffer.alloc(650_000);

async function listening() {
  const directory = tempDirectory('slow-callers');
  const sockets: Socket[] = [];
  const keep = (socket: Socket): Socket => {
    sockets.push(socket.on('error', () => undefined));
    return socket;
  };
  const callers: Socket[] = [];
  const scheduler = createServer((socket) => {
    callers.push(keep(socket).pause());
    socket.write('begin');
  });
  await once(scheduler.listen(join(directory.path, 'scheduler.sock')), 'listening');
  let faults = 0;
  const path = join(directory.path, 'streams.sock');
  const streams = new ContainerStreams({
    path,
    slots: () => SLOTS,
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
  const dial = async (): Promise<Socket> => {
    const runner = keep(connect(path));
    await once(runner, 'connect');
    return runner;
  };
  return {
    dial,
    /** Answers a call as a runner does. Its caller reads nothing. @returns the runner's connection */
    answer: async (call: number): Promise<Socket> => {
      const taskId = `task-${call}`;
      streams.expect(taskId, 'token');
      const runner = await dial();
      await new Promise<void>((resolve, reject) => {
        runner.once('close', () => reject(new Error(`call ${call} was refused`)));
        runner.once('data', () => runner.end(BODY, resolve));
        runner.write(encodeFrame('stream', { version: 1, taskId, token: 'token' }));
      });
      streams.over(keyOf(taskId, 'token'));
      return runner;
    },
    /** The scheduler's connections, in the order of the calls. */
    callers,
    faults: () => faults,
  };
}

/** Reads a connection to its end. */
async function bytesOf(socket: Socket): Promise<number> {
  let bytes = 0;
  socket.on('data', (chunk: Buffer) => (bytes += chunk.length)).resume();
  if (!socket.closed) await new Promise<void>((resolve) => void socket.once('close', () => resolve()));
  return bytes;
}

test('whole responses of slow callers keep no other call out', async () => {
  const { answer, faults } = await listening();
  for (let call = 0; call < 40; call += 1) await answer(call);
  expect(faults()).toBe(0);
});

test('beyond a bound the oldest response of a slow caller is cut, and new calls go on', async () => {
  const { answer, callers, faults } = await listening();
  const more = 30;
  const runners: Socket[] = [];
  for (let call = 0; call < MOST_ENDING + more; call += 1) runners.push(await answer(call));
  await expect.poll(() => runners.filter(({ closed }) => closed).length, { timeout: 20_000 }).toBe(more);
  expect(runners.slice(0, more).every(({ closed }) => closed)).toBe(true);
  expect(await bytesOf(callers[0] as Socket)).toBeLessThan(BODY.length);
  expect(await bytesOf(callers[more - 1] as Socket)).toBeLessThan(BODY.length);
  expect(await bytesOf(callers[more] as Socket)).toBe(BODY.length);
  expect(faults()).toBe(0);
}, 60_000);

test('strangers have few connections', async () => {
  const { dial, faults } = await listening();
  let closed = 0;
  for (let call = 0; call < 40; call += 1) (await dial()).once('close', () => (closed += 1)).resume();
  await expect.poll(() => closed).toBe(40 - SLOTS - 16);
  expect(faults()).toBe(40 - SLOTS - 16);
});
