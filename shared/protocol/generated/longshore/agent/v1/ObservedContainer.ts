// Original file: shared/protocol/agent.proto

import type { StartPhase as _longshore_agent_v1_StartPhase, StartPhase__Output as _longshore_agent_v1_StartPhase__Output } from '../../../longshore/agent/v1/StartPhase.ts';
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
  'startPhases'?: (_longshore_agent_v1_StartPhase)[];
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
  'startPhases': (_longshore_agent_v1_StartPhase__Output)[];
}
