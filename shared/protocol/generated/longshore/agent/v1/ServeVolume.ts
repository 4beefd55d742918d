// Original file: shared/protocol/agent.proto


export interface ServeVolume {
  'streamId'?: (string);
  'workspaceId'?: (string);
  'volumeId'?: (string);
  'driver'?: (string);
}

export interface ServeVolume__Output {
  'streamId': (string);
  'workspaceId': (string);
  'volumeId': (string);
  'driver': (string);
}
