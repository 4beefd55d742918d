// Original file: shared/protocol/agent.proto


export interface CarryToAgent {
  'data'?: (Buffer | Uint8Array | string);
}

export interface CarryToAgent__Output {
  'data': (Buffer);
}
