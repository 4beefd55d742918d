// Original file: shared/protocol/agent.proto


export interface PullImageRequest {
  'image'?: (string);
  'done'?: (boolean);
}

export interface PullImageRequest__Output {
  'image': (string);
  'done': (boolean);
}
