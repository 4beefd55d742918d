// Original file: shared/protocol/agent.proto

import type { Welcome as _longshore_agent_v1_Welcome, Welcome__Output as _longshore_agent_v1_Welcome__Output } from '../../../longshore/agent/v1/Welcome.ts';
import type { Desired as _longshore_agent_v1_Desired, Desired__Output as _longshore_agent_v1_Desired__Output } from '../../../longshore/agent/v1/Desired.ts';
import type { Proceed as _longshore_agent_v1_Proceed, Proceed__Output as _longshore_agent_v1_Proceed__Output } from '../../../longshore/agent/v1/Proceed.ts';
import type { Ping as _longshore_agent_v1_Ping, Ping__Output as _longshore_agent_v1_Ping__Output } from '../../../longshore/agent/v1/Ping.ts';
import type { Superseded as _longshore_agent_v1_Superseded, Superseded__Output as _longshore_agent_v1_Superseded__Output } from '../../../longshore/agent/v1/Superseded.ts';

export interface ControlToAgent {
  'welcome'?: (_longshore_agent_v1_Welcome | null);
  'desired'?: (_longshore_agent_v1_Desired | null);
  'proceed'?: (_longshore_agent_v1_Proceed | null);
  'ping'?: (_longshore_agent_v1_Ping | null);
  'superseded'?: (_longshore_agent_v1_Superseded | null);
  'message'?: "welcome"|"desired"|"proceed"|"ping"|"superseded";
}

export interface ControlToAgent__Output {
  'welcome'?: (_longshore_agent_v1_Welcome__Output | null);
  'desired'?: (_longshore_agent_v1_Desired__Output | null);
  'proceed'?: (_longshore_agent_v1_Proceed__Output | null);
  'ping'?: (_longshore_agent_v1_Ping__Output | null);
  'superseded'?: (_longshore_agent_v1_Superseded__Output | null);
  'message'?: "welcome"|"desired"|"proceed"|"ping"|"superseded";
}
