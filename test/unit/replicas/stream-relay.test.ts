// Streamed calls on their way to another replica, which this test plays.
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Duplex } from 'node:stream';
import { duplexPair } from 'node:stream';
import { pino } from 'pino';
import { expect, test } from 'vitest';
import type { InstanceId, TaskId } from '#shared/domain/ids.ts';
import { StreamRelay } from '../../../scheduler/replicas/stream-relay.ts';
import { waitFor } from '../../helpers/programs.ts';

const SWITCHED = 'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: longshore-stream\r\n\r\n';

async function dialled() {
  const server = createServer();
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const relay = new StreamRelay({
    addressOf: () => Promise.resolve(`127.0.0.1:${(server.address() as AddressInfo).port}`),
    fingerprint: undefined,
    keys: () => [Buffer.alloc(32)],
    nowMs: () => Date.now(),
    log: pino({ level: 'silent' }),
  });
  const [own, runner] = duplexPair();
  relay.carry('replica' as InstanceId, 'task' as TaskId, own);
  const [, socket] = (await once(server, 'upgrade')) as [unknown, Duplex];
  socket.on('error', () => undefined);
  return { own, runner, socket, close: () => server.close() };
}

test('a container that is gone before the other replica answers ends the call there', async () => {
  const { own, socket, close } = await dialled();
  let isOver = false;
  socket.on('end', () => (isOver = true));
  socket.resume();
  own.destroy();
  await once(own, 'close');
  socket.write(SWITCHED);
  await waitFor(() => isOver, 'the connection of the replicas is over');
  close();
});

test('bytes that come before the other replica answers are not lost', async () => {
  const { runner, socket, close } = await dialled();
  let text = '';
  socket.on('data', (chunk: Buffer) => (text += chunk.toString()));
  runner.write('early');
  socket.write(`${SWITCHED}back`);
  const [back] = (await once(runner, 'data')) as [Buffer];
  expect(back.toString()).toBe('back');
  await waitFor(() => text === 'early', 'they came');
  runner.destroy();
  socket.destroy();
  close();
});
