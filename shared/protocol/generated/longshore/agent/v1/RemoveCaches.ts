// Original file: shared/protocol/agent.proto


export interface RemoveCaches {
  'volumeIds'?: (string)[];
}

export interface RemoveCaches__Output {
  'volumeIds': (string)[];
}
