// Original file: shared/protocol/agent.proto

import type { Long } from '@grpc/proto-loader';

export interface Refuse {
  'assignmentId'?: (string);
  'containerId'?: (string);
  'epoch'?: (number | string | Long);
  'reason'?: (string);
  'message'?: (string);
}

export interface Refuse__Output {
  'assignmentId': (string);
  'containerId': (string);
  'epoch': (number);
  'reason': (string);
  'message': (string);
}
