// Original file: shared/protocol/agent.proto

import type { Long } from '@grpc/proto-loader';

export interface Pong {
  'seq'?: (number | string | Long);
}

export interface Pong__Output {
  'seq': (number);
}
