// Original file: shared/protocol/agent.proto

import type { Gpu as _longshore_agent_v1_Gpu, Gpu__Output as _longshore_agent_v1_Gpu__Output } from '../../../longshore/agent/v1/Gpu.ts';

export interface DeviceReport {
  'gpus'?: (_longshore_agent_v1_Gpu)[];
  'gpuDriver'?: (string);
}

export interface DeviceReport__Output {
  'gpus': (_longshore_agent_v1_Gpu__Output)[];
  'gpuDriver': (string);
}
