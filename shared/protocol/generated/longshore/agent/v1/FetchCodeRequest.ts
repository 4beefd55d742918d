// Original file: shared/protocol/agent.proto


export interface FetchCodeRequest {
  'objectId'?: (string);
}

export interface FetchCodeRequest__Output {
  'objectId': (string);
}
