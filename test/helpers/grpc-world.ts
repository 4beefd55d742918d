/** The gRPC port of a scheduler, for containers of a world whose supervisors are real processes. */
import { pino } from 'pino';
import { openWire, unroutedOperations } from '#scheduler/api/grpc/open-wire.ts';
import type { UnroutedParts } from '#scheduler/api/grpc/operations/index.ts';
import { GrpcServer } from '#scheduler/api/grpc/server.ts';
import { GatewayCalls } from '#scheduler/api/http/gateway-calls.ts';
import { allOperations } from '#scheduler/api/operations/index.ts';
import type { OperationParts } from '#scheduler/api/operations/index.ts';
import type { ContainerWorld } from './containers.ts';
import { GrpcClient } from './grpc-client.ts';
import type { CallHow, Called } from './grpc-client.ts';

export const POD_SERVICE = 'pod.PodService';

export interface GrpcWorld {
  readonly address: string;
  /** A call on pods, as the workspace's own token unless `how` names another. */
  call(name: string, message?: Readonly<Record<string, unknown>>, how?: CallHow): Promise<Called>;
  stop(): Promise<void>;
}

/** Opens a port for the containers of the world: each call of it is another scheduler. */
export async function grpcOf(
  { pods, authenticator }: Pick<ContainerWorld, 'pods' | 'authenticator'>,
  options: { readonly pieceWithinMs?: number } = {},
): Promise<GrpcWorld> {
  const log = pino({ level: 'silent' });
  const operations = [...allOperations(pods as OperationParts), ...unroutedOperations({} as UnroutedParts)];
  const calls = new GatewayCalls({ wants: () => false, tell: () => undefined }, () => Date.now());
  const clock = { nowMs: () => Date.now(), monotonicMs: () => performance.now() };
  const settings = { externalUrl: 'http://here', loopbackTrust: 'none' };
  const server = new GrpcServer({
    address: '127.0.0.1:0',
    plaintext: 'loopback',
    log,
    open: async (connections) =>
      openWire({
        parts: { settings, clock, log } as never,
        operations,
        calls,
        authenticator,
        listenUrl: () => 'http://here',
        streams: { take: () => ({}) as never, leave: () => undefined },
        ...connections,
        ...options,
      }),
  });
  await server.start();
  const client = new GrpcClient(server.address);
  return {
    address: server.address,
    call: (name, message = {}, how = {}) => client.call(`${POD_SERVICE}/${name}`, message, { token: 'own', ...how }),
    stop: async () => {
      client.close();
      await server.stop(0);
    },
  };
}
