// Connections for bytes from strangers, with real sockets. Sessions: test/integration/byte-connections.test.ts.
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';
import { expect, test, vi } from 'vitest';
import type { MachineId } from '#shared/domain/ids.ts';
import { encodeLine } from '#shared/protocol/byte-connections.ts';
import { ByteConnections } from '../../../scheduler/fleet/byte-connections.ts';
import { turned } from '../../helpers/played-streams.ts';

const STRANGERS = 1024;

test('strangers who say nothing do not keep an agent out: the oldest of 1,024 is closed', async ({
  onTestFinished,
}) => {
  // Silent connections end after a time of their own, which does not pass here. The bound alone closes them.
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  onTestFinished(() => void vi.useRealTimers());
  const session = { machineId: 'm' as MachineId, waiting: new Set<Socket>() };
  const connections = new ByteConnections({ sessionOf: () => session });
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
  await turned(() => accepted === 1);
  const others: Socket[] = [];
  for (let count = 2; count <= STRANGERS; count += 1) {
    others.push(dial());
    // Fewer than the kernel keeps for a listener that is busy.
    if (count % 128 === 0) await turned(() => accepted === count);
  }
  expect(oldest.closed).toBe(false);
  const agent = dial();
  agent.write(encodeLine({ sessionId: 's', authorization: 'Bearer c' }));
  agent.write(encodeLine({ streamId: 'mine' }));
  await turned(() => taken.length === 1);
  expect(taken).toEqual(['mine']);
  await turned(() => oldest.closed);
  expect(others.filter(({ closed }) => closed)).toEqual([]);
  expect(agent.closed).toBe(false);
}, 60_000);
