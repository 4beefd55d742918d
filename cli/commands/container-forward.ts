// `longshore container port-forward`: ports of this machine that lead into a container.
import { createServer } from 'node:net';
import type { AddressInfo, Server, Socket } from 'node:net';
import type { RawData } from 'ws';
import { messageOf } from '#shared/errors.ts';
import type { Client } from '../client.ts';
import { CliError, errorCode, usageError } from '../errors.ts';
import { EXIT } from '../exit-codes.ts';
import { note, print } from '../print.ts';
import { placeOf } from './container.ts';
import { openLink } from './container-link.ts';
import { withClient } from './run.ts';
import type { Invocation } from './run.ts';

interface Forward {
  readonly local: number;
  readonly remote: number;
}

const MOST_BEHIND_BYTES = 1024 * 1024;

export async function runContainerForward(
  reference: string,
  ports: readonly string[],
  invocation: Invocation,
): Promise<number> {
  const forwards = ports.map(forwardOf);
  return withClient(invocation, async (client) => {
    const { id } = await placeOf(client, reference);
    // A token that may not reach into containers is told before anybody relies on the ports.
    await client.restCall('GET', `/gateway/containers/${encodeURIComponent(id)}/files?path=%2F&stat=true`);
    const servers: Server[] = [];
    const open = new Set<Socket>();
    try {
      for (const { local, remote } of forwards) {
        const server = await listening(local, (socket) => {
          open.add(socket);
          socket.once('close', () => open.delete(socket));
          socket.on('error', () => undefined);
          pass(client, id, remote, socket).catch((error: unknown) => {
            note(`longshore: port ${remote}: ${messageOf(error)}`);
            socket.destroy();
          });
        });
        servers.push(server);
        print(`127.0.0.1:${(server.address() as AddressInfo).port} leads to port ${remote} of ${id}`);
      }
      return await new Promise<number>((resolve) => {
        process.once('SIGINT', () => resolve(EXIT.interrupted));
        process.once('SIGTERM', () => resolve(EXIT.ok));
      });
    } finally {
      for (const server of servers) server.close();
      for (const socket of open) socket.destroy();
    }
  });
}

function forwardOf(text: string): Forward {
  const [, first = '', second] = /^(\d{1,5})(?::(\d{1,5}))?$/.exec(text) ?? [];
  const local = Number(first);
  const remote = Number(second ?? first);
  if (first === '' || local > 65_535 || remote < 1 || remote > 65_535)
    throw usageError(
      `${JSON.stringify(text)} is no pair of ports: give LOCAL:REMOTE, such as 8080:80, or one port for both`,
    );
  return { local, remote };
}

function listening(port: number, onConnection: (socket: Socket) => void): Promise<Server> {
  const server = createServer({ allowHalfOpen: true }, onConnection);
  return new Promise((resolve, reject) => {
    server.once('error', (error) => {
      const text = errorCode(error) === 'EADDRINUSE' ? 'another program has it' : messageOf(error);
      reject(new CliError(`cannot listen on port ${port} (${text}): choose another, LOCAL:REMOTE`, { cause: error }));
    });
    server.listen(port, '127.0.0.1', () => resolve(server));
  });
}

/** Passes bytes both ways, no faster than either side takes them. */
async function pass(client: Client, id: string, port: number, socket: Socket): Promise<void> {
  socket.pause();
  const webSocket = await openLink(client, `/api/v1/gateway/containers/${encodeURIComponent(id)}/ports/${port}`);
  if (socket.destroyed) return webSocket.terminate();
  webSocket.on('message', (data: RawData, isBinary: boolean) => {
    if (!isBinary) return void socket.end();
    if (socket.write(data as Buffer)) return;
    webSocket.pause();
    socket.once('drain', () => webSocket.resume());
  });
  webSocket.once('close', (code) => {
    if (code === 1000) socket.end();
    else socket.destroy();
  });
  socket.on('data', (data: Buffer) => {
    webSocket.send(data, () => {
      if (webSocket.bufferedAmount < MOST_BEHIND_BYTES) socket.resume();
    });
    if (webSocket.bufferedAmount >= MOST_BEHIND_BYTES) socket.pause();
  });
  socket.once('end', () => webSocket.send('{"end":true}'));
  socket.once('close', () => {
    if (webSocket.readyState === webSocket.OPEN) webSocket.close();
  });
  webSocket.resume();
  socket.resume();
}
