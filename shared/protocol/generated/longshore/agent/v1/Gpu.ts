// Original file: shared/protocol/agent.proto

import type { Long } from '@grpc/proto-loader';

export interface Gpu {
  'uuid'?: (string);
  'model'?: (string);
  'memoryBytes'?: (number | string | Long);
}

export interface Gpu__Output {
  'uuid': (string);
  'model': (string);
  'memoryBytes': (number);
}
