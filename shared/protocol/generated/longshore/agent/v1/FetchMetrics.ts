// Original file: shared/protocol/agent.proto


export interface FetchMetrics {
  'requestId'?: (string);
}

export interface FetchMetrics__Output {
  'requestId': (string);
}
