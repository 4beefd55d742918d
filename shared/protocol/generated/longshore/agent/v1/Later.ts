// Original file: shared/protocol/agent.proto


export interface Later {
  'windowMs'?: (number);
}

export interface Later__Output {
  'windowMs': (number);
}
