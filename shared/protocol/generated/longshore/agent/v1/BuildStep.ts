// Original file: shared/protocol/agent.proto


export interface BuildStep {
  'text'?: (string);
  'title'?: (string);
  'apart'?: (boolean);
}

export interface BuildStep__Output {
  'text': (string);
  'title': (string);
  'apart': (boolean);
}
