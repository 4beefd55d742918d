// Original file: shared/protocol/agent.proto


export interface BuildStep {
  'text'?: (string);
  'title'?: (string);
}

export interface BuildStep__Output {
  'text': (string);
  'title': (string);
}
