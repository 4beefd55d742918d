// Original file: shared/protocol/agent.proto


export interface BucketMount {
  'bucket'?: (string);
  'endpoint'?: (string);
  'region'?: (string);
  'readOnly'?: (boolean);
  'pathStyle'?: (boolean);
}

export interface BucketMount__Output {
  'bucket': (string);
  'endpoint': (string);
  'region': (string);
  'readOnly': (boolean);
  'pathStyle': (boolean);
}
