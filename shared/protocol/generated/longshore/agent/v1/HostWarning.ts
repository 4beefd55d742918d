// Original file: shared/protocol/agent.proto


export interface HostWarning {
  'check'?: (string);
  'found'?: (string);
  'remedy'?: (string);
}

export interface HostWarning__Output {
  'check': (string);
  'found': (string);
  'remedy': (string);
}
