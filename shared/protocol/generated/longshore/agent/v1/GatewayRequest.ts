// Original file: shared/protocol/agent.proto

import type { GatewayRequestHead as _longshore_agent_v1_GatewayRequestHead, GatewayRequestHead__Output as _longshore_agent_v1_GatewayRequestHead__Output } from '../../../longshore/agent/v1/GatewayRequestHead.ts';

export interface GatewayRequest {
  'head'?: (_longshore_agent_v1_GatewayRequestHead | null);
  'data'?: (Buffer | Uint8Array | string);
}

export interface GatewayRequest__Output {
  'head': (_longshore_agent_v1_GatewayRequestHead__Output | null);
  'data': (Buffer);
}
