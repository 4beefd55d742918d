// Original file: shared/protocol/agent.proto

import type { Long } from '@grpc/proto-loader';

export interface ContainerChanged {
  'requestId'?: (string);
  'error'?: (string);
  'bytes'?: (number | string | Long);
}

export interface ContainerChanged__Output {
  'requestId': (string);
  'error': (string);
  'bytes': (number);
}
