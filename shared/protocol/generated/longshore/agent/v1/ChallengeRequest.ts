// Original file: shared/protocol/agent.proto


export interface ChallengeRequest {
  'machineId'?: (string);
}

export interface ChallengeRequest__Output {
  'machineId': (string);
}
