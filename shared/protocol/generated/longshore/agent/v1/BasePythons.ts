// Original file: shared/protocol/agent.proto


export interface BasePythons {
  'versions'?: (string)[];
  'known'?: (boolean);
  'here'?: (string)[];
}

export interface BasePythons__Output {
  'versions': (string)[];
  'known': (boolean);
  'here': (string)[];
}
