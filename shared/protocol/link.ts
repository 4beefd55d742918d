// The agent link's wire: loads agent.proto once and gives both ends the service definition and its types.
import { fileURLToPath } from 'node:url';
import { loadPackageDefinition } from '@grpc/grpc-js';
import { loadSync } from '@grpc/proto-loader';
import type { ProtoGrpcType } from './generated/agent.ts';

/** What both sides speak; the lower one of the two is used. */
export const PROTOCOL_VERSION = 1;
/** No message above this many bytes: larger bodies travel in parts. */
export const MAX_MESSAGE_BYTES = 1024 * 1024;
/** Parts of inputs, results and archives. */
export const PART_BYTES = 512 * 1024;
/** What a part that is kept costs in memory beside its bytes: a million words of a generator are more than their letters. */
export const PART_COST_BYTES = 256;
/** The name in the scheduler's certificate, whatever address an agent dials. */
export const SERVER_NAME = 'longshore-scheduler';

/** Loads the proto; called by each end's composition root. */
export function loadLink(): ProtoGrpcType {
  const path = fileURLToPath(new URL('./agent.proto', import.meta.url));
  const definition = loadSync(path, { longs: Number, defaults: true, oneofs: true, arrays: true });
  return loadPackageDefinition(definition) as unknown as ProtoGrpcType;
}
