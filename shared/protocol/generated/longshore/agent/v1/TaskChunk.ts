// Original file: shared/protocol/agent.proto


export interface TaskChunk {
  'taskId'?: (string);
  'token'?: (string);
  'seq'?: (number);
  'data'?: (Buffer | Uint8Array | string);
}

export interface TaskChunk__Output {
  'taskId': (string);
  'token': (string);
  'seq': (number);
  'data': (Buffer);
}
