// Original file: shared/protocol/agent.proto

import type { GpuUse as _longshore_agent_v1_GpuUse, GpuUse__Output as _longshore_agent_v1_GpuUse__Output } from '../../../longshore/agent/v1/GpuUse.ts';
import type { Long } from '@grpc/proto-loader';

export interface ContainerSample {
  'containerId'?: (string);
  'cpuMillicores'?: (number);
  'cpuMicroseconds'?: (number | string | Long);
  'memoryBytes'?: (number | string | Long);
  'processes'?: (number);
  'receivedBytes'?: (number | string | Long);
  'sentBytes'?: (number | string | Long);
  'diskBytes'?: (number | string | Long);
  'diskLimitBytes'?: (number | string | Long);
  'gpu'?: (_longshore_agent_v1_GpuUse | null);
}

export interface ContainerSample__Output {
  'containerId': (string);
  'cpuMillicores': (number);
  'cpuMicroseconds': (number);
  'memoryBytes': (number);
  'processes': (number);
  'receivedBytes': (number);
  'sentBytes': (number);
  'diskBytes': (number);
  'diskLimitBytes': (number);
  'gpu': (_longshore_agent_v1_GpuUse__Output | null);
}
