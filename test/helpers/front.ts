// A port that stands before the scheduler, as a proxy does, or before another server that had the address before.
import { createServer } from 'node:http';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { connect, createServer as createTcpServer } from 'node:net';
import type { AddressInfo, Server, Socket } from 'node:net';

/** Leads to different servers in turn. */
export class Front {
  readonly #sockets = new Set<Socket>();
  #server: Server | undefined;
  port = 0;

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  /** The answers of the other server. */
  async answers(handle: (request: IncomingMessage, response: ServerResponse) => void): Promise<void> {
    await this.#listens(createServer(handle));
  }

  /** @param line - a header that is put in front of each connection's first request, as a proxy does */
  async leadsTo(address: string, line = ''): Promise<void> {
    const [host = '', port = ''] = address.split(':');
    await this.#listens(
      createTcpServer((socket) => {
        const on = connect(Number(port), host);
        socket.on('error', () => on.destroy()).on('close', () => on.destroy());
        on.on('error', () => socket.destroy()).on('close', () => socket.destroy());
        on.pipe(socket);
        socket.on('data', (chunk: Buffer) => {
          const text = chunk.toString('latin1');
          on.write(line === '' ? text : text.replace(/ HTTP\/1\.1\r\n/, `$&${line}\r\n`), 'latin1');
        });
      }),
    );
  }

  async #listens(server: Server): Promise<void> {
    await this.close();
    server.on('connection', (socket: Socket) => {
      this.#sockets.add(socket);
      socket.once('close', () => this.#sockets.delete(socket));
    });
    this.#server = server;
    await new Promise<void>((resolve) => server.listen(this.port, '127.0.0.1', resolve));
    this.port = (server.address() as AddressInfo).port;
  }

  async close(): Promise<void> {
    const server = this.#server;
    if (server === undefined) return;
    this.#server = undefined;
    const closed = new Promise<void>((resolve) => server.close(() => resolve()));
    for (const socket of this.#sockets) socket.destroy();
    await closed;
  }
}
