// Original file: shared/protocol/agent.proto


export interface VolumeMount {
  'volumeId'?: (string);
  'mountPath'?: (string);
  'driver'?: (string);
}

export interface VolumeMount__Output {
  'volumeId': (string);
  'mountPath': (string);
  'driver': (string);
}
