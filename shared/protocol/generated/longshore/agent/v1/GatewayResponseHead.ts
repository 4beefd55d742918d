// Original file: shared/protocol/agent.proto

import type { HttpHeader as _longshore_agent_v1_HttpHeader, HttpHeader__Output as _longshore_agent_v1_HttpHeader__Output } from '../../../longshore/agent/v1/HttpHeader.ts';

export interface GatewayResponseHead {
  'status'?: (number);
  'headers'?: (_longshore_agent_v1_HttpHeader)[];
}

export interface GatewayResponseHead__Output {
  'status': (number);
  'headers': (_longshore_agent_v1_HttpHeader__Output)[];
}
