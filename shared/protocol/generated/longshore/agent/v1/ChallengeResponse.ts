// Original file: shared/protocol/agent.proto


export interface ChallengeResponse {
  'challenge'?: (string);
}

export interface ChallengeResponse__Output {
  'challenge': (string);
}
