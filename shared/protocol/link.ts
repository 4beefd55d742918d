// Loads agent.proto once and gives both ends of the agent link its service definition and types.
import { fileURLToPath } from 'node:url';
import { loadPackageDefinition } from '@grpc/grpc-js';
import { loadSync } from '@grpc/proto-loader';
import type { ProtoGrpcType } from './generated/agent.ts';

/** The protocol version of this build; two sides use the lower of theirs. */
export const PROTOCOL_VERSION = 1;
/** The largest message in bytes: larger bodies travel in parts. */
export const MAX_MESSAGE_BYTES = 1024 * 1024;
/** Size of the parts of inputs, results and archives. */
export const PART_BYTES = 512 * 1024;
/** Memory cost of a stored part beside its bytes: a generator's million short items cost more than their text. */
export const PART_COST_BYTES = 256;
/** The name in the scheduler's certificate, for any address that an agent dials. */
export const SERVER_NAME = 'longshore-scheduler';

/** Loads the proto; called by each end's composition root. */
export function loadLink(): ProtoGrpcType {
  const path = fileURLToPath(new URL('./agent.proto', import.meta.url));
  const definition = loadSync(path, { longs: Number, defaults: true, oneofs: true, arrays: true });
  return loadPackageDefinition(definition) as unknown as ProtoGrpcType;
}
