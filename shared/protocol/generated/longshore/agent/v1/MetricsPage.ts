// Original file: shared/protocol/agent.proto


export interface MetricsPage {
  'requestId'?: (string);
  'page'?: (Buffer | Uint8Array | string);
}

export interface MetricsPage__Output {
  'requestId': (string);
  'page': (Buffer);
}
