// Original file: shared/protocol/agent.proto


export interface Goodbye {
  'reason'?: (string);
}

export interface Goodbye__Output {
  'reason': (string);
}
