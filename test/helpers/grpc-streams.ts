/** Streams of calls as a published client makes them: messages as they come, and how the stream ended. */
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';
import { Client, Metadata, credentials } from '@grpc/grpc-js';
import type { ClientDuplexStream, ClientReadableStream } from '@grpc/grpc-js';
import { makeCodecs } from '#scheduler/api/grpc/descriptor.ts';
import type { Plain } from '#scheduler/api/grpc/descriptor.ts';

const codecs = makeCodecs();

export interface StreamHow {
  readonly token: string;
  readonly metadata?: Readonly<Record<string, string>>;
}

/** How a stream ended, by the code of its status. */
export interface StreamEnd {
  readonly code: number;
  readonly details: string;
}

/** An open stream. */
export class OpenStream {
  readonly #stream: ClientReadableStream<Plain>;
  readonly #messages: AsyncIterator<Plain>;
  readonly ended: Promise<StreamEnd>;

  constructor(stream: ClientReadableStream<Plain>) {
    this.#stream = stream;
    this.ended = new Promise((resolve) => {
      stream.on('status', ({ code, details }: StreamEnd) => resolve({ code, details }));
    });
    stream.on('error', () => undefined);
    this.#messages = stream[Symbol.asyncIterator]() as AsyncIterator<Plain>;
  }

  /** The next message; undefined: there is none any more. */
  async next(): Promise<Plain | undefined> {
    try {
      const next = await this.#messages.next();
      return next.done === true ? undefined : next.value;
    } catch {
      return undefined;
    }
  }

  async rest(): Promise<readonly Plain[]> {
    const all: Plain[] = [];
    for (let next = await this.next(); next !== undefined; next = await this.next()) all.push(next);
    return all;
  }

  cancel(): void {
    this.#stream.cancel();
  }
}

/** A stream that takes messages, too. */
export class OpenDuplex extends OpenStream {
  readonly #duplex: ClientDuplexStream<Plain, Plain>;

  constructor(duplex: ClientDuplexStream<Plain, Plain>) {
    super(duplex);
    this.#duplex = duplex;
  }

  /** @param message - by names of operations */
  send(message: Plain): void {
    this.#duplex.write(message);
  }
}

export class StreamClient {
  readonly #client: Client;

  constructor(address: string) {
    // Without a pool of its own, all clients of a process share one connection, and its bound of streams.
    this.#client = new Client(address, credentials.createInsecure(), { 'grpc.use_local_subchannel_pool': 1 });
  }

  /** @param path - `function.FunctionService/FunctionInvoke` @param message - by names of operations */
  open(path: string, message: Plain, how: StreamHow): OpenStream {
    const base = `${path.split('.', 1)[0]}.${path.split('/')[1]}`;
    const stream = this.#client.makeServerStreamRequest(
      `/${path}`,
      () => codecs.encode(`${base}Request`, message),
      (bytes: Buffer) => codecs.decode(`${base}Response`, bytes),
      message,
      metadataOf(how),
    );
    return new OpenStream(stream);
  }

  attach(how: StreamHow): OpenDuplex {
    const duplex = this.#client.makeBidiStreamRequest<Plain, Plain>(
      '/gateway.GatewayService/AttachToContainer',
      (message) => codecs.encode('gateway.ContainerStreamMessage', message),
      (bytes) => codecs.decode('gateway.AttachToContainerResponse', bytes),
      metadataOf(how),
    );
    return new OpenDuplex(duplex);
  }

  close(): void {
    this.#client.close();
  }
}

function metadataOf({ token, metadata: said = {} }: StreamHow): Metadata {
  const metadata = new Metadata();
  if (token !== '') metadata.set('authorization', `Bearer ${token}`);
  for (const [name, value] of Object.entries(said)) metadata.set(name, value);
  return metadata;
}

/** A way to an address that can be cut off. */
export async function aCuttableWay(to: string): Promise<{ readonly address: string; readonly cut: () => void }> {
  const [host = '', port = ''] = to.split(':');
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    const other = connect(Number(port), host);
    for (const one of [socket, other]) {
      sockets.add(one);
      one.on('error', () => undefined);
    }
    socket.pipe(other).pipe(socket);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    address: `127.0.0.1:${(server.address() as AddressInfo).port}`,
    cut: () => {
      server.close();
      for (const socket of sockets) socket.destroy();
    },
  };
}
