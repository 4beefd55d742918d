// Original file: shared/protocol/agent.proto


export interface ProveRequest {
  'machineId'?: (string);
  'challenge'?: (string);
  'signature'?: (Buffer | Uint8Array | string);
}

export interface ProveRequest__Output {
  'machineId': (string);
  'challenge': (string);
  'signature': (Buffer);
}
