// Original file: shared/protocol/agent.proto


export interface HttpHeader {
  'name'?: (string);
  'value'?: (string);
}

export interface HttpHeader__Output {
  'name': (string);
  'value': (string);
}
