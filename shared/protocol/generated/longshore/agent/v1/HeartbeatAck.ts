// Original file: shared/protocol/agent.proto

import type { Long } from '@grpc/proto-loader';

export interface HeartbeatAck {
  'sentAtMs'?: (number | string | Long);
  'serverTimeMs'?: (number | string | Long);
  'expectedGpus'?: (number);
  '_expectedGpus'?: "expectedGpus";
}

export interface HeartbeatAck__Output {
  'sentAtMs': (number);
  'serverTimeMs': (number);
  'expectedGpus'?: (number);
  '_expectedGpus'?: "expectedGpus";
}
