// Proxies in front of Redis and Postgres that note what one program asks of them: commands, and executed statements.
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import type { AddressInfo, Server, Socket } from 'node:net';

/** Reads what a client sends. @returns the rest that is not whole yet */
type Reader = (bytes: Buffer, note: (text: string) => void) => Buffer;

export class StatementCounter {
  readonly #servers: Server[] = [];
  readonly #sockets = new Set<Socket>();
  #noted: string[] = [];

  /** A URL that leads to the same server by way of this counter. */
  async through(url: string): Promise<string> {
    const to = new URL(url);
    const isPostgres = to.protocol.startsWith('postgres');
    const place = to.protocol === 'unix:' ? { path: to.pathname } : { host: to.hostname, port: Number(to.port) };
    const server = createServer((client) => {
      const upstream = connect(place);
      const read = isPostgres ? postgresReader() : redisReader();
      let rest: Buffer = Buffer.alloc(0);
      client.on('data', (bytes: Buffer) => {
        rest = read(Buffer.concat([rest, bytes]), (text) => this.#noted.push(shapeOf(text)));
        upstream.write(bytes);
      });
      upstream.pipe(client);
      for (const [socket, other] of [
        [client, upstream],
        [upstream, client],
      ] as const) {
        this.#sockets.add(socket);
        socket.on('error', () => undefined);
        socket.on('close', () => {
          this.#sockets.delete(socket);
          other.destroy();
        });
      }
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    this.#servers.push(server);
    const { port } = server.address() as AddressInfo;
    return isPostgres ? `postgres://${to.username}@127.0.0.1:${port}${to.pathname}` : `redis://127.0.0.1:${port}`;
  }

  /** Commands and statements since the last call, without ids and numbers. */
  take(): readonly string[] {
    const noted = this.#noted;
    this.#noted = [];
    return noted;
  }

  stop(): void {
    for (const server of this.#servers) server.close();
    for (const socket of this.#sockets) socket.destroy();
  }
}

const shapeOf = (text: string): string =>
  text
    .replaceAll(/[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}/g, '*')
    .replaceAll(/\b\d+\b/g, '#')
    .replaceAll(/\s+/g, ' ')
    .slice(0, 200);

/** Commands as arrays of strings; a script is named by its digest, and a command by its first key. */
function redisReader(): Reader {
  return (bytes, note) => {
    for (let at = 0; ;) {
      const args: string[] = [];
      const begin = lineEnd(bytes, at);
      if (begin === undefined) return bytes.subarray(at);
      const count = Number(bytes.toString('latin1', at + 1, begin - 2));
      let end: number = begin;
      for (let n = 0; n < count; n += 1) {
        const head = lineEnd(bytes, end);
        if (head === undefined) return bytes.subarray(at);
        const length = Number(bytes.toString('latin1', end + 1, head - 2));
        if (bytes.length < head + length + 2) return bytes.subarray(at);
        args.push(bytes.toString('utf8', head, head + Math.min(length, 100)));
        end = head + length + 2;
      }
      const isScript = args[0]?.toLowerCase().startsWith('eval') === true;
      note(`redis ${args[0]?.toLowerCase()} ${isScript ? `${args[1]?.slice(0, 12)} ${args[3]}` : args[1]}`);
      at = end;
    }
  };
}

function lineEnd(bytes: Buffer, from: number): number | undefined {
  const at = bytes.indexOf('\r\n', from, 'latin1');
  return at < 0 ? undefined : at + 2;
}

/** Statements that are bound or asked for at once; a prepared one is noted each time. */
function postgresReader(): Reader {
  const prepared = new Map<string, string>();
  let hasBegun = false;
  return (bytes, note) => {
    let at = 0;
    while (bytes.length >= at + 8) {
      // The first message, and a request for TLS before it, have no letter.
      const isFirst = !hasBegun;
      const length = bytes.readUInt32BE(at + (isFirst ? 0 : 1));
      const end = at + length + (isFirst ? 0 : 1);
      if (bytes.length < end) break;
      if (isFirst) {
        hasBegun = length > 8;
        at = end;
        continue;
      }
      const kind = String.fromCodePoint(bytes[at] ?? 0);
      const [first = '', second = ''] = bytes.toString('utf8', at + 5, end).split('\0', 2);
      if (kind === 'P') prepared.set(first, second);
      else if (kind === 'B') note(`sql ${prepared.get(second) ?? '?'}`);
      else if (kind === 'Q') note(`sql ${first}`);
      at = end;
    }
    return bytes.subarray(at);
  };
}
