// A cable to a Postgres server that is held or cut at a chosen statement: before the server has the statement, or
// before the client has the answer. Bytes that were held can reach the server later, also when the client has left.
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import type { AddressInfo, Server, Socket } from 'node:net';

export interface Fault {
  /** Text of the statement, as the client sends it. */
  readonly at: string;
  readonly when: 'before' | 'after';
  readonly how: 'hold' | 'cut';
}

export class HeldPostgres {
  readonly url: string;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  readonly #held: { readonly upstream: Socket; readonly bytes: Buffer[] }[] = [];
  #fault: Fault | undefined;

  private constructor(server: Server, url: string) {
    this.#server = server;
    this.url = url;
  }

  static async to(url: string): Promise<HeldPostgres> {
    const to = new URL(url);
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    const cable = new HeldPostgres(server, `postgres://${to.username}@127.0.0.1:${port}${to.pathname}`);
    server.on('connection', (client) => cable.#join(client, connect(Number(to.port), to.hostname)));
    return cable;
  }

  /** Plants a fault for the next connection that sends the statement. */
  plant(fault: Fault): void {
    this.#fault = fault;
  }

  /** Whether a statement met the planted fault. */
  get isMet(): boolean {
    return this.#fault === undefined;
  }

  /** The server gets what was held, and then the end of the connection. Resolves once the server has closed it. */
  async letGo(): Promise<void> {
    await Promise.all(
      this.#held.splice(0).map(async ({ upstream, bytes }) => {
        if (upstream.destroyed) return;
        upstream.resume();
        upstream.end(Buffer.concat(bytes));
        await once(upstream, 'close');
      }),
    );
  }

  stop(): void {
    for (const socket of this.#sockets) socket.destroy();
    this.#server.close();
  }

  #join(client: Socket, upstream: Socket): void {
    let fault: Fault | undefined;
    const bytes: Buffer[] = [];
    for (const socket of [client, upstream]) {
      this.#sockets.add(socket);
      socket.on('error', () => undefined);
    }
    client.on('data', (part: Buffer) => {
      if (fault === undefined && this.#fault !== undefined && part.includes(this.#fault.at)) {
        fault = this.#fault;
        this.#fault = undefined;
        if (fault.how === 'hold') this.#held.push({ upstream, bytes });
        if (fault.when === 'after') upstream.write(part);
        else if (fault.how === 'cut') client.destroy();
        else bytes.push(part);
      } else if (fault === undefined) upstream.write(part);
      else bytes.push(part);
    });
    upstream.on('data', (part: Buffer) => {
      if (fault === undefined) client.write(part);
      else if (fault.how === 'cut') client.destroy();
    });
    client.on('close', () => {
      this.#sockets.delete(client);
      if (fault?.how !== 'hold') upstream.destroy();
    });
    upstream.on('close', () => {
      this.#sockets.delete(upstream);
      client.destroy();
    });
  }
}
