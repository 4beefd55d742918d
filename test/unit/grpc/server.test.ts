// The port before a call: connections that say nothing, and those that do.
import { once } from 'node:events';
import { connect } from 'node:net';
import type { Socket } from 'node:net';
import { pino } from 'pino';
import { expect, test } from 'vitest';
import { GrpcServer } from '../../../scheduler/api/grpc/server.ts';
import type { Wire } from '../../../scheduler/api/grpc/wire.ts';

test('a connection is handed to gRPC with its first byte, and a silent one is not', async () => {
  const handed: Socket[] = [];
  const come = Promise.withResolvers<string>();
  const wire = {
    running: 0,
    injector: {
      injectConnection: (socket: Socket) => {
        handed.push(socket);
        socket.once('data', (bytes: Buffer) => come.resolve(bytes.toString()));
        socket.resume();
      },
      drain: () => undefined,
    },
    endComingBack: () => undefined,
    endStreams: () => undefined,
    close: () => undefined,
  } as unknown as Wire;
  let opened = 0;
  const server = new GrpcServer({
    address: '127.0.0.1:0',
    plaintext: 'loopback',
    log: pino({ level: 'silent' }),
    open: () => {
      opened += 1;
      return Promise.resolve(wire);
    },
  });
  await server.start();
  const silent = connect(server.port, '127.0.0.1');
  await once(silent, 'connect');
  const speaks = connect(server.port, '127.0.0.1');
  speaks.write('PRI');
  // Connections are taken in the order in which they come.
  expect(await come.promise).toBe('PRI');
  expect([opened, handed.length]).toEqual([1, 1]);
  const closed = once(silent, 'close');
  await server.stop(0);
  await closed;
  speaks.destroy();
});
