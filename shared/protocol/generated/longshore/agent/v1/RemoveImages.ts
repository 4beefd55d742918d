// Original file: shared/protocol/agent.proto


export interface RemoveImages {
  'images'?: (string)[];
}

export interface RemoveImages__Output {
  'images': (string)[];
}
