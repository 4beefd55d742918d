// Original file: shared/protocol/agent.proto


export interface ServeContainer {
  'streamId'?: (string);
  'containerId'?: (string);
}

export interface ServeContainer__Output {
  'streamId': (string);
  'containerId': (string);
}
