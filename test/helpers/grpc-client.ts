/** Calls as a published client makes them, by the table of fields: single messages, and streams as they come. */
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';
import { Client, Metadata, credentials } from '@grpc/grpc-js';
import type { ClientDuplexStream, ClientReadableStream, ServiceError } from '@grpc/grpc-js';
import { makeCodecs } from '#scheduler/api/grpc/descriptor.ts';
import type { Plain } from '#scheduler/api/grpc/descriptor.ts';
import { SERVICES } from '#scheduler/api/grpc/services/index.ts';
import { messagesOf } from '#scheduler/api/grpc/services/service.ts';

const codecs = makeCodecs();
/** Bytes of a message, as in published clients. */
const MOST_BYTES = 16 * 1024 * 1024;
const OPTIONS = {
  'grpc.max_receive_message_length': MOST_BYTES,
  'grpc.max_send_message_length': MOST_BYTES,
  // Without a pool of its own, all clients of a process share one connection, and its bound of streams.
  'grpc.use_local_subchannel_pool': 1,
};

/** Either an answer, or the status in its place. */
export interface Called {
  /** By names of the wire. */
  readonly answer?: Plain;
  readonly code: number;
  readonly details: string;
}

/** An answer as bytes, or the status in its place. */
export interface Raw {
  readonly code: number;
  readonly details: string;
  readonly bytes: Buffer;
}

export interface CallHow {
  /** Empty or absent: none. */
  readonly token?: string;
  readonly metadata?: Readonly<Record<string, string | readonly string[]>>;
  /** Bytes in the place of the message. */
  readonly bytes?: Buffer;
  readonly deadlineMs?: number;
}

const messages = new Map(
  SERVICES.flatMap(({ pack, name, calls = {} }) =>
    Object.entries(calls).map(([call, adapter]) => [`${pack}.${name}/${call}`, messagesOf(pack, call, adapter)]),
  ),
);

function metadataOf({ token = '', metadata: said = {} }: CallHow): Metadata {
  const metadata = new Metadata();
  if (token !== '') metadata.set('authorization', `Bearer ${token}`);
  for (const [name, values] of Object.entries(said)) for (const value of [values].flat()) metadata.add(name, value);
  return metadata;
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

export class GrpcClient {
  readonly #client: Client;

  constructor(address: string, channel = credentials.createInsecure()) {
    this.#client = new Client(address, channel, OPTIONS);
  }

  /** @param path - `gateway.GatewayService/ListTasks` @param message - by names of operations, `stubId` */
  call(path: string, message: Plain = {}, how: CallHow = {}): Promise<Called> {
    const { request, response } = named(path);
    return new Promise((resolve) => {
      this.#client.makeUnaryRequest(
        `/${path}`,
        () => how.bytes ?? codecs.encode(request, message),
        (bytes: Buffer) => codecs.decode(response, bytes),
        message,
        metadataOf(how),
        how.deadlineMs === undefined ? {} : { deadline: Date.now() + how.deadlineMs },
        (error: ServiceError | null, answer?: Plain) =>
          resolve(
            error === null
              ? { answer: answer ?? {}, code: 0, details: '' }
              : { code: error.code, details: error.details },
          ),
      );
    });
  }

  /** A call whose answer comes in messages. @returns those messages, and how it ended */
  async stream(
    path: string,
    message: Plain = {},
    how: CallHow = {},
  ): Promise<Called & { readonly all: readonly Plain[] }> {
    const stream = this.open(path, message, how);
    return { all: await stream.rest(), ...(await stream.ended) };
  }

  /** A call of any form with one empty message, and what was answered, as bytes. */
  raw(path: string, type: 'unary' | 'clientStream' | 'serverStream', token: string): Promise<Raw> {
    const metadata = metadataOf({ token });
    const asIs = (bytes: Buffer): Buffer => bytes;
    return new Promise((resolve) => {
      const ended = (error: ServiceError | null, bytes?: Buffer): void =>
        resolve({ code: error?.code ?? 0, details: error?.details ?? '', bytes: bytes ?? Buffer.alloc(0) });
      if (type === 'unary') this.#client.makeUnaryRequest(path, asIs, asIs, Buffer.alloc(0), metadata, ended);
      else if (type === 'clientStream')
        this.#client.makeClientStreamRequest(path, asIs, asIs, metadata, ended).end(Buffer.alloc(0));
      else {
        const all: Buffer[] = [];
        const stream = this.#client.makeServerStreamRequest(path, asIs, asIs, Buffer.alloc(0), metadata);
        stream.on('data', (bytes: Buffer) => all.push(bytes));
        stream.on('end', () => ended(null, Buffer.concat(all)));
        stream.on('error', (error: ServiceError) => ended(error));
      }
    });
  }

  /** A call whose answer comes in messages, which stays open. */
  open(path: string, message: Plain = {}, how: CallHow = {}): OpenStream {
    const { request, response } = named(path);
    const stream = this.#client.makeServerStreamRequest(
      `/${path}`,
      () => codecs.encode(request, message),
      (bytes: Buffer) => codecs.decode(response, bytes),
      message,
      metadataOf(how),
    );
    return new OpenStream(stream);
  }

  attach(how: CallHow): OpenDuplex {
    const path = 'gateway.GatewayService/AttachToContainer';
    const { request, response } = named(path);
    const duplex = this.#client.makeBidiStreamRequest<Plain, Plain>(
      `/${path}`,
      (message) => codecs.encode(request, message),
      (bytes) => codecs.decode(response, bytes),
      metadataOf(how),
    );
    return new OpenDuplex(duplex);
  }

  /** A call whose request comes in messages. @param whole - false: the caller leaves before the end */
  send(path: string, messages: readonly Plain[], how: CallHow = {}, whole = true): Promise<Called> {
    const { request, response } = named(path);
    return new Promise((resolve) => {
      const stream = this.#client.makeClientStreamRequest(
        `/${path}`,
        (message: Plain) => codecs.encode(request, message),
        (bytes: Buffer) => codecs.decode(response, bytes),
        metadataOf(how),
        {},
        (error: ServiceError | null, answer?: Plain) =>
          resolve(
            error === null
              ? { answer: answer ?? {}, code: 0, details: '' }
              : { code: error.code, details: error.details },
          ),
      );
      for (const message of messages.slice(0, -1)) stream.write(message);
      stream.write(messages.at(-1) ?? {}, () => (whole ? stream.end() : stream.cancel()));
    });
  }

  /** A call that never sends its message. */
  silent(path: string, how: CallHow = {}): Promise<Called> {
    const asBytes = (bytes: Buffer): Buffer => bytes;
    return new Promise((resolve) => {
      this.#client.makeClientStreamRequest(`/${path}`, asBytes, asBytes, metadataOf(how), {}, (error) =>
        resolve({ code: error?.code ?? 0, details: error?.details ?? '' }),
      );
    });
  }

  close(): void {
    this.#client.close();
  }
}

function named(path: string): { readonly request: string; readonly response: string } {
  const found = messages.get(path);
  if (found !== undefined) return found;
  if (!path.startsWith('grpc.health.')) throw new Error(`no call ${path}`);
  return messagesOf('health', path.split('/')[1] ?? '', {});
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
