// Original file: shared/protocol/agent.proto

import type { Long } from '@grpc/proto-loader';

export interface Proceed {
  'assignmentId'?: (string);
  'containerId'?: (string);
  'epoch'?: (number | string | Long);
  'secrets'?: ({[key: string]: string});
  'containerToken'?: (string);
}

export interface Proceed__Output {
  'assignmentId': (string);
  'containerId': (string);
  'epoch': (number);
  'secrets': ({[key: string]: string});
  'containerToken': (string);
}
