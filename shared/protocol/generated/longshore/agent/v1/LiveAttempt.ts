// Original file: shared/protocol/agent.proto


export interface LiveAttempt {
  'taskId'?: (string);
  'token'?: (string);
  'containerId'?: (string);
  'facts'?: (Buffer | Uint8Array | string);
}

export interface LiveAttempt__Output {
  'taskId': (string);
  'token': (string);
  'containerId': (string);
  'facts': (Buffer);
}
