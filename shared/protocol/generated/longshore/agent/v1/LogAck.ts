// Original file: shared/protocol/agent.proto

import type { Long } from '@grpc/proto-loader';

export interface LogAck {
  'seq'?: (number | string | Long);
}

export interface LogAck__Output {
  'seq': (number);
}
