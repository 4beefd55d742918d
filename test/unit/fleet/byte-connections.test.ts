// Connections for bytes from strangers, with real sockets. Sessions: test/integration/byte-connections.test.ts.
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';
import { expect, test } from 'vitest';
import type { MachineId } from '#shared/domain/ids.ts';
import { encodeLine } from '#shared/protocol/byte-connections.ts';
import { ByteConnections } from '../../../scheduler/fleet/byte-connections.ts';

test('strangers who say nothing do not keep an agent out', async ({ onTestFinished }) => {
  const session = { machineId: 'm' as MachineId, waiting: new Set<Socket>() };
  const connections = new ByteConnections({ sessionOf: () => session, mostUnknown: 8 });
  const taken: string[] = [];
  connections.onOrderedStream((_machineId, streamId) => void taken.push(streamId));
  let accepted = 0;
  const server = createServer((socket) => {
    accepted += 1;
    connections.accept(socket);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const open: Socket[] = [];
  onTestFinished(() => {
    for (const socket of open) socket.destroy();
    server.close();
    connections.close();
  });
  const dial = (): Socket => {
    const socket = connect(port, '127.0.0.1').on('error', () => undefined);
    open.push(socket.resume());
    return socket;
  };
  // The first connection has said nothing for longest.
  const oldest = dial();
  await expect.poll(() => accepted).toBe(1);
  for (let more = 1; more < 8; more += 1) dial();
  await expect.poll(() => accepted, { timeout: 20_000 }).toBe(8);
  expect(oldest.closed).toBe(false);
  const agent = dial();
  agent.write(encodeLine({ sessionId: 's', authorization: 'Bearer c' }));
  agent.write(encodeLine({ streamId: 'mine' }));
  await expect.poll(() => taken, { timeout: 20_000 }).toEqual(['mine']);
  await expect.poll(() => oldest.closed, { timeout: 20_000 }).toBe(true);
});
