// Original file: shared/protocol/agent.proto

import type { Revoked as _longshore_agent_v1_Revoked, Revoked__Output as _longshore_agent_v1_Revoked__Output } from '../../../longshore/agent/v1/Revoked.ts';
import type { Long } from '@grpc/proto-loader';

export interface ProveResponse {
  'credential'?: (string);
  'credentialExpiresAtMs'?: (number | string | Long);
  'revoked'?: (_longshore_agent_v1_Revoked | null);
}

export interface ProveResponse__Output {
  'credential': (string);
  'credentialExpiresAtMs': (number);
  'revoked': (_longshore_agent_v1_Revoked__Output | null);
}
