// Original file: shared/protocol/agent.proto


export interface CarryHead {
  'taskId'?: (string);
  'token'?: (string);
  'streamId'?: (string);
}

export interface CarryHead__Output {
  'taskId': (string);
  'token': (string);
  'streamId': (string);
}
