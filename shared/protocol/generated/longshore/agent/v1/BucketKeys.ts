// Original file: shared/protocol/agent.proto


export interface BucketKeys {
  'mountPath'?: (string);
  'accessKey'?: (string);
  'secretKey'?: (string);
}

export interface BucketKeys__Output {
  'mountPath': (string);
  'accessKey': (string);
  'secretKey': (string);
}
