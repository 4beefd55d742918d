// Original file: shared/protocol/agent.proto


export interface StartPhase {
  'name'?: (string);
  'durationMs'?: (number);
}

export interface StartPhase__Output {
  'name': (string);
  'durationMs': (number);
}
