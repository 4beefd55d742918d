// Original file: shared/protocol/agent.proto

import type { ContainerSpec as _longshore_agent_v1_ContainerSpec, ContainerSpec__Output as _longshore_agent_v1_ContainerSpec__Output } from '../../../longshore/agent/v1/ContainerSpec.ts';
import type { Long } from '@grpc/proto-loader';

export interface Assignment {
  'assignmentId'?: (string);
  'containerId'?: (string);
  'epoch'?: (number | string | Long);
  'stop'?: (boolean);
  'graceMs'?: (number);
  'stopReason'?: (string);
  'spec'?: (_longshore_agent_v1_ContainerSpec | null);
  'interruptMs'?: (number);
}

export interface Assignment__Output {
  'assignmentId': (string);
  'containerId': (string);
  'epoch': (number);
  'stop': (boolean);
  'graceMs': (number);
  'stopReason': (string);
  'spec': (_longshore_agent_v1_ContainerSpec__Output | null);
  'interruptMs': (number);
}
