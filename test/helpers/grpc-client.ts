/** Calls as a published client makes them, by the table of fields. */
import { Client, Metadata, credentials } from '@grpc/grpc-js';
import type { ClientReadableStream, ServiceError } from '@grpc/grpc-js';
import { makeCodecs } from '#scheduler/api/grpc/descriptor.ts';
import type { Plain } from '#scheduler/api/grpc/descriptor.ts';
import { SERVICES } from '#scheduler/api/grpc/services/index.ts';
import { messagesOf } from '#scheduler/api/grpc/services/service.ts';

const codecs = makeCodecs();
/** Bytes of a message, as in published clients. */
const MOST_BYTES = 16 * 1024 * 1024;
const LIMITS = { 'grpc.max_receive_message_length': MOST_BYTES, 'grpc.max_send_message_length': MOST_BYTES };

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

export class GrpcClient {
  readonly #client: Client;

  constructor(address: string, channel = credentials.createInsecure()) {
    this.#client = new Client(address, channel, LIMITS);
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
  async stream(path: string, message: Plain = {}, how: CallHow = {}): Promise<Called & { readonly all: Plain[] }> {
    const { request, response } = named(path);
    const stream = this.#client.makeServerStreamRequest(
      `/${path}`,
      () => how.bytes ?? codecs.encode(request, message),
      (bytes: Buffer) => codecs.decode(response, bytes),
      message,
      metadataOf(how),
    );
    const all: Plain[] = [];
    try {
      for await (const answer of stream) all.push(answer as Plain);
      return { all, code: 0, details: '' };
    } catch (error) {
      const { code, details } = error as ServiceError;
      return { all, code, details };
    }
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

  /** A stream of messages of an answer, for who reads some of them: ended by `cancel`. */
  open(path: string, message: Plain = {}, how: CallHow = {}): ClientReadableStream<Plain> {
    const { request, response } = named(path);
    return this.#client.makeServerStreamRequest(
      `/${path}`,
      () => codecs.encode(request, message),
      (bytes: Buffer) => codecs.decode(response, bytes),
      message,
      metadataOf(how),
    );
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
