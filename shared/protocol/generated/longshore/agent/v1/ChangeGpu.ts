// Original file: shared/protocol/agent.proto


export interface ChangeGpu {
  'uuid'?: (string);
  'action'?: (string);
}

export interface ChangeGpu__Output {
  'uuid': (string);
  'action': (string);
}
