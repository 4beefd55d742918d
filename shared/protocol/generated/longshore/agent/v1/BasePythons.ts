// Original file: shared/protocol/agent.proto


export interface BasePythons {
  'versions'?: (string)[];
}

export interface BasePythons__Output {
  'versions': (string)[];
}
