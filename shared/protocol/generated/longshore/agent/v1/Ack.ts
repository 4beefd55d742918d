// Original file: shared/protocol/agent.proto

import type { Long } from '@grpc/proto-loader';

export interface Ack {
  'assignmentId'?: (string);
  'containerId'?: (string);
  'epoch'?: (number | string | Long);
}

export interface Ack__Output {
  'assignmentId': (string);
  'containerId': (string);
  'epoch': (number);
}
