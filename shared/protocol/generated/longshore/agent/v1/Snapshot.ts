// Original file: shared/protocol/agent.proto


export interface Snapshot {
  'image'?: (string);
}

export interface Snapshot__Output {
  'image': (string);
}
