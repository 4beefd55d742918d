// Original file: shared/protocol/agent.proto

import type { Long } from '@grpc/proto-loader';

export interface ObservedContainer {
  'containerId'?: (string);
  'assignmentId'?: (string);
  'epoch'?: (number | string | Long);
  'phase'?: (string);
  'slots'?: (number);
  'mode'?: (string);
  'onStartMs'?: (number);
  'exitCode'?: (number);
  'oomKilled'?: (boolean);
  'reason'?: (string);
  'message'?: (string);
  'startedAtMs'?: (number | string | Long);
  'finishedAtMs'?: (number | string | Long);
  'gpuUuids'?: (string)[];
  'cpuMillicores'?: (number);
  'memoryBytes'?: (number | string | Long);
  'restartingSlots'?: (number);
}

export interface ObservedContainer__Output {
  'containerId': (string);
  'assignmentId': (string);
  'epoch': (number);
  'phase': (string);
  'slots': (number);
  'mode': (string);
  'onStartMs': (number);
  'exitCode': (number);
  'oomKilled': (boolean);
  'reason': (string);
  'message': (string);
  'startedAtMs': (number);
  'finishedAtMs': (number);
  'gpuUuids': (string)[];
  'cpuMillicores': (number);
  'memoryBytes': (number);
  'restartingSlots': (number);
}
