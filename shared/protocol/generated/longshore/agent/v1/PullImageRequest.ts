// Original file: shared/protocol/agent.proto


export interface PullImageRequest {
  'image'?: (string);
  'done'?: (boolean);
  'workspaceId'?: (string);
  'check'?: (boolean);
  'maxWaitMs'?: (number);
  'pulling'?: (boolean);
  'pulled'?: (boolean);
  'hasWaited'?: (boolean);
  'again'?: (boolean);
}

export interface PullImageRequest__Output {
  'image': (string);
  'done': (boolean);
  'workspaceId': (string);
  'check': (boolean);
  'maxWaitMs': (number);
  'pulling': (boolean);
  'pulled': (boolean);
  'hasWaited': (boolean);
  'again': (boolean);
}
