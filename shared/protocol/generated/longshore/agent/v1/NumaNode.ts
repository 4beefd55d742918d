// Original file: shared/protocol/agent.proto

import type { Long } from '@grpc/proto-loader';

export interface NumaNode {
  'id'?: (number);
  'cpus'?: (string);
  'memoryBytes'?: (number | string | Long);
}

export interface NumaNode__Output {
  'id': (number);
  'cpus': (string);
  'memoryBytes': (number);
}
