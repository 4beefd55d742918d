// Original file: shared/protocol/agent.proto


export interface TaskRefused {
  'taskId'?: (string);
  'token'?: (string);
  'reason'?: (string);
}

export interface TaskRefused__Output {
  'taskId': (string);
  'token': (string);
  'reason': (string);
}
