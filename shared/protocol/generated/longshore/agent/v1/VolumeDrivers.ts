// Original file: shared/protocol/agent.proto


export interface VolumeDrivers {
  'names'?: (string)[];
}

export interface VolumeDrivers__Output {
  'names': (string)[];
}
