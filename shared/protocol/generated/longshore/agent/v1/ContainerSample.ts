// Original file: shared/protocol/agent.proto

import type { GpuUse as _longshore_agent_v1_GpuUse, GpuUse__Output as _longshore_agent_v1_GpuUse__Output } from '../../../longshore/agent/v1/GpuUse.ts';
import type { ContainerDeltas as _longshore_agent_v1_ContainerDeltas, ContainerDeltas__Output as _longshore_agent_v1_ContainerDeltas__Output } from '../../../longshore/agent/v1/ContainerDeltas.ts';
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
  'memoryRssBytes'?: (number | string | Long);
  'memoryVmsBytes'?: (number | string | Long);
  'memorySwapBytes'?: (number | string | Long);
  'since'?: (_longshore_agent_v1_ContainerDeltas | null);
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
  'memoryRssBytes': (number);
  'memoryVmsBytes': (number);
  'memorySwapBytes': (number);
  'since': (_longshore_agent_v1_ContainerDeltas__Output | null);
}
