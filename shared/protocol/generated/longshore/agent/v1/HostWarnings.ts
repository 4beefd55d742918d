// Original file: shared/protocol/agent.proto

import type { HostWarning as _longshore_agent_v1_HostWarning, HostWarning__Output as _longshore_agent_v1_HostWarning__Output } from '../../../longshore/agent/v1/HostWarning.ts';

export interface HostWarnings {
  'warnings'?: (_longshore_agent_v1_HostWarning)[];
}

export interface HostWarnings__Output {
  'warnings': (_longshore_agent_v1_HostWarning__Output)[];
}
