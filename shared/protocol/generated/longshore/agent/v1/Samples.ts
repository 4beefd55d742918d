// Original file: shared/protocol/agent.proto

import type { ContainerSample as _longshore_agent_v1_ContainerSample, ContainerSample__Output as _longshore_agent_v1_ContainerSample__Output } from '../../../longshore/agent/v1/ContainerSample.ts';
import type { MachineSample as _longshore_agent_v1_MachineSample, MachineSample__Output as _longshore_agent_v1_MachineSample__Output } from '../../../longshore/agent/v1/MachineSample.ts';
import type { DeviceSample as _longshore_agent_v1_DeviceSample, DeviceSample__Output as _longshore_agent_v1_DeviceSample__Output } from '../../../longshore/agent/v1/DeviceSample.ts';
import type { Long } from '@grpc/proto-loader';

export interface Samples {
  'sampledAtMs'?: (number | string | Long);
  'containers'?: (_longshore_agent_v1_ContainerSample)[];
  'machine'?: (_longshore_agent_v1_MachineSample | null);
  'devices'?: (_longshore_agent_v1_DeviceSample)[];
}

export interface Samples__Output {
  'sampledAtMs': (number);
  'containers': (_longshore_agent_v1_ContainerSample__Output)[];
  'machine': (_longshore_agent_v1_MachineSample__Output | null);
  'devices': (_longshore_agent_v1_DeviceSample__Output)[];
}
