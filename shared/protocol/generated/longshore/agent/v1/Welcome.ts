// Original file: shared/protocol/agent.proto

import type { Long } from '@grpc/proto-loader';

export interface Welcome {
  'sessionId'?: (string);
  'sessionEpoch'?: (number | string | Long);
  'serverTimeMs'?: (number | string | Long);
  'pingIntervalMs'?: (number);
  'heartbeatIntervalMs'?: (number);
  'reconnectWindowMs'?: (number);
}

export interface Welcome__Output {
  'sessionId': (string);
  'sessionEpoch': (number);
  'serverTimeMs': (number);
  'pingIntervalMs': (number);
  'heartbeatIntervalMs': (number);
  'reconnectWindowMs': (number);
}
