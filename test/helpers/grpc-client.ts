/** Calls as a published client makes them, by the table of fields. */
import { Client, Metadata, credentials } from '@grpc/grpc-js';
import type { ServiceError } from '@grpc/grpc-js';
import { makeCodecs } from '#scheduler/api/grpc/descriptor.ts';
import type { Plain } from '#scheduler/api/grpc/descriptor.ts';

const codecs = makeCodecs();

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

/** Messages whose names are not that of their call. */
const RENAMED: Readonly<Record<string, string>> = {
  GetURL: 'GetUrl',
  CreatePresignedURL: 'CreatePresignedUrl',
};

function metadataOf({ token = '', metadata: said = {} }: CallHow): Metadata {
  const metadata = new Metadata();
  if (token !== '') metadata.set('authorization', `Bearer ${token}`);
  for (const [name, values] of Object.entries(said)) for (const value of [values].flat()) metadata.add(name, value);
  return metadata;
}

export class GrpcClient {
  readonly #client: Client;

  constructor(address: string, channel = credentials.createInsecure()) {
    this.#client = new Client(address, channel);
  }

  /** @param path - `gateway.GatewayService/ListTasks` @param message - by names of operations, `stubId` */
  call(path: string, message: Plain = {}, how: CallHow = {}): Promise<Called> {
    const { request, response } = messagesOf(path);
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
    const { request, response } = messagesOf(path);
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

  close(): void {
    this.#client.close();
  }
}

function messagesOf(path: string): { readonly request: string; readonly response: string } {
  const [service = '', name = ''] = path.split('/');
  const pack = service.includes('health') ? 'health' : service.split('.', 1)[0];
  const base = `${pack}.${RENAMED[name] ?? name}`;
  return { request: `${base}Request`, response: `${base}Response` };
}
