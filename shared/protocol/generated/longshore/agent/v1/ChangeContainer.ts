// Original file: shared/protocol/agent.proto

import type { NetworkRules as _longshore_agent_v1_NetworkRules, NetworkRules__Output as _longshore_agent_v1_NetworkRules__Output } from '../../../longshore/agent/v1/NetworkRules.ts';
import type { Snapshot as _longshore_agent_v1_Snapshot, Snapshot__Output as _longshore_agent_v1_Snapshot__Output } from '../../../longshore/agent/v1/Snapshot.ts';
import type { ChangeGpu as _longshore_agent_v1_ChangeGpu, ChangeGpu__Output as _longshore_agent_v1_ChangeGpu__Output } from '../../../longshore/agent/v1/ChangeGpu.ts';

export interface ChangeContainer {
  'requestId'?: (string);
  'containerId'?: (string);
  'network'?: (_longshore_agent_v1_NetworkRules | null);
  'snapshot'?: (_longshore_agent_v1_Snapshot | null);
  'gpu'?: (_longshore_agent_v1_ChangeGpu | null);
  'change'?: "network"|"snapshot"|"gpu";
}

export interface ChangeContainer__Output {
  'requestId': (string);
  'containerId': (string);
  'network'?: (_longshore_agent_v1_NetworkRules__Output | null);
  'snapshot'?: (_longshore_agent_v1_Snapshot__Output | null);
  'gpu'?: (_longshore_agent_v1_ChangeGpu__Output | null);
  'change'?: "network"|"snapshot"|"gpu";
}
