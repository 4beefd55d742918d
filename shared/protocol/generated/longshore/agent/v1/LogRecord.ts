// Original file: shared/protocol/agent.proto

import type { Long } from '@grpc/proto-loader';

export interface LogRecord {
  'containerId'?: (string);
  'taskId'?: (string);
  'stream'?: (string);
  'line'?: (string);
  'timestampMs'?: (number | string | Long);
  'afterMs'?: (number)[];
}

export interface LogRecord__Output {
  'containerId': (string);
  'taskId': (string);
  'stream': (string);
  'line': (string);
  'timestampMs': (number);
  'afterMs': (number)[];
}
