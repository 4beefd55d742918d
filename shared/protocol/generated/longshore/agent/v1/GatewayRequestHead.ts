// Original file: shared/protocol/agent.proto

import type { HttpHeader as _longshore_agent_v1_HttpHeader, HttpHeader__Output as _longshore_agent_v1_HttpHeader__Output } from '../../../longshore/agent/v1/HttpHeader.ts';
import type { Long } from '@grpc/proto-loader';

export interface GatewayRequestHead {
  'containerId'?: (string);
  'epoch'?: (number | string | Long);
  'method'?: (string);
  'path'?: (string);
  'headers'?: (_longshore_agent_v1_HttpHeader)[];
}

export interface GatewayRequestHead__Output {
  'containerId': (string);
  'epoch': (number);
  'method': (string);
  'path': (string);
  'headers': (_longshore_agent_v1_HttpHeader__Output)[];
}
