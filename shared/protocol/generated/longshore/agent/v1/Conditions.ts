// Original file: shared/protocol/agent.proto


export interface Conditions {
  'names'?: (string)[];
}

export interface Conditions__Output {
  'names': (string)[];
}
