// Original file: shared/protocol/agent.proto

import type { GatewayResponseHead as _longshore_agent_v1_GatewayResponseHead, GatewayResponseHead__Output as _longshore_agent_v1_GatewayResponseHead__Output } from '../../../longshore/agent/v1/GatewayResponseHead.ts';

export interface GatewayResponse {
  'head'?: (_longshore_agent_v1_GatewayResponseHead | null);
  'data'?: (Buffer | Uint8Array | string);
}

export interface GatewayResponse__Output {
  'head': (_longshore_agent_v1_GatewayResponseHead__Output | null);
  'data': (Buffer);
}
