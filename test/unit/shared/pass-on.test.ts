// Bytes that pass between two connections: whole, in order, with back-pressure, and without a wait for the garbage
// collector.
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer, connect } from 'node:net';
import type { Server, Socket } from 'node:net';
import { join } from 'node:path';
import { expect } from 'vitest';
import { giveBack, passOn } from '../../../shared/pass-on.ts';
import { tempDirectory, test as base } from '../../helpers/services.ts';

const MIB = 1024 * 1024;

/** Two connections, each with both ends. */
const test = base.extend('pairs', async ({ task: _task }, { onCleanup }) => {
  const directory = tempDirectory('pass-on');
  const servers: Server[] = [];
  const sockets: Socket[] = [];
  onCleanup(() => {
    for (const socket of sockets) socket.destroy();
    for (const server of servers) server.close();
    directory.remove();
  });
  const pair = async (name: string): Promise<readonly [Socket, Socket]> => {
    const server = createServer();
    servers.push(server);
    const path = join(directory.path, name);
    await once(server.listen(path), 'listening');
    const dialled = connect(path);
    const [accepted] = (await once(server, 'connection')) as [Socket];
    sockets.push(dialled, accepted);
    return [dialled, accepted];
  };
  const [sender, from] = await pair('from');
  const [to, receiver] = await pair('to');
  return { sender, from, to, receiver };
});

test('arrive whole behind a slow reader, and the end behind them', async ({ pairs }) => {
  const { sender, from, to, receiver } = pairs;
  passOn(from, to);
  const sent = createHash('sha256');
  const got = createHash('sha256');
  const over = once(receiver, 'end');
  receiver.on('data', (chunk: Buffer) => {
    got.update(chunk);
    receiver.pause();
    setTimeout(() => receiver.resume(), 1);
  });
  for (let piece = 0; piece < 20; piece += 1) {
    const bytes = randomBytes(200_000 + piece);
    sent.update(bytes);
    if (!sender.write(bytes)) await once(sender, 'drain');
  }
  sender.end();
  await over;
  expect(got.digest('hex')).toBe(sent.digest('hex'));
});

test('leave no memory behind', async ({ pairs }) => {
  const { sender, from, to, receiver } = pairs;
  passOn(from, to);
  const { promise, resolve } = Promise.withResolvers<void>();
  let got = 0;
  let most = 0;
  receiver.on('data', (chunk: Buffer) => {
    got += chunk.length;
    giveBack(chunk);
    most = Math.max(most, process.memoryUsage().arrayBuffers);
    if (got === 512 * MIB) resolve();
  });
  const piece = Buffer.alloc(MIB, 'x');
  const before = process.memoryUsage().arrayBuffers;
  for (let count = 0; count < 512; count += 1) if (!sender.write(piece)) await once(sender, 'drain');
  await promise;
  expect(most - before).toBeLessThan(16 * MIB);
});

test('a chunk that shares its memory is left alone', () => {
  const whole = Buffer.alloc(100_000, 'a');
  giveBack(whole.subarray(1));
  giveBack(whole.subarray(0, 99_999));
  expect(whole.toString().length).toBe(100_000);
  giveBack(whole);
  expect(whole.length).toBe(0);
});
