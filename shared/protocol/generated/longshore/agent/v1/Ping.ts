// Original file: shared/protocol/agent.proto

import type { Long } from '@grpc/proto-loader';

export interface Ping {
  'seq'?: (number | string | Long);
}

export interface Ping__Output {
  'seq': (number);
}
