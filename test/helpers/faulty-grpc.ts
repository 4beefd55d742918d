/** Passes unary calls on to one of several gRPC servers, and answers some of them UNAVAILABLE in their place. */
import { Client, Metadata, Server, ServerCredentials, credentials } from '@grpc/grpc-js';
import type { ServiceError, ServerUnaryCall, sendUnaryData } from '@grpc/grpc-js';
import { SERVICES } from '#scheduler/api/grpc/services/index.ts';
import { randomFrom } from './unruly-cloud.ts';

const UNAVAILABLE = { code: 14, details: 'a planted fault' };
const MOST_BYTES = 16 * 1024 * 1024;

export interface FaultyGrpc {
  readonly address: string;
  /** How often each fault came. */
  readonly faults: { readonly before: number; readonly during: number; readonly after: number };
  stop(): void;
}

/**
 * Faults are of three kinds: the call is not passed on; it is, and its caller is told UNAVAILABLE at once; it is, and
 * its answer is lost.
 * @param options.share - share of the calls that have a fault
 */
export async function faultyGrpc(
  addresses: readonly string[],
  options: { readonly seed: number; readonly share: number },
): Promise<FaultyGrpc> {
  const random = randomFrom(options.seed);
  const faults = { before: 0, during: 0, after: 0 };
  const limits = { 'grpc.max_receive_message_length': MOST_BYTES, 'grpc.max_send_message_length': MOST_BYTES };
  const behind = addresses.map((address) => new Client(address, credentials.createInsecure(), limits));
  const asBytes = (bytes: Buffer): Buffer => bytes;
  const passOn =
    (path: string) =>
    (call: ServerUnaryCall<Buffer, Buffer>, done: sendUnaryData<Buffer>): void => {
      const kind = random() < options.share ? (['before', 'during', 'after'] as const)[Math.floor(random() * 3)] : null;
      if (kind !== null && kind !== undefined) faults[kind] += 1;
      if (kind === 'before') return done(UNAVAILABLE);
      const client = behind[Math.floor(random() * behind.length)] as Client;
      const metadata = new Metadata();
      for (const name of Object.keys(call.metadata.getMap()))
        if (name === 'authorization' || name.startsWith('x-'))
          for (const value of call.metadata.get(name)) metadata.add(name, value);
      const answered = (error: ServiceError | null, bytes?: Buffer): void => {
        if (kind === 'during') return;
        if (kind === 'after') return done(UNAVAILABLE);
        if (error === null) done(null, bytes);
        else done({ code: error.code, details: error.details });
      };
      client.makeUnaryRequest(path, asBytes, asBytes, call.request, metadata, {}, answered);
      if (kind === 'during') done(UNAVAILABLE);
    };
  const server = new Server(limits);
  for (const { pack, name = '', calls = {} } of SERVICES) {
    if (Object.keys(calls).length === 0) continue;
    const methods = Object.keys(calls).map((call) => [call, `/${pack}.${name}/${call}`] as const);
    const definition = Object.fromEntries(
      methods.map(([call, path]) => [
        call,
        {
          path,
          requestStream: false,
          responseStream: false,
          requestSerialize: asBytes,
          requestDeserialize: asBytes,
          responseSerialize: asBytes,
          responseDeserialize: asBytes,
        },
      ]),
    );
    const handlers = Object.fromEntries(methods.map(([call, path]) => [call, passOn(path)]));
    server.addService(definition, handlers);
  }
  const port = await new Promise<number>((resolve, reject) =>
    server.bindAsync('127.0.0.1:0', ServerCredentials.createInsecure(), (error, bound) =>
      error === null ? resolve(bound) : reject(error),
    ),
  );
  return {
    address: `127.0.0.1:${port}`,
    faults,
    stop: () => {
      server.forceShutdown();
      for (const client of behind) client.close();
    },
  };
}
