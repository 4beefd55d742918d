// Original file: shared/protocol/agent.proto


export interface TaskStarted {
  'taskId'?: (string);
  'token'?: (string);
}

export interface TaskStarted__Output {
  'taskId': (string);
  'token': (string);
}
