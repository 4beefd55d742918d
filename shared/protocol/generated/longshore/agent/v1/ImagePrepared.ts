// Original file: shared/protocol/agent.proto


export interface ImagePrepared {
  'requestId'?: (string);
  'digest'?: (string);
  'failure'?: (string);
  'message'?: (string);
}

export interface ImagePrepared__Output {
  'requestId': (string);
  'digest': (string);
  'failure': (string);
  'message': (string);
}
