// Original file: shared/protocol/agent.proto

import type { CarryHead as _longshore_agent_v1_CarryHead, CarryHead__Output as _longshore_agent_v1_CarryHead__Output } from '../../../longshore/agent/v1/CarryHead.ts';

export interface CarryFromAgent {
  'head'?: (_longshore_agent_v1_CarryHead | null);
  'data'?: (Buffer | Uint8Array | string);
}

export interface CarryFromAgent__Output {
  'head': (_longshore_agent_v1_CarryHead__Output | null);
  'data': (Buffer);
}
