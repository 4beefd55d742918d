// Original file: shared/protocol/agent.proto


export interface Revoked {
  'machineId'?: (string);
  'statement'?: (string);
}

export interface Revoked__Output {
  'machineId': (string);
  'statement': (string);
}
