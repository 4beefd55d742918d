// Original file: shared/protocol/agent.proto


export interface HostFileSystem {
  'holds'?: (string);
  'type'?: (string);
  'device'?: (string);
}

export interface HostFileSystem__Output {
  'holds': (string);
  'type': (string);
  'device': (string);
}
