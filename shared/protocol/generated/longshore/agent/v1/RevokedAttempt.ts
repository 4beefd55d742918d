// Original file: shared/protocol/agent.proto


export interface RevokedAttempt {
  'taskId'?: (string);
  'token'?: (string);
  'reason'?: (string);
}

export interface RevokedAttempt__Output {
  'taskId': (string);
  'token': (string);
  'reason': (string);
}
