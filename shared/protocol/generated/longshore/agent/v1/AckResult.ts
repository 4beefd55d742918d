// Original file: shared/protocol/agent.proto


export interface AckResult {
  'taskId'?: (string);
  'token'?: (string);
}

export interface AckResult__Output {
  'taskId': (string);
  'token': (string);
}
