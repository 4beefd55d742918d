// Original file: shared/protocol/agent.proto


export interface NetworkRules {
  'blockNetwork'?: (boolean);
  'allowList'?: (string)[];
  'version'?: (number);
}

export interface NetworkRules__Output {
  'blockNetwork': (boolean);
  'allowList': (string)[];
  'version': (number);
}
