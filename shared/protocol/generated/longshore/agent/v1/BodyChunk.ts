// Original file: shared/protocol/agent.proto


export interface BodyChunk {
  'data'?: (Buffer | Uint8Array | string);
}

export interface BodyChunk__Output {
  'data': (Buffer);
}
