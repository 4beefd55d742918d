// Original file: shared/protocol/agent.proto


export interface CancelTask {
  'taskId'?: (string);
  'token'?: (string);
  'reason'?: (string);
}

export interface CancelTask__Output {
  'taskId': (string);
  'token': (string);
  'reason': (string);
}
